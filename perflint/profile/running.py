"""Profiles a program: runs it unmodified, has its processes record some steps, makes the profile of these."""

from __future__ import annotations

import datetime
import math
import os
import signal
import site
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perflint.documents import digest
from perflint.profile import record
from perflint.profile.partition import Division, Host, Place, divide
from perflint.profile.record import AGENT, STEPS, Fetches, Node, Orders, Record
from perflint.profile.result import Fact, LineCost, Profile, Rank
from perflint.profile.roofline import Regime, roofline
from perflint.shim.hooks import tallied
from perflint.shim.plan import Plan
from perflint.shim.session import ALSO
from perflint.verify import forks, processes
from perflint.verify.messages import Program
from perflint.verify.processes import Guardian
from perflint.verify.running import started

_GLANCE = 0.2  # seconds
_EMPTY = Plan("", {}, (), (), {}, False, False, "")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ran:
    """What a program left: exit code, records of ranks and workers, steps by kind.

    It `is_interrupted` if the user or a full record ended it.
    """

    code: int
    records: tuple[Record, ...]
    workers: tuple[Fetches, ...]
    steps: dict[str, int]
    is_interrupted: bool


@dataclass(frozen=True)
class Manner:
    """How a program is run: until its record is full if it `stops`, for `seconds` at most.

    When stopped it has `patience` seconds to end by itself. `stdout` and `stderr` are as for subprocess.Popen. It is a
    fork of a process with `libraries` imported, unless these are None.
    """

    stops: bool = False
    seconds: float = math.inf
    patience: float = 10.0
    stdout: int | None = None
    stderr: int | None = None
    libraries: tuple[str, ...] | None = None


def run(program: Program, orders: Orders, tell: Tell, guardian: Guardian, manner: Manner) -> Ran:
    folder = tempfile.mkdtemp(prefix="run-", dir=guardian.folder)
    guardian.watch(folder)
    place = Path(folder)
    process = started(  # in a session of its own: an interrupt is passed on
        program,
        _EMPTY,
        replace(orders, libraries=_libraries()),
        folder,
        {"KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"), ALSO: AGENT},
        stdout=manner.stdout,
        stderr=manner.stderr,
        libraries=() if os.environ.get(forks.SERVER) else manner.libraries,
    )
    interrupted = _wait(process, place, tell, manner)
    processes.kill(folder)
    steps = {each.name: each.times for each in tallied(place, STEPS)}
    found = tuple(record.records(place)), tuple(record.workers(place))
    return Ran(process.wait(), *found, steps, interrupted)


def _wait(process: subprocess.Popen[Any], folder: Path, tell: Tell, manner: Manner) -> bool:
    is_told, begin = False, time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(_GLANCE)
            is_complete = not is_told and record.is_complete(folder)
            if is_complete and manner.stops:
                tell("its steps are recorded; it is ended by an interrupt, which it may tell of")
            if (is_complete and manner.stops) or time.monotonic() - begin > manner.seconds:
                return _interrupt(process, manner.patience)
            if is_complete:
                is_told = True
                tell("its steps are recorded; it goes on to its end, or until Ctrl-C")
    except KeyboardInterrupt:
        return _interrupt(process, manner.patience)
    return False


def _interrupt(process: subprocess.Popen[Any], patience: float) -> bool:
    with suppress(KeyboardInterrupt):
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(patience)
                break
    return True


def _libraries() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | {*site.getsitepackages(), site.getusersitepackages()}
    torch = find_spec("torch")
    if torch and torch.origin:
        folders.add(str(Path(torch.origin).parents[1]))
    return tuple(sorted(f"{folder}{os.sep}" for folder in {*folders, str(Path(__file__).parents[1])} if folder))


_KERNEL_LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel")
_ROUGH = 2.5  # times as long
_LEAST_RECORDED = 0.95  # of the kernels that were launched

_LAUNCHES = ("Launch", "Memcpy", "Memset")
_LEAST_MS = 1e-4  # of a line that is kept
_MOST = 2000


