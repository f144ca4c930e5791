"""A verdict on the terminal: what matters of it, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from perflint.report.frame import cells, crop
from perflint.report.style import Style, printable
from perflint.verify.figures import Figure, figures
from perflint.verify.outcome import Outcome
from perflint.verify.verdict import FixVerdict, Verdict
from perflint.verify.wording import count, ratio, sentence

_WIDTH = 80  # where the output is not a terminal
_HEIGHT = 22  # of the smallest terminal, less a line for the prompt and one for where the report is
_EXCLUDED = 3  # of what is excluded, this much is shown
_SENTENCE = 4  # lines of it
_CUT = " ..."
_WORD = 20  # cells of one that is left out where a line is cut
_PLACE, _LEAST_PATH = 44, 20  # cells of a fix's rule and place together, and of its place at least
_LOOKS = {
    Outcome.FASTER: "bold green",
    Outcome.LEVEL: "bold",
    Outcome.UNFIXED: "bold",
    Outcome.UNSURE: "bold yellow",
}


def summary(verdict: Verdict, style: Style, height: int = _HEIGHT) -> str:
    """The lines of the summary, at most `height` of them, and none wider than the terminal."""
    width = style.width or _WIDTH
    names = [style.paint("bold", _cropped(verdict.program, width)), _cropped(_where(verdict), width)]
    words = wrap(printable(sentence(verdict)), width, max_lines=_SENTENCE, placeholder=_CUT)
    head = [*names, *(style.paint(_LOOKS.get(verdict.outcome, "bold red"), _cropped(line, width)) for line in words)]
    measured = [_cropped(_row(figure), width) for figure in figures(verdict)]
    excluded = [_cropped(line, width) for line in _excluded(verdict.excluded)]
    room = height - sum(len(block) + 1 for block in (head, measured, excluded) if block)
    blocks = (head, measured, _fixes(verdict.fixes, style, width, room), excluded)
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks if block)


def _where(verdict: Verdict) -> str:
    device = f"on {verdict.device}" if verdict.device else ""
    torch = f"torch {verdict.environment['torch']}" if "torch" in verdict.environment else ""
    return ", ".join(filter(None, [device, torch, verdict.date[:10]]))


def _row(figure: Figure) -> str:
    return f"  {figure.name:<11}  {figure.before:>7} -> {figure.after:<7}  {figure.note}".rstrip()


def _fixes(fixes: Sequence[FixVerdict], style: Style, width: int, room: int) -> list[str]:
    """How many fixes are kept, and each in a line, those kept first, as far as there is room."""
    kept = sum(fix.kept for fix in fixes)
    if not fixes or room < 2:
        return []
    lines = [f"{kept} of {count(len(fixes), 'fix', 'fixes')} kept"]
    ordered = sorted(fixes, key=lambda fix: (not fix.kept, -fix.gain.ratio if fix.gain else 0))
    shown = ordered if len(ordered) < room else ordered[: room - 2]
    for fix in shown:
        mark = style.paint("green", "+") if fix.kept else style.paint("red", "-")
        lines.append(f"  {mark} {_cropped(_fix(fix), width - 4)}")
    if len(shown) < len(ordered):
        lines.append(f"    and {len(ordered) - len(shown)} more in the report")
    return lines


def _fix(fix: FixVerdict) -> str:
    gain = ratio(fix.gain.ratio) if fix.gain else "-"
    rule, _, path = printable(fix.place).partition(" ")
    room = max(_PLACE - cells(rule) - 1, _LEAST_PATH)
    shown = f"{rule} {crop(path, max(0, cells(path) - room), room)}"  # a path's end tells more than its beginning
    kept = f"{fix.likeness.grade}, gains with others" if fix.is_joint else str(fix.likeness.grade)
    return f"{gain:>6}  {shown}  {kept if fix.kept else fix.reason}"


def _excluded(sentences: Sequence[str]) -> list[str]:
    shown = sentences[:_EXCLUDED] if len(sentences) > _EXCLUDED + 1 else sentences
    more = [f"and {len(sentences) - len(shown)} more in the report"] if len(shown) < len(sentences) else []
    return ["excluded", *(f"  {line}" for line in (*shown, *more))] if sentences else []


def _cropped(text: str, width: int) -> str:
    """`text` on one line of at most `width` cells, where it is cut at a word, if that is not too long."""
    whole = printable(text)
    shown = crop(whole, 0, width)
    words, _, part = shown.rpartition(" ")
    return f"{words}{_CUT}" if shown != whole and words.strip() and cells(part) < _WORD else shown
