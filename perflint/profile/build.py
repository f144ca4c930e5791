"""Makes the profile of what all ranks and workers of a program have recorded."""

from __future__ import annotations

import datetime
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perflint.documents.digest import digest
from perflint.profile.kinds import Regime
from perflint.profile.lines import line_costs, made_costs, worker_lines
from perflint.profile.partition import Division, divide
from perflint.profile.record import Fetches, Record
from perflint.profile.result import Fact, LineCost, Made, Profile, Rank
from perflint.profile.roofline import roofline

_LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel")
_ROUGH = 2.5  # times as long
_LEAST_RECORDED = 0.95  # of the kernels that were launched


def profile_of(program: str, records: Sequence[Record], workers: Sequence[Fetches]) -> Profile | None:
    """The profile of a program; None where no step was traced."""
    divisions = {record.rank: divide(record) for record in records if len(record.marks) > 1}
    if not divisions:
        return None
    ranks = tuple(_rank(rank, division) for rank, division in sorted(divisions.items()))
    chosen = slowest(ranks).rank
    record, division = next(each for each in records if each.rank == chosen), divisions[chosen]
    lines, made = line_costs(record, division), made_costs(division)
    batches = [statistics.median(each.seconds) for each in workers if each.seconds]
    return Profile(
        program,
        datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        record.device,
        record.is_gpu,
        record.versions,
        record.unit,
        len(record.marks) - 1 - division.left_out,
        division.seconds * 1e3,
        division.slowdown,
        {} if record.is_blind else {regime.value: share for regime, share in division.shares.items()},
        lines,
        made,
        roofline(record),
        dict(_digests(_paths(record, lines, made))),
        len(workers),
        statistics.median(batches) * 1e3 if batches else 0.0,
        worker_lines(workers),
        ranks if len(ranks) > 1 else (),
        tuple(Fact(*key, tuple(sorted(seen))) for key, seen in sorted(record.facts.items())),
        (*record.notes, *_notes(record, division)),
        not record.is_complete,
    )


def _rank(rank: int, division: Division) -> Rank:
    waits = division.shares[Regime.COMMUNICATION] * division.seconds
    return Rank(rank, division.seconds * 1e3, waits * 1e3)


def slowest(ranks: Iterable[Rank]) -> Rank:
    """The rank that the others wait for: steps take all ranks as long, and the last to come waits least."""
    return max(ranks, key=lambda each: (each.step_ms - each.communication_ms, -each.rank))


def _notes(record: Record, division: Division) -> Iterator[str]:
    if division.slowdown >= _ROUGH and not record.is_blind:
        yield f"traced steps took {division.slowdown:.1f} times as long, so shares are rough: let nothing else run"
    if division.left_out:
        yield f"{division.left_out} of the traced steps took far longer than the others and are left out"
    launched = [call.link for call in record.calls if any(word in call.name for word in _LAUNCHES)]
    recorded = {work.link for work in record.work}
    missing = sum(link not in recorded for link in launched)
    if launched and missing > (1 - _LEAST_RECORDED) * len(launched):
        yield f"{missing} of {len(launched)} kernels are missing in the trace: work is underrated"


def _paths(record: Record, lines: Iterable[LineCost], made: Iterable[Made]) -> set[str]:
    """The files that a profile is about."""
    return {each.path for each in lines} | {each.path for each in made} | {path for path, _, _ in record.facts}


def _digests(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in sorted(paths):
        if os.path.isfile(path):  # noqa: PTH113  # code may have names that are no paths
            yield path, digest(Path(path).read_bytes())
