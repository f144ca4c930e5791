"""Joins a process to a profile: counts its steps, and records some."""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from inspect import GEN_CLOSED, getgeneratorstate
from pathlib import Path
from types import ModuleType
from typing import Any

from perflint.profile.lines import Facts, Lines, Owners, Users, Workers
from perflint.profile.record import (
    KINDS,
    OPERATION_STEPS,
    STEPS,
    Orders,
    Record,
    keep_operations,
    keep_steps,
    mean,
    save,
    waited,
)
from perflint.shim import hooks
from perflint.shim.hooks import AfterImport, Finder, Tally, replace
from perflint.shim.session import RUN
from perflint.verify.agent.journal import journaled
from perflint.verify.agent.steps import GRAPHED, Steps, keep_sockets, platform_of, synchronize
from perflint.verify.agent.timeline import Kineto
from perflint.verify.messages import BACKWARD, BATCH, CALLS, OPTIMIZER, ORDERS

_PATIENT = {OPTIMIZER: 1, BATCH: 3, BACKWARD: 3, CALLS: 12}  # times the warm-up: a better kind may come
_SLOW, _FEW = 1.0, 3  # seconds of a step, and how many of slow ones are timed and traced
_WARM_UP_OF_SLOW = 3
_WAITS, _MOST_AHEAD = 0.05, 64  # of a step that it waits for batches, and so many may be ready
_UNLOADS = (12, 6)  # the version of CUDA
_MODULE = "torch.nn.modules.module"


def join() -> None:
    run = Path(os.environ[RUN])
    keep_sockets(run)
    orders: Orders = pickle.loads((run / ORDERS).read_bytes())
    agent = Agent(orders, run)
    watched: dict[str, AfterImport] = {"torch": agent.watch, GRAPHED: agent.steps.watch_replays}
    sys.meta_path.insert(0, Finder(lambda _: None, journaled(orders, run, watched)))


class Agent:
    def __init__(self, orders: Orders, run: Path) -> None:
        self._orders, self._run = orders, run
        self._users = Users(orders.libraries)
        self._owners = Owners(self._users)
        self.steps = Steps("", self._passed)
        self._counts: dict[str, int] = {}
        self._first: dict[str, float] = {}
        self._tallies: dict[str, Tally] = {}
        self._recording: Recording | None = None
        self._modules = _Calls(self.steps)

    def watch(self, torch: ModuleType) -> None:
        self.steps.watch()
        self._owners.watch()
        Workers(self._users, self._run).watch()
        self._modules.watch()
        atexit.register(self._end, os.getpid())

    def _passed(self, kind: str) -> None:
        try:
            self._count(kind)
        except Exception as error:
            hooks.warn(f"can't profile: {error!r}")
            if self._recording:
                self._recording.give_up(error)

    def _count(self, kind: str) -> None:
        if kind not in self._tallies:
            self._tallies[kind] = Tally(self._run, STEPS, kind)
        self._tallies[kind].add()
        if kind not in KINDS:
            return
        recording = self._recording
        if recording and KINDS.index(kind) >= KINDS.index(recording.unit):
            if kind == recording.unit:
                recording.passed()
            return
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        now = time.perf_counter()
        usual = (now - self._first.setdefault(kind, now)) / max(count - 1, 1)
        warm_up = self._orders.warm_up if usual < _SLOW else min(self._orders.warm_up, _WARM_UP_OF_SLOW)
        patience = 1 if self._orders.unit else _PATIENT[kind]
        if count < warm_up * patience or self._orders.unit not in ("", kind):
            return
        if recording:
            recording.end()
        if kind != CALLS:
            self._modules.leave()
        self._recording = Recording(kind, usual, self._orders, self._run, self._owners, self._users)

    def _end(self, process: int) -> None:
        if self._recording and os.getpid() == process:
            with suppress(Exception):  # the program's own end is what matters
                self._recording.end()


