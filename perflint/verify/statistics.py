"""Paired ratios of step times, their confidence intervals, and when they prove a program faster.

The windows of one process share its luck: where its memory lies, on which cores it runs, how warm the device was. A
hundred pairs of the same two processes are worth hardly more than ten. So every round, of fresh processes, gives one
number, the median of its paired ratios, and the interval is Student's over the rounds, in logarithms. Three numbers
alike by chance would make it too narrow: so the spread of a ratio is never less than it is together with that of the
original against itself in the same rounds. How often that is right: `python -m tests.bench.protocols`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property
from math import atan, cos, exp, inf, log, pi, sin, sqrt
from statistics import fmean, median, variance

ORIGINAL, AGAIN, PATCHED = "original", "original again", "patched"  # every race holds these
ORIGINALS = (ORIGINAL, AGAIN)  # the same program twice: their difference is noise
KEPT, WHOLE = "the fixes kept so far", "all fixes"  # variants of a patch that is being chosen
LEAST_GAIN = 1.02  # less is not worth a change, nor can it be told from noise in a few minutes
SOUGHT_GAIN = 1.05  # what a race is to find; where it can be ruled out, there is nothing to gain
LEAST_ROUNDS = 3  # two are alike by chance too often: more than 1 % of identical programs were called faster
FAR, _FARTHER = 2.0, 4.0  # times as fast: two rounds show it, and one
_SPREAD, _WORTH = 0.3, 2  # of processes where fewer rounds can't tell, in logarithms, and how many numbers that counts
_INSIDE = 0.975  # the quantile of an interval that covers 95 %
_POOLED = 0.99  # the same where the spread is pooled, twice as many numbers, of which the patch may be the noisier half


class Outcome(str, Enum):
    """The outcome of a verification; that of a race is one of the first four."""

    FASTER = "faster"  # and, as a verdict, the same: the only success
    SLOWER = "slower"
    LEVEL = "nothing to gain"  # a gain of 5 % is ruled out
    UNSURE = "can't tell"
    DIFFERENT = "different"
    UNCHECKED = "not checkable"
    UNFIXED = "nothing to fix"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Window:
    """`steps` consecutive steps of one variant in `seconds` (> 0), from idle device to idle device.

    Each round has one process for each variant. Windows of a round with the same `number` are the same steps, measured
    in turn, and paired. Of several ranks, the slowest counts.
    """

    variant: str
    round: int
    number: int
    seconds: float
    steps: int

    def __post_init__(self) -> None:
        if not (0 < self.seconds < inf and self.steps > 0):
            raise ValueError(f"no window has {self.steps} steps in {self.seconds} s")


@dataclass(frozen=True)
class Samples:
    windows: tuple[Window, ...] = ()

    @cached_property
    def logs(self) -> Mapping[tuple[str, int, int], float]:
        """Logarithms of the seconds of a step, by variant, round and number."""
        return {(each.variant, each.round, each.number): log(each.seconds / each.steps) for each in self.windows}

    def then(self, later: Samples) -> Samples:
        rounds = 1 + max((window.round for window in self.windows), default=-1)
        return Samples((*self.windows, *(replace(each, round=rounds + each.round) for each in later.windows)))


@dataclass(frozen=True)
class Estimate:
    """How many times as fast the second of two variants is, with its 95 % interval, from `pairs` of windows."""

    ratio: float
    low: float
    high: float
    pairs: int
    rounds: int


def subject(variant: str) -> str:
    if variant in ORIGINALS:
        return "the original"
    return f"the {variant} program" if variant == PATCHED else f"the program with {variant}"


def only(fix: str) -> str:
    return f"only {fix}"


def within(safety: str) -> str:
    return f"within {safety}"


def more(fix: str) -> str:
    return f"{KEPT}, and {fix}"


def speedup(samples: Samples, before: Sequence[str], after: Sequence[str]) -> Estimate | None:
    """How much faster the variant `after` is than `before`; None without pairs.

    Several variants on one side are one program measured repeatedly: their mean counts. With fewer than three rounds
    the interval is that of processes that differ widely, and of one pair it is unbounded.
    """
    ratios = pair_ratios(samples, before, after)
    if not ratios:
        return None
    medians, pairs = _medians(ratios), sum(map(len, ratios.values()))
    noise = _medians(pair_ratios(samples, ORIGINALS[:1], ORIGINALS[1:])) if {*before, *after} - {*ORIGINALS} else []
    share = (1 / len(before) + 1 / len(after)) / 2  # of the variance of one program against one other
    noise, middle = [sqrt(share) * each for each in noise], fmean(medians)
    if len(medians) >= LEAST_ROUNDS:
        reach = _reach(medians, noise)
    else:
        farthest = max(abs(log(each) - middle) for pairs_ in ratios.values() for each in pairs_)
        reach = max(_wide(medians, noise), farthest) if pairs > 1 else inf
    return Estimate(exp(middle), exp(middle - reach), exp(middle + reach), pairs, len(medians))


def _medians(ratios: Mapping[int, Sequence[float]]) -> list[float]:
    return [median(map(log, each)) for each in ratios.values()]


def _reach(values: Sequence[float], noise: Sequence[float]) -> float:
    """How far the mean of `values` may be from the truth, where `noise` should spread as they do."""
    own = variance(values)
    if len(noise) < LEAST_ROUNDS:
        return student(_INSIDE, len(values) - 1) * sqrt(own / len(values))
    freedom = len(values) + len(noise) - 2
    pooled = ((len(values) - 1) * own + (len(noise) - 1) * variance(noise)) / freedom
    return student(_POOLED, freedom) * sqrt(max(own, pooled) / len(values))


def _wide(values: Sequence[float], noise: Sequence[float]) -> float:
    """The same of so few `values` that a large spread is assumed to have been seen."""
    freedom = _WORTH + len(noise) + len(values) - 1
    own = (variance(values) if len(values) > 1 else 0.0) * (len(values) - 1)
    squares = _WORTH * _SPREAD**2 + own + sum(each * each for each in noise)  # the mean of noise is known to be 0
    return student(_POOLED, freedom) * sqrt(squares / freedom / len(values))


def pair_ratios(samples: Samples, before: Sequence[str], after: Sequence[str]) -> Mapping[int, list[float]]:
    times = samples.logs
    rounds: dict[int, list[float]] = {}
    for round_, number in dict.fromkeys((window.round, window.number) for window in samples.windows):
        if all((variant, round_, number) in times for variant in (*before, *after)):
            first, second = (fmean([times[variant, round_, number] for variant in side]) for side in (before, after))
            rounds.setdefault(round_, []).append(exp(first - second))
    return rounds


def itself(samples: Samples) -> Estimate | None:
    return speedup(samples, [ORIGINAL], [AGAIN])


def against_original(samples: Samples, variant: str) -> Estimate | None:
    return speedup(samples, ORIGINALS, [variant])


def noise_floor(aa: Estimate | None) -> float:
    return max(aa.ratio, 1 / aa.ratio) - 1 if aa else 0.0


def speed(estimate: Estimate, floor: float) -> Outcome:
    if is_faster(estimate, floor):
        return Outcome.FASTER
    if is_slower(estimate, floor):
        return Outcome.SLOWER
    return Outcome.LEVEL if rules_out(estimate, floor) else Outcome.UNSURE


def rules_out(estimate: Estimate, floor: float) -> bool:
    """Whether a gain that is sought would have been seen, though noise of that floor had hidden a part of it."""
    return estimate.high * (1 + floor) < SOUGHT_GAIN


def drowns(floor: float) -> bool:
    """Whether the noise is as large as a gain that is sought: more rounds beside the same noise tell no more."""
    return 1 + floor >= SOUGHT_GAIN


def is_decided(estimate: Estimate, floor: float) -> bool:
    """Whether a clear gain or loss may end a race early; less would give chance a try in each round."""
    clear = threshold(floor, SOUGHT_GAIN)
    return estimate.low > clear or estimate.high < 1 / clear


def is_faster(estimate: Estimate, floor: float) -> bool:
    return estimate.low > threshold(floor)


def is_slower(estimate: Estimate, floor: float) -> bool:
    return estimate.high < 1 / threshold(floor)


def threshold(floor: float, least: float = LEAST_GAIN) -> float:
    return max(1 + floor, least)


def step_seconds(samples: Samples, variants: Sequence[str]) -> float | None:
    times = [window.seconds / window.steps for window in samples.windows if window.variant in variants]
    return median(times) if times else None


def rounds_for(gain: float) -> int:
    return 1 if gain >= _FARTHER else 2 if gain >= FAR else LEAST_ROUNDS


@cache
def student(share: float, freedom: int) -> float:
    """The quantile of Student's t with so many degrees of freedom, for a share of more than a half."""
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 2 * share - 1 else (low, middle)
    return high


def _within(value: float, freedom: int) -> float:
    """The probability that Student's t is between -value and value (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle, is_odd = atan(value / sqrt(freedom)), freedom % 2
    term = total = cos(angle) if is_odd else 1.0
    for number in range(2 + is_odd, freedom, 2):
        term *= cos(angle) ** 2 * (number - 1) / number
        total += term
    total *= sin(angle) * (freedom > 1)
    return 2 / pi * (angle + total) if is_odd else total


def are_decided(samples: Samples, variants: Sequence[str]) -> bool:
    pairs: list[tuple[Sequence[str], str]] = [(ORIGINALS, name) for name in variants]
    if variants[0] in (KEPT, PATCHED):
        pairs += [([variants[0]], name) for name in variants[1:]]
    estimates = [estimate for before, after in pairs if (estimate := speedup(samples, before, [after]))]
    floor = noise_floor(itself(samples))
    return bool(estimates) and all(is_decided(each, floor) for each in estimates)
