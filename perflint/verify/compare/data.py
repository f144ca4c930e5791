"""Which samples a program has read: how often, in what order, and whether they are what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

_ENOUGH = 32  # samples that are the same with other random numbers, so that they draw none


class Read(NamedTuple):
    """A batch that a loader has yielded, on a pass over the data set number `data`, which has `length` batches.

    `samples` are those that its sampler has asked for, empty where there is none. `columns` has a digest of every
    sample's part of each tensor, of those that have such parts.
    """

    number: int
    data: int
    length: int | None
    samples: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What tells its samples from each other: their places in the data set, or else what they are."""
        return self.samples or tuple(map("".join, zip(*self.columns, strict=True)))


Reads = Sequence[Read]  # of a run


def repeated(reads: Reads) -> float | None:
    """Which share of the samples of a run was read before; None where it has none."""
    names = [(read.data, name) for read in reads for name in read.names]
    return 1 - len(set(names)) / len(names) if names else None


def misread(before: Sequence[Reads], after: Sequence[Reads], stirred: Reads) -> Iterator[str]:
    """How runs of two programs with the same seeds have not read the same data, in whichever order.

    `stirred` is the first run `before` once more, with samples that draw other random numbers.
    """
    for words, trait in _TRAITS.items():
        yield from unsteady(words, [trait(run) for run in before], [trait(run) for run in after])
    fixed = _fixed(before[0], stirred)
    pairs = (_changed(old, new, fixed) for old, new in zip(before, after, strict=True))
    changed, common = (sum(numbers) for numbers in zip(*pairs, strict=True))
    if changed:
        yield f"over {len(before)} seeds {changed} of {common} samples are not what they are in the original"


def unsteady(words: str, before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[str]:
    """That a trait of runs with several seeds, which is no number, hangs on the seed or doesn't as it did `before`."""
    if len(set(before)) == 1 and {*after} != {*before}:
        yield f"{words} is not the original's, which is the same over {len(before)} seeds"
    elif len(set(before)) == len(before) > 1 == len(set(after)):
        yield f"{words} is the same over {len(before)} seeds, and in the original another with each"


def _sizes(reads: Reads) -> Hashable:
    return tuple((read.data, read.number, read.length, len(read.names)) for read in reads)


def _order(reads: Reads) -> Hashable:
    """The samples of the first pass over each data set: in later ones persistent workers draw other numbers."""
    first: dict[int, int] = {}
    for read in reads:
        first.setdefault(read.data, read.number)
    return tuple(read.samples for read in reads if read.number == first[read.data])


def _whole(reads: Reads) -> Hashable:
    """The samples of each pass that was not ended by the horizon, in no order."""
    passes: dict[int, list[Read]] = {}
    for read in reads:
        passes.setdefault(read.number, []).append(read)
    return tuple(
        (part[0].data, tuple(sorted(name for read in part for name in read.samples)))
        for part in passes.values()
        if len(part) == part[0].length
    )


_TRAITS = {
    "how many samples its batches have": _sizes,
    "the order of its samples": _order,
    "what samples an epoch has": _whole,
}


def _contents(reads: Reads) -> Mapping[tuple[int, str, int], str]:
    """What the sampled parts are, by data set, sample and column."""
    return {
        (read.data, name, number): part
        for read in reversed(reads)
        for number, column in enumerate(read.columns)
        for name, part in zip(read.samples, column, strict=False)
    }


def _fixed(run: Reads, stirred: Reads) -> set[tuple[int, int]]:
    """The columns of data sets that draw no random numbers."""
    old, new = _contents(run), _contents(stirred)
    common = old.keys() & new.keys()
    drawn = {(data, number) for data, name, number in common if old[data, name, number] != new[data, name, number]}
    seen = Counter((data, number) for data, _, number in common)
    return {column for column, count in seen.items() if column not in drawn and count >= _ENOUGH}


def _changed(before: Reads, after: Reads, fixed: set[tuple[int, int]]) -> tuple[int, int]:
    """How many samples are no longer what they were, and how many both have read."""
    old, new = _contents(before), _contents(after)
    common = [each for each in old.keys() & new.keys() if (each[0], each[2]) in fixed]
    changed = {(data, name) for data, name, number in common if old[data, name, number] != new[data, name, number]}
    return len(changed), len({(data, name) for data, name, _ in common})
