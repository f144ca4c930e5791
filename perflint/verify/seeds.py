"""Compares two programs over several seeds, where one draws other random numbers than the other.

Traits are alike by a test of equivalence whose margin is the original's own spread from seed to seed: that no
difference was found says nothing where few runs could have found one. With the same seed both programs start with the
same weights and mostly the same data, so their difference is known far better than each of them. Other random numbers
shift no trait. Another number format may shift all, with every seed by as little as it can tell from nothing. What it
breaks shows in the loss of the last steps, and at once in the weights: those that it doesn't move, as where small
updates are rounded away, will lose more than the few compared steps show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from perflint.syntax.walk import grouped
from perflint.verify.agent.recorder import Read
from perflint.verify.compare import LOGARITHMS, compare, reads, traits
from perflint.verify.judge import ends, words
from perflint.verify.runs import Recorded
from perflint.verify.statistics import student
from perflint.verify.verdict import Grade, Likeness

SEEDS = (6, 12, 24)  # as many are run, one number after the other, until there is an answer
_WITHIN, _BEYOND = 0.975, 0.9975  # quantiles for alike, and for different, in at most three answers
_ROUNDING = 1e-6  # of a value
_OF_FORMATS = 2**-7  # of a value: what bfloat16 can tell from 1
_ENOUGH = 32  # samples that are the same with other random numbers, so that they draw none

Runs = Sequence[Recorded]  # with the seeds 1, 2, 3, ...
Reads = Sequence[Read]
Traits = Mapping[str, float]


def over_seeds(before: Runs, after: Runs, other_samples: Recorded, *, formats: bool = False) -> Likeness:
    """How alike the runs of two programs are; `other_samples` is the first of `before` with other samples drawn.

    `formats`: they compute in other number formats.
    """
    for seed, (old, new) in enumerate(zip(before, after, strict=True), 1):
        if parted := (*ends(old, new), *compare(old.folder, new.folder).parted):
            return Likeness(Grade.DIFFERENT, tuple(f"with seed {seed}: {each}" for each in parted))
    if others := tuple(_others(before, after, other_samples)):
        return Likeness(Grade.DIFFERENT, others)
    told = ([_traits(run.folder, formats) for run in runs] for runs in (before, after))
    return alike(*told, formats=formats)


def _others(before: Runs, after: Runs, other_samples: Recorded) -> Iterator[str]:
    old, new = ([reads(run.folder) for run in runs] for runs in (before, after))
    yield from misread(old, new, reads(other_samples.folder))
    old_words, new_words = ([words(run.output) for run in runs] for runs in (before, after))
    yield from unsteady("what it prints, but for numbers,", old_words, new_words)
    old_files, new_files = ([frozenset(run.files) for run in runs] for runs in (before, after))
    yield from unsteady("which files it writes", old_files, new_files)


def _traits(folder: Path, formats: bool) -> Traits:
    again = repeated(reads(folder))
    return traits(folder, updates=formats) | (
        {} if again is None else {"the share of samples that were read before": again}
    )


def alike(before: Sequence[Traits], after: Sequence[Traits], *, formats: bool = False) -> Likeness:
    names = [name for name in before[0] if all(name in run for run in (*before, *after))]
    if not names:
        return Likeness(Grade.UNKNOWN, ("it has no losses, gradients or outputs that could be compared over seeds",))
    found = [_alike(name, [run[name] for run in before], [run[name] for run in after], formats) for name in names]
    worst = max((each.grade for each in found), key=(Grade.ALIKE, Grade.UNKNOWN, Grade.DIFFERENT).index)
    return Likeness(worst, tuple(sentence for each in found if each.grade is worst for sentence in each.evidence))


def _alike(name: str, before: Sequence[float], after: Sequence[float], formats: bool) -> Likeness:
    seeds = len(before)
    if not all(map(math.isfinite, (*before, *after))):
        return Likeness(Grade.DIFFERENT, (f"over {seeds} seeds {name} is not always finite",))
    differences = [new - old for old, new in zip(before, after, strict=True)]
    if not any(differences):
        return Likeness(Grade.ALIKE, (f"over {seeds} seeds {name} is the same",))
    shift, error = fmean(differences), stdev(differences) / math.sqrt(seeds)
    reach, margin = student(_WITHIN, seeds - 1) * error, stdev(before)
    size = 1.0 if name in LOGARITHMS else max(map(abs, before))
    least = (_OF_FORMATS if formats else _ROUNDING) * size
    said = f"over {seeds} seeds {name} differs by {shift:.2g} ({shift - reach:.2g} to {shift + reach:.2g})"
    if abs(shift) > student(_BEYOND, seeds - 1) * error + least:
        return Likeness(Grade.DIFFERENT, (f"{said}, which is no chance",))
    said = f"{said}, and from seed to seed by {margin:.2g}"
    if abs(shift) + reach > margin + least:
        return Likeness(Grade.UNKNOWN, (f"{said}, which is too little to tell",))
    return Likeness(Grade.ALIKE, (said,))


def unsteady(words: str, before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[str]:
    if len(set(before)) == 1 and {*after} != {*before}:
        yield f"{words} is not the original's, which is the same over {len(before)} seeds"
    elif len(set(before)) == len(before) > 1 == len(set(after)):
        yield f"{words} is the same over {len(before)} seeds, and in the original another with each"


def repeated(reads: Reads) -> float | None:
    names = [(read.data, name) for read in reads for name in read.names]
    return 1 - len(set(names)) / len(names) if names else None


def misread(before: Sequence[Reads], after: Sequence[Reads], other_samples: Reads) -> Iterator[str]:
    for what, trait in _DATA_TRAITS.items():
        yield from unsteady(what, [trait(run) for run in before], [trait(run) for run in after])
    fixed = _fixed(before[0], other_samples)
    pairs = (_changed(old, new, fixed) for old, new in zip(before, after, strict=True))
    changed, common = (sum(numbers) for numbers in zip(*pairs, strict=True))
    if changed:
        yield f"over {len(before)} seeds {changed} of {common} samples are not what they are in the original"


def _sizes(reads: Reads) -> Hashable:
    return tuple((read.data, read.number, read.length, len(read.names)) for read in reads)


def _order(reads: Reads) -> Hashable:
    """Samples of the first pass over each dataset: in later ones persistent workers draw other numbers."""
    first: dict[int, int] = {}
    for read in reads:
        first.setdefault(read.data, read.number)
    return tuple(read.samples for read in reads if read.number == first[read.data])


def _whole(reads: Reads) -> Hashable:
    return tuple(
        (part[0].data, tuple(sorted(name for read in part for name in read.samples)))
        for part in grouped((read.number, read) for read in reads).values()
        if len(part) == part[0].length
    )


_DATA_TRAITS = {
    "how many samples its batches have": _sizes,
    "the order of its samples": _order,
    "what samples an epoch has": _whole,
}


def _contents(reads: Reads) -> Mapping[tuple[int, str, int], str]:
    return {
        (read.data, name, number): part
        for read in reversed(reads)
        for number, column in enumerate(read.columns)
        for name, part in zip(read.samples, column, strict=False)
    }


def _fixed(run: Reads, other_samples: Reads) -> set[tuple[int, int]]:
    old, new = _contents(run), _contents(other_samples)
    common = old.keys() & new.keys()
    drawn = {(data, number) for data, name, number in common if old[data, name, number] != new[data, name, number]}
    seen = Counter((data, number) for data, _, number in common)
    return {column for column, count in seen.items() if column not in drawn and count >= _ENOUGH}


def _changed(before: Reads, after: Reads, fixed: set[tuple[int, int]]) -> tuple[int, int]:
    old, new = _contents(before), _contents(after)
    common = [each for each in old.keys() & new.keys() if (each[0], each[2]) in fixed]
    changed = {(data, name) for data, name, number in common if old[data, name, number] != new[data, name, number]}
    return len(changed), len({(data, name) for data, name, _ in common})
