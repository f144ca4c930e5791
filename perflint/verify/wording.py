"""The words and numbers of a verdict for humans: the one sentence that sums it up, ratios, times and sizes."""

from __future__ import annotations

import math

from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.measure.statistics import Estimate
from perflint.verify.outcome import Outcome
from perflint.verify.verdict import Reach, Verdict

_LIKENESS = {
    Grade.BITWISE: "gives bitwise the same results",
    Grade.ROUNDING: "gives the same results but for rounding",
    Grade.ALIKE: "gives statistically the same results",
}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ("B", "kB", "MB", "GB", "TB")


def sentence(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    outcome = verdict.outcome
    if outcome is Outcome.FAILED:
        return closed(f"No verdict: {verdict.failure}")
    if outcome is Outcome.UNFIXED:
        return "Nothing to fix: perflint has no fix for this program."
    if outcome is Outcome.UNCHECKED:
        return closed(f"No verdict: whether the results stay the same can't be checked{_why(verdict)}")
    if outcome is Outcome.DIFFERENT:
        return closed(f"Rejected: the patch changes the results{_because(verdict.likeness)}")
    return _sentence_on_speed(verdict, f"the patched program {_LIKENESS[verdict.likeness.grade]}{_over(verdict.reach)}")


def _over(reach: Reach) -> str:
    return "" if reach.is_whole or not reach.steps else f" over the first {count(reach.steps, 'step')}"


def _sentence_on_speed(verdict: Verdict, same: str) -> str:
    if verdict.speed is None:
        return f"Can't tell: {same}, but its speed was not measured."
    if verdict.strangers:
        others = ", ".join(map(str, verdict.strangers))
        return f"Can't tell: {same}, but how fast it is can't be measured while others use the GPU: {others}."
    as_fast = f"{ratio_with_interval(verdict.speed)} as fast"
    match verdict.outcome:
        case Outcome.FASTER:
            return f"Faster: {same} and is {as_fast}."
        case Outcome.SLOWER:
            return f"Rejected: {same} but is only {as_fast}."
        case Outcome.LEVEL:
            return f"Nothing to gain: {same} and is {as_fast}."
    return f"Can't tell: {same} and is {as_fast}, which may be noise: a longer race may tell."


def _why(verdict: Verdict) -> str:
    return _because(verdict.own if verdict.own.grade is Grade.UNKNOWN else verdict.likeness)


def _because(likeness: Likeness) -> str:
    return f": {likeness.evidence[0]}" if likeness.evidence else ""


def closed(text: str) -> str:
    """A sentence with its full stop, which what it quotes may have brought along."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def ratio_with_interval(estimate: Estimate) -> str:
    """Such as `1.52x (1.49 to 1.55)`."""
    return f"{ratio(estimate.ratio)} ({interval(estimate)})"


def interval(estimate: Estimate) -> str:
    """The 95 % interval, such as `1.49 to 1.55`."""
    if math.isinf(estimate.high):
        return f"from {count(estimate.rounds, 'round')} only"
    return f"{_number(estimate.low)} to {_number(estimate.high)}"


def ratio(value: float) -> str:
    """Such as `1.52x` or `12.3x`."""
    return f"{_number(value)}x"


def seconds(value: float) -> str:
    """Such as `9.31 ms`."""
    scale, unit = next((each for each in _UNITS if value >= each[0]), _UNITS[-1])
    return f"{_digits(value / scale)} {unit}"


def size(number: int) -> str:
    """Bytes, such as `2.03 GB`."""
    power = min(max(len(str(number)) - 1, 0) // 3, len(_SIZES) - 1)
    return f"{_digits(number / 1000**power)} {_SIZES[power]}"


def percent(share: float) -> str:
    """Such as `96 %`."""
    return f"{100 * share:.0f} %"


def _number(value: float) -> str:
    """A ratio: to the hundredth, so that those beside each other compare, and to three digits where it is large."""
    return f"{value:.2f}" if value < 10 else _digits(value)


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if 0 < value < 1000 else f"{value:.0f}"


def count(number: int, one: str, more: str = "") -> str:
    """Such as `1 fix` or `2 fixes`."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"
