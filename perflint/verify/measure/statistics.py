"""How much faster one variant is than another, how sure that is, and when it is sure enough to be called faster.

The windows of one process share its luck: where its memory came to lie, on which cores it runs, how warm the device
was. A hundred pairs of windows of the same two processes are therefore worth hardly more than ten, and only fresh
processes tell how large that luck is. So every round gives one number, the median of its paired ratios, and the
interval is Student's over the rounds, in logarithms. In simulated races it covers the truth in 95 of 100 with three
rounds as with eight, while a bootstrap that draws rounds and then pairs covers it in 84 to 91 with three. How many
rounds find what gain: `python -m tests.bench.protocols`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import atan, cos, exp, inf, log, pi, sin, sqrt
from statistics import fmean, median, stdev

from perflint.verify.measure.samples import AGAIN, ORIGINAL, ORIGINALS, Samples
from perflint.verify.outcome import Outcome

LEAST_GAIN = 1.02  # what is less is not worth a change, nor can it be told from noise in a few minutes
SOUGHT_GAIN = 1.05  # what a race is to find; where this can be ruled out, there is nothing to gain
LEAST_ROUNDS = 3  # two are alike by chance too often: more than 1 % of identical programs were called faster
_INSIDE = 0.975  # the quantile of an interval that covers 95 %


@dataclass(frozen=True)
class Estimate:
    """How many times as fast the second of two variants is, with its 95 % interval, from `pairs` of windows."""

    ratio: float
    low: float
    high: float
    pairs: int
    rounds: int


def compare(samples: Samples, before: Sequence[str], after: Sequence[str]) -> Estimate | None:
    """How much faster the variant `after` is than `before`; None where no window of one pairs with one of the other.

    Several variants on one side stand for one program that was measured more than once: their mean counts. The
    interval of fewer than three rounds is unbounded, for they say next to nothing about other processes.
    """
    rounds = pair_ratios(samples, before, after)
    if not rounds:
        return None
    medians = [median(map(log, ratios)) for ratios in rounds.values()]
    middle, reach = fmean(medians), _reach(medians)
    pairs = sum(map(len, rounds.values()))
    return Estimate(exp(middle), exp(middle - reach), exp(middle + reach), pairs, len(rounds))


def pair_ratios(samples: Samples, before: Sequence[str], after: Sequence[str]) -> Mapping[int, list[float]]:
    """For each round how much faster `after` was in each of its pairs of windows."""
    times = {
        (window.variant, window.round, window.number): log(window.seconds / window.steps) for window in samples.windows
    }
    rounds: dict[int, list[float]] = {}
    for round_, number in dict.fromkeys((window.round, window.number) for window in samples.windows):
        sides = [[times.get((variant, round_, number)) for variant in side] for side in (before, after)]
        first, second = (_mean(side) for side in sides)
        if first is not None and second is not None:
            rounds.setdefault(round_, []).append(exp(first - second))
    return rounds


def itself(samples: Samples) -> Estimate | None:
    """The original against itself."""
    return compare(samples, [ORIGINAL], [AGAIN])


def against_original(samples: Samples, variant: str) -> Estimate | None:
    """How much faster `variant` is than the original, which every race measures twice."""
    return compare(samples, ORIGINALS, [variant])


def noise_floor(aa: Estimate) -> float:
    """How far from 1 the same program appears to be against itself, by the estimate `aa` of the same race."""
    return max(aa.ratio, 1 / aa.ratio) - 1


def speed(estimate: Estimate, floor: float) -> Outcome:
    """What the estimate says, by the noise floor of its race."""
    if is_faster(estimate, floor):
        return Outcome.FASTER
    if is_slower(estimate, floor):
        return Outcome.SLOWER
    return Outcome.LEVEL if estimate.high < SOUGHT_GAIN else Outcome.UNSURE


def is_decided(estimate: Estimate, floor: float) -> bool:
    """May a race end before its last round, for a gain or loss that leaves no doubt?

    Ending it for anything less would give chance as many tries as there are rounds.
    """
    clear = threshold(floor, SOUGHT_GAIN)
    return estimate.low > clear or estimate.high < 1 / clear


def is_faster(estimate: Estimate, floor: float) -> bool:
    """Is all of the interval above what noise makes of identical programs, and worth having?"""
    return estimate.low > threshold(floor)


def is_slower(estimate: Estimate, floor: float) -> bool:
    """Is the loss as sure as the gain has to be for `is_faster`?"""
    return estimate.high < 1 / threshold(floor)


def threshold(floor: float, least: float = LEAST_GAIN) -> float:
    """What the lower end of an interval has to exceed."""
    return max(1 + floor, least)


def step_seconds(samples: Samples, variants: Sequence[str]) -> float | None:
    """The median time of a step of the variants; None where none was measured."""
    times = [window.seconds / window.steps for window in samples.windows if window.variant in variants]
    return median(times) if times else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _reach(medians: Sequence[float]) -> float:
    """Half of the interval around the mean of `medians`."""
    rounds = len(medians)
    if rounds < LEAST_ROUNDS:
        return inf
    return student(_INSIDE, rounds - 1) * stdev(medians) / sqrt(rounds)


@cache
def student(share: float, freedom: int) -> float:
    """The value that Student's t with so many degrees of freedom is below in a share of all cases, more than half."""
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 2 * share - 1 else (low, middle)
    return high


def _within(value: float, freedom: int) -> float:
    """How often Student's t lies between -value and value (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle, is_odd = atan(value / sqrt(freedom)), freedom % 2
    term = total = cos(angle) if is_odd else 1.0
    for number in range(2 + is_odd, freedom, 2):
        term *= cos(angle) ** 2 * (number - 1) / number
        total += term
    total *= sin(angle) * (freedom > 1)
    return 2 / pi * (angle + total) if is_odd else total