def profile_of(program: str, records: Sequence[Record], workers: Sequence[Fetches]) -> Profile | None:
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
        _digests(record, (*lines, *made)),
        len(workers),
        statistics.median(batches) * 1e3 if batches else 0.0,
        worker_lines(workers),
        ranks if len(ranks) > 1 else (),
        tuple(Fact(*key, tuple(sorted(seen))) for key, seen in sorted(record.facts.items())),
        (*record.notes, *_notes(record, division)),
    )


def _rank(rank: int, division: Division) -> Rank:
    waits = division.shares[Regime.COMMUNICATION] * division.seconds
    return Rank(rank, division.seconds * 1e3, waits * 1e3)


def slowest(ranks: Iterable[Rank]) -> Rank:
    """The rank that others wait for: all steps take as long, and the last to come waits least."""
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


def _digests(record: Record, lines: Iterable[LineCost]) -> dict[str, str]:
    paths = {each.path for each in lines} | {path for path, _, _ in record.facts}
    files = filter(os.path.isfile, sorted(paths))  # code may have names that are no paths
    return {path: digest(Path(path).read_bytes()) for path in files}


class _Costs(dict[Place, LineCost]):
    def __missing__(self, place: Place) -> LineCost:
        made = self[place] = LineCost(*place)
        return made

    def add(self, place: Place, regime: str, seconds: float, *, called: bool = False) -> None:
        costs = self[place].total if called else self[place].own
        costs[regime] = costs.get(regime, 0.0) + seconds * 1e3

    def known(self) -> list[LineCost]:
        return sorted(
            (each for each in self.values() if each.path), key=lambda each: (-each.own_ms, each.path, each.line)
        )


def line_costs(record: Record, division: Division) -> tuple[LineCost, ...]:
    sums = _Costs()
    for cell in division.cells:
        chain = list(_chain(record.nodes, cell.node))
        for place in dict.fromkeys((node.path, node.line) for node in chain):
            sums.add(place, cell.regime.value, cell.seconds, called=True)
        for node in chain[:1]:
            sums.add((node.path, node.line), cell.regime.value, cell.seconds)
    for node in record.nodes:
        sums[node.path, node.line].function = node.function
    _add_work(record, sums, division)
    return tuple(sums.known()[:_MOST])


def _chain(nodes: Sequence[Node], node: int) -> Iterator[Node]:
    while node > 0:
        yield nodes[node]
        node = nodes[node].parent


def _add_work(record: Record, sums: _Costs, division: Division) -> None:
    steps = max(len(division.windows), 1)
    host, launches = Host(record), record.launches

    def at(moment: int) -> LineCost:
        node = record.nodes[host.node(moment)]
        return sums[node.path, node.line]

    for call in record.calls:
        if division.counts(call.begin) and any(word in call.name for word in _LAUNCHES):
            at(call.begin).launches += 1 / steps
    for work in record.work:
        launched = launches.get(work.link, work.begin)
        if division.counts(launched):
            line = at(launched)
            line.device_ms += (work.end - work.begin) / 1e6 / steps
            if work.name.startswith("Memcpy") and "DtoD" not in work.name:
                line.copies += 1 / steps
                line.pageable += ("Pageable" in work.name) / steps
    for first, last, node in (part for window in division.windows for part in host.lines(*window)):
        line = sums[record.nodes[node].path, record.nodes[node].line]
        line.host_ms += (last - first) / 1e6 / steps / division.slowdown


def made_costs(division: Division) -> tuple[LineCost, ...]:
    sums = _Costs()
    for cell in division.cells:
        sums.add(cell.owner, cell.regime.value, cell.seconds)
    return tuple(sums.known())


def worker_lines(workers: Iterable[Fetches]) -> tuple[LineCost, ...]:
    looked = [each for each in workers if each.by_node]
    sums = _Costs()
    for each in looked:
        for number, seconds in each.by_node.items():
            node = each.nodes[number]
            sums[node.path, node.line].function = node.function
            sums.add((node.path, node.line), Regime.INPUT.value, seconds / len(looked))
    return tuple(each for each in sums.known() if each.own_ms > _LEAST_MS)
