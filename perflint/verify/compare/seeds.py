"""Compares a program's runs with several seeds to those of another, which draws other random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from perflint.verify.compare.alike import Traits, alike
from perflint.verify.compare.data import misread, repeated, unsteady
from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.compare.judge import ends
from perflint.verify.compare.same import compare, reads, traits
from perflint.verify.compare.texts import words
from perflint.verify.measure.race import Recorded

Runs = Sequence[Recorded]  # with the seeds 1, 2, 3, ...


def over_seeds(before: Runs, after: Runs, stirred: Recorded) -> Likeness:
    """How alike the runs of two programs are; `stirred` is the first one `before` with other samples drawn."""
    for seed, (old, new) in enumerate(zip(before, after, strict=True), 1):
        if parted := (*ends(old, new), *compare(old.folder, new.folder).parted):
            return Likeness(Grade.DIFFERENT, tuple(f"with seed {seed}: {each}" for each in parted))
    if others := tuple(_others(before, after, stirred)):
        return Likeness(Grade.DIFFERENT, others)
    return alike([_traits(run.folder) for run in before], [_traits(run.folder) for run in after])


def _others(before: Runs, after: Runs, stirred: Recorded) -> Iterator[str]:
    """What is no number and differs."""
    yield from misread(
        [reads(run.folder) for run in before], [reads(run.folder) for run in after], reads(stirred.folder)
    )
    yield from unsteady(
        "what it prints, but for numbers,", *([words(run.output) for run in runs] for runs in (before, after))
    )
    yield from unsteady("which files it writes", *([frozenset(run.files) for run in runs] for runs in (before, after)))


def _traits(folder: Path) -> Traits:
    again = repeated(reads(folder))
    return traits(folder) | ({} if again is None else {"the share of samples that were read before": again})
