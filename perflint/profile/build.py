"""Makes the profile of what all ranks and workers of a program have recorded."""

from __future__ import annotations

import datetime
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from perflint.documents import digest
from perflint.profile.kinds import Regime
from perflint.profile.partition import NOBODY, Division, Host, divide
from perflint.profile.record import Fetches, Node, Record
from perflint.profile.result import Fact, LineCost, Made, Profile, Rank, WorkerLine
from perflint.profile.roofline import roofline

_KERNEL_LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel")
_ROUGH = 2.5  # times as long
_LEAST_RECORDED = 0.95  # of the kernels that were launched

_LAUNCHES = ("Launch", "Memcpy", "Memset")
_LEAST_MS = 1e-4  # of a line that is kept
_MOST = 2000  # lines that are kept

Place = tuple[str, int]


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
    launched = [call.link for call in record.calls if any(word in call.name for word in _KERNEL_LAUNCHES)]
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


class _Sum:
    """What is added up for a line."""

    def __init__(self) -> None:
        self.function = ""
        self.own: defaultdict[str, float] = defaultdict(float)
        self.total: defaultdict[str, float] = defaultdict(float)
        self.launches = self.device = self.host = self.copies = self.pageable = 0.0


def line_costs(record: Record, division: Division) -> tuple[LineCost, ...]:
    """The costs of all lines in a step, the dearest first."""
    sums: defaultdict[Place, _Sum] = defaultdict(_Sum)
    for cell in division.cells:
        chain = list(_chain(record.nodes, cell.node))
        for place in dict.fromkeys((node.path, node.line) for node in chain):
            sums[place].total[cell.regime.value] += cell.seconds * 1e3
        for node in chain[:1]:
            sums[node.path, node.line].own[cell.regime.value] += cell.seconds * 1e3
    for node in record.nodes:
        sums[node.path, node.line].function = node.function
    _add_work(record, sums, division)
    costs = (
        LineCost(
            *place,
            each.function,
            dict(each.own),
            dict(each.total),
            each.launches,
            each.device,
            each.host,
            each.copies,
            each.pageable,
        )
        for place, each in sums.items()
        if place[0]
    )
    ran = sorted(costs, key=lambda each: (-each.own_ms, each.path, each.line))
    return tuple(ran[:_MOST])


def _chain(nodes: Sequence[Node], node: int) -> Iterator[Node]:
    """The lines from that of a node outwards."""
    while node > 0:
        yield nodes[node]
        node = nodes[node].parent


def _add_work(record: Record, sums: Mapping[Place, _Sum], division: Division) -> None:
    steps = max(len(record.marks) - 1, 1)
    host, calls = Host(record), {call.link: call for call in record.calls if call.link}
    begin, end = (record.marks[0], record.marks[-1]) if record.marks else (0, 0)

    def at(moment: int) -> _Sum:
        node = record.nodes[host.node(moment)]
        return sums[node.path, node.line]

    for call in record.calls:
        if begin <= call.begin < end and any(word in call.name for word in _LAUNCHES):
            at(call.begin).launches += 1 / steps
    for work in record.work:
        launched = calls[work.link].begin if work.link in calls else work.begin
        if begin <= launched < end:
            line = at(launched)
            line.device += (work.end - work.begin) / 1e6 / steps
            if work.name.startswith("Memcpy") and "DtoD" not in work.name:
                line.copies += 1 / steps
                line.pageable += ("Pageable" in work.name) / steps
    for first, last, node in host.lines(begin, end):
        line = sums[record.nodes[node].path, record.nodes[node].line]
        line.host += (last - first) / 1e6 / steps / division.slowdown


def made_costs(division: Division) -> tuple[Made, ...]:
    """What the loaders and optimizers cost, by the lines that made them."""
    sums: defaultdict[Place, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for cell in division.cells:
        if cell.owner != NOBODY:
            sums[cell.owner][cell.regime.value] += cell.seconds * 1e3
    return tuple(Made(*place, dict(sums[place])) for place in sorted(sums) if place[0])


def worker_lines(workers: Iterable[Fetches]) -> tuple[WorkerLine, ...]:
    """What lines cost in the workers of loaders, in milliseconds of a batch, the dearest first."""
    looked = [each for each in workers if each.by_node]
    sums: defaultdict[tuple[str, int, str], float] = defaultdict(float)
    for each in looked:
        for number, seconds in each.by_node.items():
            node = each.nodes[number]
            sums[node.path, node.line, node.function] += seconds * 1e3 / len(looked)
    found = (WorkerLine(*place, ms) for place, ms in sums.items() if place[0] and ms > _LEAST_MS)
    return tuple(sorted(found, key=lambda each: -each.batch_ms))
