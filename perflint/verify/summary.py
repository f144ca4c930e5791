"""A verdict in words: the sentence that sums it up, why fixes are kept, figures, and the summary on the terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from perflint.engine import count
from perflint.report.text import Style, cells, crop, printable
from perflint.verify import statistics
from perflint.verify.messages import EVALUATION
from perflint.verify.statistics import Estimate, Outcome, drowns
from perflint.verify.verdict import NO_TIME, QUIET, FixVerdict, Grade, Verdict

_LIKENESS = {
    Grade.BITWISE: "gives bitwise the same results",
    Grade.ROUNDING: "gives the same results but for rounding",
    Grade.ALIKE: "gives statistically the same results",
}
_QUIETLY = "Verify again while nothing else runs on this machine"
_NOT_COMPARED = "was raced first, and not compared,"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ("B", "kB", "MB", "GB", "TB")
_WIDTH = 80
_HEIGHT = 22  # of the smallest terminal, less a line for the prompt and one for where the report is
_EXCLUDED = 3  # of what is excluded, this much is shown
_SENTENCE = 4
_CUT = " ..."
_WORD = 20  # cells of one that is left out where a line is cut
_PLACE, _LEAST_PATH = 44, 20  # cells of a fix's rule and place together, and of its place at least
_LOOKS = {
    Outcome.FASTER: "bold green",
    Outcome.LEVEL: "bold",
    Outcome.UNFIXED: "bold",
    Outcome.UNSURE: "bold yellow",
}


def advice(verdict: Verdict) -> str:
    outcome, kept = verdict.outcome, sum(fix.kept for fix in verdict.fixes)
    again = f"Verify again with --budget {duration(verdict.longer)}" if verdict.longer else ""
    if outcome is Outcome.FASTER:
        won = "the fix" if kept == 1 else f"the {kept} fixes"
        return f"Apply {won}: perflint fix --apply --verified"
    if outcome is Outcome.FAILED:
        return f"{again}, or less data." if again else "Have the program run by itself first."
    if outcome is Outcome.UNSURE and verdict.strangers:
        return "Verify again when nobody else uses the GPU."
    if verdict.is_open and verdict.load > QUIET:
        return f"{_QUIETLY}: other programs keep {percent(verdict.load)} of the cores busy."
    if outcome is Outcome.UNSURE and drowns(verdict.floor):
        return f"{_QUIETLY}: identical runs differ by {_noise(verdict)}."
    if verdict.is_open and again:
        return f"{again}."
    return "Keep the program as it is."


def sentence(verdict: Verdict) -> str:
    outcome = verdict.outcome
    if outcome is Outcome.FAILED:
        return closed(f"No verdict: {verdict.failure}")
    if outcome is Outcome.UNFIXED:
        if verdict.is_idle and not verdict.fixes:
            return "Nothing to fix: the program comes to nothing that perflint has fixes for."
        fixes = "none of the fixes takes effect in" if verdict.is_idle else "perflint has no fix for"
        return f"Nothing to fix: {fixes} this program."
    if outcome is Outcome.UNCHECKED and verdict.is_cut:
        known = f"the patched program is {ratio_with_interval(verdict.speed)} as fast, but " if verdict.speed else ""
        return f"Can't tell{': ' if known else ' whether the results stay the same: '}{known}{NO_TIME}."
    if outcome in (Outcome.UNCHECKED, Outcome.DIFFERENT):
        said, likeness = "Rejected: the patch changes the results", verdict.likeness
        if outcome is Outcome.UNCHECKED:
            said = "No verdict: whether the results stay the same can't be checked"
            likeness = verdict.own if verdict.own.grade is Grade.UNKNOWN else likeness
        return closed(f"{said}: {likeness.evidence[0]}" if likeness.evidence else said)
    reach = verdict.reach
    step = ("evaluation batch", "evaluation batches") if verdict.unit == EVALUATION else ("step",)
    over = "" if reach.is_whole or not reach.steps else f" over the first {count(reach.steps, *step)}"
    where = "in a shortened copy, " if verdict.is_shortened else ""
    same = f"{where}the patched program {_LIKENESS.get(verdict.likeness.grade, _NOT_COMPARED)}{over}"
    if verdict.speed is None:
        return f"Can't tell: {same}, but there was no time to measure its speed."
    if verdict.strangers:
        others = ", ".join(map(str, verdict.strangers))
        return f"Can't tell: {same}, but how fast it is can't be measured while others use the GPU: {others}."
    as_fast = f"{ratio_with_interval(verdict.speed)} as fast"
    is_within = math.isfinite(verdict.speed.high) and abs(verdict.speed.ratio - 1.0) <= verdict.floor
    noise = f"noise of {_noise(verdict)}" if is_within else "noise"
    return {
        Outcome.FASTER: f"Faster: {same} and is {as_fast}.",
        Outcome.SLOWER: f"Rejected: {same} but is only {as_fast}.",
        Outcome.LEVEL: f"Nothing to gain: {same} and is {as_fast}.",
    }.get(outcome, f"Can't tell: {same} and is {as_fast}, which may be {noise}.")


def spent(verdict: Verdict) -> Iterator[str]:
    for each in verdict.spent:
        starts = f", {each.starting:.1f} s of it for {count(each.starts, 'start')}" if each.starts else ""
        yield f"{each.part}: {each.seconds:.1f} s{starts}"


def closed(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def ratio_with_interval(estimate: Estimate) -> str:
    within = "" if math.isinf(estimate.high) else f"{_number(estimate.low)} to {_number(estimate.high)}"
    few = f"from {count(estimate.rounds, 'round')} only" if estimate.rounds < statistics.LEAST_ROUNDS else ""
    return f"{ratio(estimate.ratio)} ({', '.join(filter(None, [within, few]))})"


def duration(value: float) -> str:
    return f"{value / 60:.0f}m" if value % 60 == 0 else f"{value:.0f}s"


def ratio(value: float) -> str:
    return f"{_number(value)}x"


def seconds(value: float) -> str:
    scale, unit = next((each for each in _UNITS if value >= each[0]), _UNITS[-1])
    return f"{_digits(value / scale)} {unit}"


def size(number: int) -> str:
    power = min(max(len(str(number)) - 1, 0) // 3, len(_SIZES) - 1)
    return f"{_digits(number / 1000**power)} {_SIZES[power]}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _noise(verdict: Verdict) -> str:
    return f"{100 * verdict.floor:.{0 if drowns(verdict.floor) else 1}f} %"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else _digits(value)


def _digits(value: float) -> str:
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if 0 < value < 1000 else f"{value:.0f}"


@dataclass(frozen=True)
class Figure:
    name: str
    before: str
    after: str
    note: str = ""


def figures(verdict: Verdict) -> Iterator[Figure]:
    before, after = verdict.before, verdict.after
    if verdict.step_seconds and verdict.speed:
        first, second = verdict.step_seconds
        note = f"{ratio_with_interval(verdict.speed)}, noise {_noise(verdict)}"
        yield Figure("batch" if verdict.unit == EVALUATION else "step", seconds(first), seconds(second), note)
    if before.setup_seconds and after.setup_seconds:
        steps = verdict.break_even_steps
        note = f"won back after {count(steps, 'step')}" if steps else ""
        yield Figure("set-up", seconds(before.setup_seconds), seconds(after.setup_seconds), note)
    if before.device_bytes and after.device_bytes:
        yield Figure("GPU memory", size(before.device_bytes), size(after.device_bytes), "at its peak")
    if before.host_bytes and after.host_bytes:
        yield Figure("host memory", size(before.host_bytes), size(after.host_bytes), "at its peak")
    if before.busy is not None and after.busy is not None:
        yield Figure("GPU busy", percent(before.busy), percent(after.busy), "of the time")


def summary(verdict: Verdict, style: Style, height: int = _HEIGHT, to_do: str = "") -> str:
    """The summary: on a terminal at most `height` lines, cropped; elsewhere whole.

    It begins with `to_do`, or else with advice.
    """
    width = style.width or sys.maxsize
    height = height if style.width else sys.maxsize
    device = f"on {verdict.device}" if verdict.device else ""
    torch = f"torch {verdict.environment['torch']}" if "torch" in verdict.environment else ""
    where = ", ".join(filter(None, [device, torch, verdict.date[:10]]))
    look = _LOOKS.get(verdict.outcome, "bold red")
    most = _SENTENCE if style.width else None
    words = wrap(printable(sentence(verdict)), style.width or _WIDTH, max_lines=most, placeholder=_CUT)
    head = [style.paint(look, _cropped(to_do or advice(verdict), width))]
    head += (_cropped(line, width) for line in (*words, verdict.program, where))
    rows = (f"  {each.name:<11}  {each.before:>7} -> {each.after:<7}  {each.note}" for each in figures(verdict))
    measured = [_cropped(row.rstrip(), width) for row in rows]
    excluded = [_cropped(line, width) for line in _excluded(verdict.excluded, most=_EXCLUDED if style.width else None)]
    room = height - sum(len(block) + 1 for block in (head, measured, excluded) if block)
    blocks = (head, measured, _fixes(verdict.fixes, style, width, room), excluded)
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks if block)


def _fixes(fixes: Sequence[FixVerdict], style: Style, width: int, room: int) -> list[str]:
    kept = sum(fix.kept for fix in fixes)
    if not fixes or room < 2:
        return []
    lines = [f"{kept} of {count(len(fixes), 'fix', 'fixes')} kept"]
    ordered = sorted(fixes, key=lambda fix: (not fix.kept, -fix.gain.ratio if fix.gain else 0))
    shown = ordered if len(ordered) < room else ordered[: room - 2]
    for fix in shown:
        mark = style.paint("green", "+") if fix.kept else style.paint("red", "-")
        lines.append(f"  {mark} {_cropped(_fix(fix, whole=not style.width), width - 4)}")
    if len(shown) < len(ordered):
        lines.append(f"    and {len(ordered) - len(shown)} more in the report")
    return lines


def _fix(fix: FixVerdict, *, whole: bool) -> str:
    gain = ratio(fix.gain.ratio) if fix.gain else "-"
    rule, _, path = printable(fix.place).partition(" ")
    room = max(_PLACE - cells(rule) - 1, _LEAST_PATH)
    end = path if whole else crop(path, max(0, cells(path) - room), room)  # which tells more than its beginning
    shown = f"{rule} {end}".rstrip()
    kept = f"{fix.likeness.grade}, gains with others" if fix.is_joint else str(fix.likeness.grade)
    return f"{gain:>6}  {shown}  {kept if fix.kept else fix.reason}"


def _excluded(sentences: Sequence[str], most: int | None) -> list[str]:
    shown = sentences[:most] if most and len(sentences) > most + 1 else sentences
    more = [f"and {len(sentences) - len(shown)} more in the report"] if len(shown) < len(sentences) else []
    return ["remarks", *(f"  {line}" for line in (*shown, *more))] if sentences else []


def _cropped(text: str, width: int) -> str:
    whole = printable(text)
    shown = crop(whole, 0, width)
    words, _, part = shown.rpartition(" ")
    return f"{words}{_CUT}" if shown != whole and words.strip() and cells(part) < _WORD else shown


def wrong(fix: FixVerdict, own: Grade) -> str:
    if not fix.activations:
        return fix.reason or "it never ran"
    if fix.likeness.keeps(fix.safety, own):
        return ""
    evidence = next(iter(fix.likeness.evidence), f"the results are {fix.likeness.grade}")
    if fix.likeness.grade is Grade.UNKNOWN:
        return evidence
    return f"it promised {fix.safety} results, but {evidence}"


def merit(fix: FixVerdict) -> str:
    alone = f"{ratio_with_interval(fix.alone)} alone" if fix.alone else ""
    on_top = f"{ratio_with_interval(fix.on_top)} on top of the others" if fix.on_top else ""
    interaction = ""
    if fix.alone and fix.on_top and fix.on_top.low > fix.alone.high:
        interaction = "gains more beside the others"
    elif fix.alone and fix.on_top and fix.on_top.high < fix.alone.low:
        interaction = "gains less beside the others"
    return ", ".join(filter(None, [alone, on_top, interaction]))


def joint_merit(fix: FixVerdict, gain: Estimate | None) -> str:
    others = "the others that gain little alone" if fix.alone else "the others, there was no time to race each"
    return f"{ratio_with_interval(gain)} together with {others}" if gain else ""


def too_little(fix: FixVerdict, last: Estimate | None, *, was_chosen: bool) -> str:
    if was_chosen and last and not is_short(last):
        return f"its gain was not seen again: {ratio_with_interval(last)}"
    if fix.on_top and statistics.is_slower(fix.on_top, 0.0):
        return f"the patch is faster without it: {ratio_with_interval(fix.on_top)}"
    if gain := (last if was_chosen else fix.gain) or last:
        is_none = statistics.rules_out(gain, 0.0) or gain.rounds < statistics.LEAST_ROUNDS
        told = "no gain was measured" if is_none else "a gain can't be told from noise"
        said = "there was no time for enough rounds" if is_short(gain) else told
        return f"{said}: {ratio_with_interval(gain)}"
    return "there was no time to race it"


def is_short(gain: Estimate) -> bool:
    return gain.rounds < statistics.LEAST_ROUNDS and gain.ratio > 1
