"""Grades programs that draw other random numbers: alike where runs with several seeds show that they differ by little.

That is a test of equivalence, with the spread of the original from seed to seed as its margin: that no difference was
found tells nothing, where few runs could have found one. With the same seed both programs begin with the same weights
and mostly the same data, so that their difference is known far better than each of them. In simulations a program that
differs by chance alone is found alike in 98 of 100, in 3 of 4 if it shares nothing with the original but its level; one
that is worse by the margin in 6 of 100 at most, by twice as much in none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.measure.statistics import student

SEEDS = (6, 12, 24)  # as many are run, one number after the other, until there is an answer
_WITHIN, _BEYOND = 0.975, 0.9975  # quantiles: of what is taken for alike, and for different, in at most three answers
_ROUNDING = 1e-6  # of a value

Traits = Mapping[str, float]  # what a run is like, by name


def alike(before: Sequence[Traits], after: Sequence[Traits]) -> Likeness:
    """How alike two programs are by the traits of their runs, one run of each for every seed."""
    names = [name for name in before[0] if all(name in run for run in (*before, *after))]
    if not names:
        return Likeness(Grade.UNKNOWN, ("it has no losses, gradients or outputs that could be compared over seeds",))
    found = [_trait(name, [run[name] for run in before], [run[name] for run in after]) for name in names]
    worst = max((each.grade for each in found), key=(Grade.ALIKE, Grade.UNKNOWN, Grade.DIFFERENT).index)
    return Likeness(worst, tuple(sentence for each in found if each.grade is worst for sentence in each.evidence))


def _trait(name: str, before: Sequence[float], after: Sequence[float]) -> Likeness:
    seeds = len(before)
    if not all(map(math.isfinite, (*before, *after))):
        return Likeness(Grade.DIFFERENT, (f"over {seeds} seeds {name} is not always finite",))
    differences = [new - old for old, new in zip(before, after, strict=True)]
    if not any(differences):
        return Likeness(Grade.ALIKE, (f"over {seeds} seeds {name} is the same",))
    shift, error = fmean(differences), stdev(differences) / math.sqrt(seeds)
    reach, least, margin = student(_WITHIN, seeds - 1) * error, _ROUNDING * max(map(abs, before)), stdev(before)
    said = f"over {seeds} seeds {name} differs by {shift:.2g} ({shift - reach:.2g} to {shift + reach:.2g})"
    if abs(shift) > student(_BEYOND, seeds - 1) * error + least:
        return Likeness(Grade.DIFFERENT, (f"{said}, which is no chance",))
    said = f"{said}, and from seed to seed by {margin:.2g}"
    if abs(shift) + reach > margin + least:
        return Likeness(Grade.UNKNOWN, (f"{said}, which is too little to tell",))
    return Likeness(Grade.ALIKE, (said,))
