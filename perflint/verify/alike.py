"""Grades programs that draw other random numbers: alike where runs with several seeds differ by no more than chance.

With the same seed both have the same weights and mostly the same data, so that their difference tells far more than
how far runs are apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from perflint.verify.grade import Grade, Likeness

MOST_SEEDS, LEAST_SEEDS = 8, 5
_STUDENT = {5: 5.598, 6: 4.773, 7: 4.317, 8: 4.029}  # the 99.75 % quantile for so many seeds
_CLEAR = 3.0  # times the spread from seed to seed: where a difference is known no better, nothing is known
_WIDER = 8.0  # times as large a spread as the other's is no chance, with five seeds
_ROUNDING = 1e-6  # of a value

Traits = Mapping[str, float]  # what a run is like, by name


def alike(before: Sequence[Traits], after: Sequence[Traits]) -> Likeness:
    """How alike two programs are by the traits of their runs, one run of each for every seed."""
    names = [name for name in before[0] if all(name in run for run in (*before, *after))] if before else []
    if len(before) < LEAST_SEEDS:
        return Likeness(Grade.UNKNOWN, (f"{len(before)} seeds are too few to tell chance from change",))
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
    shift, reach = fmean(differences), _STUDENT[min(seeds, MOST_SEEDS)] * stdev(differences) / math.sqrt(seeds)
    old, new = stdev(before), stdev(after)
    least = _ROUNDING * max(map(abs, before))
    said = f"over {seeds} seeds {name} differs by {shift:.2g} ({shift - reach:.2g} to {shift + reach:.2g})"
    if abs(shift) > reach + least:
        return Likeness(Grade.DIFFERENT, (f"{said}, which is no chance",))
    if max(old, new) > _WIDER * min(old, new) + least:
        return Likeness(Grade.DIFFERENT, (f"over {seeds} seeds {name} spreads by {new:.2g}, and not {old:.2g}",))
    if reach > _CLEAR * old + least:
        return Likeness(Grade.UNKNOWN, (f"{said}, which is too wide to tell",))
    return Likeness(Grade.ALIKE, (f"{said}, and from seed to seed by {old:.2g}",))