class Recording:
    """Times steps of the kind `unit`, then traces some, then looks at the operations of a few."""

    def __init__(self, unit: str, usual: float, orders: Orders, run: Path, owners: Owners, users: Users) -> None:
        self.unit = unit
        self._run, self._owners, self._users, self._trace = run, owners, users, orders.trace
        platform = platform_of()
        torch: Any = sys.modules["torch"]
        self._record = Record(
            platform.rank,
            platform.ranks,
            unit,
            platform.device,
            bool(torch.cuda.is_initialized()),
            platform.versions,
            _settings(torch),
            _bandwidth(torch),
            threading.get_native_id(),
        )
        is_slow = usual > _SLOW and platform.ranks == 1  # ranks have to agree
        most = _FEW if is_slow else max(orders.timed, orders.steps)
        self._facts = Facts()
        self._lines = Lines(users, self._facts.note)
        self._kineto: Kineto | None = None
        self._course = self._steps(min(orders.timed, most), min(orders.steps, most))
        self.passed()

    def passed(self) -> None:
        next(self._course, None)

    def end(self) -> None:
        if getgeneratorstate(self._course) == GEN_CLOSED:
            return
        self._stop()
        if self._record.marks and not self._record.nodes:
            self._end_trace(_note(self._record.marks))
        self._save()

    def give_up(self, error: Exception) -> None:
        """Record no more, and say why: half a record is no profile."""
        self._stop()
        self._record.marks.clear()
        self._record.notes.append(f"its steps could not be recorded: {error!r}")
        self._save()

    def _stop(self) -> None:
        self._course.close()
        self._owners.noting = False
        self._lines.stop()

    def _steps(self, timed: int, traced: int) -> Generator[None, None, None]:
        record, owners = self._record, self._owners
        owners.fetches.clear()
        owners.optimizers.clear()
        owners.noting = True
        _note(record.timed)
        for number in range(1, timed + 1):
            yield
            _note(record.timed, is_last=number == timed)
        self._save()
        self._begin_trace()
        end = time.time_ns()
        for _ in range(_MOST_AHEAD):
            yield
            begin, end = end, time.time_ns()
            if self._has_settled(begin, end):
                break
        reached = _note(record.marks)
        for number in range(1, traced + 1):
            yield
            reached = _note(record.marks, is_last=number == traced)
        self._end_trace(reached)
        owners.noting = False
        self._kineto = Kineto.started(device=record.is_gpu, host=True, shapes=True)
        for _ in range(OPERATION_STEPS + 1):
            yield
        self._end_operations(OPERATION_STEPS + 1)

    def _has_settled(self, begin: int, end: int) -> bool:
        fetches, timed = self._owners.fetches, self._record.timed
        steps = [(timed[0], timed[-1])]
        usual, last = waited(steps, fetches) / (len(timed) - 1), waited([(begin, end)], fetches)
        return usual < _WAITS * mean(steps) / (len(timed) - 1) or last >= usual / 2

    def _begin_trace(self) -> None:
        self._kineto = Kineto.started(device=self._record.is_gpu, host=not self._record.is_gpu)
        if not self._kineto:
            self._record.is_blind = True
            self._record.notes.append("the program uses torch.profiler itself: what its device does isn't seen")
        if not self._lines.start(sys._getframe()):
            self._record.notes.append("another tracer is at work, as of a debugger: lines aren't seen")

    def _end_trace(self, reached: int) -> None:
        self._lines.stop()
        self._facts.note_all(self._lines.frames)
        self._lines.frames.clear()
        record = self._record
        record.nodes, record.facts = self._lines.nodes, self._facts.seen
        record.times, record.at = list(self._lines.times), list(self._lines.at)
        record.modules = self._users.files()
        record.fetches, record.optimizers = list(self._owners.fetches), list(self._owners.optimizers)
        if self._kineto:
            keep_steps(record, self._kineto.stop(), reached)
            record.is_blind = not (record.is_gpu or record.ops)
            self._kineto.close()
        self._kineto = None
        self._save()

    def _end_operations(self, steps: int) -> None:
        if self._kineto:
            synchronize()
            _unload()
            keep_operations(self._record, self._kineto.stop(), steps)
            if self._trace:
                try:
                    self._kineto.export(_of_rank(self._trace, self._record.rank))
                except OSError as error:
                    self._record.notes.append(f"{self._trace}: {error.strerror}")
            self._kineto.close()
            self._kineto = None
        self._record.operation_steps = steps
        self._save()

    def _save(self) -> None:
        with suppress(OSError):  # the run is over
            save(self._run, self._record)


def _note(moments: list[int], *, is_last: bool = True) -> int:
    """Note the end of a step, of the last one once the device is done; return when the host was there."""
    reached = time.time_ns()
    if is_last:
        synchronize()
    moments.append(time.time_ns())
    return reached


def _unload() -> None:
    """Have the profiler unload CUPTI as it stops, else it slows launches until the program ends.

    Older CUDA can't load it again where graphs are replayed.
    """
    version = str(sys.modules["torch"].version.cuda or "0.0")
    if tuple(map(int, version.split(".")[:2])) >= _UNLOADS:
        os.environ.setdefault("TEARDOWN_CUPTI", "1")


class _Calls:
    """Counts calls of outermost models, the steps of programs without others.

    A module without parameters is no model: it may transform each sample of a batch.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._inside = threading.local()
        self._undo: Any = None

    def watch(self) -> None:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, "now", False) or sys.modules["torch"].compiler.is_compiling():
                return module._call_impl(*args, **kwargs)
            self._inside.now = True
            try:
                return module._call_impl(*args, **kwargs)
            finally:
                self._inside.now = False
                if next(module.parameters(), None) is not None:
                    self._steps.happened(CALLS)

        self._undo = replace(sys.modules[_MODULE].Module, "_compiled_call_impl", call)

    def leave(self) -> None:
        if self._undo:
            self._undo()
            self._undo = None


def _of_rank(path: str, rank: int) -> str:
    place = Path(path)
    return str(place.with_name(f"{place.stem}.{rank}{place.suffix}")) if rank else path


def _settings(torch: Any) -> dict[str, str]:
    return {
        "matmul": str(torch.get_float32_matmul_precision()),
        "conv": "tf32" if torch.backends.cudnn.allow_tf32 else "highest",
        "benchmark": str(torch.backends.cudnn.benchmark),
        "threads": str(torch.get_num_threads()),
    }


def _bandwidth(torch: Any) -> float:
    if not torch.cuda.is_initialized():
        return 0.0
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    clock, width = (getattr(device, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))  # kHz, bits
    return 2 * clock * 1e3 * width / 8
