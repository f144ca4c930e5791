"""Orders and records of a profile as plain data in files, and how events become records."""

from __future__ import annotations

import pickle
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from perflint.verify.agent.timeline import has, is_work, lag_of
from perflint.verify.messages import BACKWARD, BATCH, CALLS, OPTIMIZER, Undoable

AGENT = "perflint.profile.join"
STEPS = "steps"
KINDS = (OPTIMIZER, BATCH, BACKWARD, CALLS)  # of what may be a step, the best first
OPERATION_STEPS = 2  # whose operations are looked at in the end
LEAST = 4  # steps of a profile: to warm up, to time, to start the profiler in, to trace
_RECORD, _WORKER, _DONE = "record.", "worker.", "done."

TIMED, TRACED = 4.0, 1.5  # times the median that a step may take
_LEAST = 2_000_000  # nanoseconds above it
_AHEAD = 3.0  # times the median

_Key = tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...], tuple[Any, ...]]
Window = tuple[int, int]  # nanoseconds: the begin and the end of a step
_WORTH = ("Launch", "Memcpy", "Memset", "Synchronize")
_SHOWN = 8


@dataclass(frozen=True)
class Orders(Undoable):
    """Profile `steps` steps after `warm_up` others and `timed` ones; write a trace of some to a file, if named.

    Lines of files below `libraries` don't count. Steps are of the kind `unit`, if known.
    """

    steps: int
    warm_up: int
    timed: int
    libraries: tuple[str, ...] = ()
    trace: str = ""
    unit: str = ""

    @property
    def needed(self) -> int:
        return self.warm_up + self.timed + 1 + self.steps

    def within(self, unit: str, number: int) -> Orders:
        steps = max(1, min(self.steps, (number - OPERATION_STEPS - 1) // 4))
        timed = min(2 * steps, number - 2 - steps)
        warm_up = max(1, min(self.warm_up, number - OPERATION_STEPS - 2 - timed - steps))
        return replace(self, steps=steps, warm_up=warm_up, timed=timed, unit=unit)


class Span(NamedTuple):
    """What took from `begin` to `end`, in nanoseconds since 1970.

    A kernel and its launching call have the same `link`; `thread` is the system's number of one.
    """

    begin: int
    end: int
    name: str
    link: int = 0
    thread: int = 0


class Owned(NamedTuple):
    begin: int
    end: int
    path: str
    line: int


class Node(NamedTuple):
    """A line of a file, in a `function`, reached from the node number `parent`; -1 for none."""

    parent: int
    path: str
    line: int
    function: str


class Operation(NamedTuple):
    """Calls of an operation with inputs of these shapes and types, and the seconds of their kernels.

    `given` holds the numbers among its arguments, `kernel` names the longest kernel.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    given: tuple[Any, ...]
    kernel: str
    calls: int
    seconds: float


@dataclass
class Record:
    """What one rank has recorded: first steps are timed, then traced, then their operations looked at.

    `timed` are the ends of untraced steps, `marks` of traced ones, in nanoseconds since 1970; the first of each ends
    the step before. On a GPU, `work` is its work in traced steps and `calls` are CUDA calls; elsewhere `ops` are
    torch's operations. The `main` thread came at `times` to the lines of the nodes `at`. `fetches` are waits for
    loaders, also in timed steps; `optimizers` their steps. `operations` are those of `operation_steps` further steps.
    `settings` are torch's; `facts` what was seen of values by file, function and name. Where it `is_blind`, nothing but
    lines could be traced.
    """

    rank: int = 0
    ranks: int = 1
    unit: str = ""
    device: str = ""
    is_gpu: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    bandwidth: float = 0.0  # of the device's memory, in bytes/s, as torch tells; 0 if it doesn't
    main: int = 0
    timed: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    work: list[Span] = field(default_factory=list)
    calls: list[Span] = field(default_factory=list)
    ops: list[Span] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    fetches: list[Owned] = field(default_factory=list)
    optimizers: list[Owned] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    operation_steps: int = 0
    modules: list[str] = field(default_factory=list)  # the user's files that are loaded
    facts: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    is_blind: bool = False

    @property
    def is_complete(self) -> bool:
        return self.operation_steps > 0

    @property
    def launches(self) -> dict[int, int]:
        """When work was launched, by its link."""
        return {call.link: call.begin for call in self.calls if call.link}


class Fetches(NamedTuple):
    """A worker's batches: the seconds of each, and of one more by nodes, as in a `Record`."""

    seconds: list[float]
    nodes: list[Node]
    by_node: dict[int, float]


def save(run: Path, record: Record) -> None:
    _write(run / f"{_RECORD}{record.rank}", record)
    if record.is_complete:
        (run / f"{_DONE}{record.rank}").write_text(str(record.ranks))


def is_complete(run: Path) -> bool:
    done = [file.read_text() for file in run.glob(f"{_DONE}*")]
    return bool(done) and "" not in done and len(done) >= int(done[0])


def save_worker(run: Path, process: int, fetches: Fetches) -> None:
    _write(run / f"{_WORKER}{process}", fetches)


def records(run: Path) -> list[Record]:
    found: list[Record] = [pickle.loads(file.read_bytes()) for file in run.glob(f"{_RECORD}*[0-9]")]
    return sorted(found, key=lambda each: each.rank)


def worker_files(run: Path) -> list[Path]:
    return sorted(run.glob(f"{_WORKER}*[0-9]"))


def workers(run: Path) -> list[Fetches]:
    return [pickle.loads(file.read_bytes()) for file in worker_files(run)]


def _write(path: Path, value: object) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    beside.replace(path)


def usual(marks: Sequence[int], fetches: Sequence[Owned], most: float) -> list[Window]:
    """The steps between `marks` that take at most `most` times the median, or hardly more.

    Waits for batches come in bursts, and don't count. The last step ends with an idle device: if it is by far the
    longest, the host was ahead in the others, whose lengths say nothing.
    """
    steps = list(pairwise(marks))
    lengths = [end - begin - waited([(begin, end)], fetches) for begin, end in steps]
    *others, last = lengths or [0]
    middle = statistics.median(others or [last])
    if last > _AHEAD * middle:
        return steps
    longest = max(most * middle, middle + _LEAST)
    return [step for step, length in zip(steps, lengths, strict=True) if length <= longest]


def waited(windows: Sequence[Window], fetches: Sequence[Owned]) -> int:
    return sum(max(0, min(each.end, end) - max(each.begin, begin)) for begin, end in windows for each in fetches)


def mean(windows: Sequence[Window]) -> float:
    return sum(end - begin for begin, end in windows) / len(windows) if windows else 0.0


def keep_steps(record: Record, events: Sequence[Any], last: int) -> None:
    """Record what happened in the traced steps; after the nanosecond `last` the host waited for us."""
    begin = record.marks[0]
    if not record.is_gpu:
        ops = (event for event in events if event.duration_ns() > 0)
        record.ops = [_span(event) for event in ops if event.start_ns() + event.duration_ns() > begin]
        return
    device = sys.modules["torch"].autograd.DeviceType.CUDA
    work = [event for event in events if event.device_type() == device and is_work(event)]
    calls = [event for event in events if event.device_type() != device and has(event, _WORTH)]
    lag = lag_of(work, calls)
    record.work = [span for span in (_span(event, lag) for event in work) if span.end > begin]
    links = {span.link for span in record.work}
    spans = (_span(event) for event in calls if event.start_ns() < last)
    record.calls = [span for span in spans if span.end > begin or span.link in links]
    begun = (span.end for span in record.work if span.begin < record.marks[-1])
    record.marks[-1] = max(last, *begun, record.marks[-2] + 1)


def keep_operations(record: Record, events: Sequence[Any], steps: int) -> None:
    device = sys.modules["torch"].autograd.DeviceType.CUDA
    ops = [event for event in events if event.device_type() != device and event.shapes()]
    work: dict[int, list[tuple[int, str]]] = {}  # nanoseconds and names, by the numbers of operations
    if record.is_gpu:
        for event in events:
            if event.device_type() == device and is_work(event) and event.linked_correlation_id() > 0:
                work.setdefault(event.linked_correlation_id(), []).append((event.duration_ns(), event.name()))
    else:
        for begin, end, span in innermost(map(_span, ops)):
            work.setdefault(span.link, []).append((end - begin, span.name))
    totals: dict[_Key, list[Any]] = {}
    for op in ops:
        if launched := work.get(op.correlation_id()):
            total = totals.setdefault(_key(op), [max(launched)[1], 0, 0])
            total[1] += 1
            total[2] += sum(nanoseconds for nanoseconds, _ in launched)
    record.operations = [Operation(*key, kernel, calls, ns / 1e9) for key, (kernel, calls, ns) in totals.items()]
    record.operation_steps = steps


def innermost(ops: Iterable[Span]) -> Iterator[tuple[int, int, Span]]:
    """The parts of nested operations in which they call no other, thread by thread."""
    threads: dict[int, list[Span]] = defaultdict(list)
    for op in ops:
        threads[op.thread].append(op)
    for each in threads.values():
        open_: list[Span] = []
        now = 0
        beyond = Span(max(op.end for op in each), 0, "")
        for op in (*sorted(each, key=lambda span: (span.begin, -span.end)), beyond):
            while open_ and open_[-1].end <= op.begin:
                last = open_.pop()
                if last.end > now:
                    yield now, last.end, last
                    now = last.end
            if open_ and op.begin > now:
                yield now, op.begin, open_[-1]
            now = max(now, op.begin)
            open_.append(op)


def _key(op: Any) -> _Key:
    shapes = (each if isinstance(each, list) and all(isinstance(n, int) for n in each) else () for each in op.shapes())
    return op.name(), tuple(tuple(each)[:_SHOWN] for each in shapes), tuple(op.dtypes()), _frozen(op.concrete_inputs())


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _span(event: Any, lag: int = 0) -> Span:
    begin = event.start_ns() - lag
    end = begin + event.duration_ns()
    return Span(begin, end, event.name(), event.correlation_id(), event.device_resource_id())
