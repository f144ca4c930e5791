"""Counts the steps of a program, and stops it at those that the verifier names.

A step is an optimizer's, a loader's batch, a backward pass, or a call of a function with fixes. Batches that nothing is
differentiated after are evaluation batches, too.
"""

from __future__ import annotations

import atexit
import functools
import os
import platform
import resource
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import current_process
from pathlib import Path
from types import FrameType
from typing import Any

from perflint.shim.hooks import after, before, outermost
from perflint.verify.agent.timeline import Observer
from perflint.verify.messages import BACKWARD, BATCH, CALLS, EVALUATION, OPTIMIZER, Arrival, Leave, Platform

NOTHING = "none"  # the kind that never happens
GRAPHED = "perflint.runtime.step"  # the module whose replays stand for steps
_NESTED = " in calls"
_SEVERAL = 6  # calls: fewer than can be timed
_PATIENCE = 64  # steps of other optimizers after which the counted one is taken to be done
_END = 1  # exit code of a process whose verifier is gone

Passed = Callable[[str], None]


def calls(depth: int) -> str:
    return CALLS + depth * _NESTED


def unit_of(kinds: Iterable[str]) -> str:
    """The kind of steps to count, "" if none happened. Of calls, the outermost that happen several times."""
    numbers = Counter(kinds)
    by_depth = sorted((kind for kind in numbers if kind.startswith(CALLS)), key=len)
    several = [kind for kind in by_depth if numbers[kind] >= _SEVERAL]
    most = sorted(by_depth, key=lambda kind: -numbers[kind])
    return next((kind for kind in (OPTIMIZER, BATCH, BACKWARD, *several, *most) if kind in numbers), "")


def is_ours(iterator: Any) -> bool:
    """Whether perflint itself reads from a loader, to try out samples."""
    return type(iterator._dataset).__module__.partition(".")[0] == "perflint"


class Steps:
    """Calls `passed` for each step of the kind `unit` ("": any) in this process."""

    def __init__(self, unit: str, passed: Passed) -> None:
        self._unit, self._passed, self._process = unit, passed, os.getpid()
        self._lock = threading.RLock()
        self._leader: weakref.ref[Any] | None = None
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._others = 0
        self._backward = 0  # passes
        self._noted: list[str] | None = None  # instead of being counted
        self._asked: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # passes by iterators

    def watch(self) -> None:
        from torch import Tensor
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        register_optimizer_step_post_hook(self._stepped)
        iterator.__next__ = before(iterator.__next__, self._ask)  # type: ignore[method-assign]
        if self._unit in ("", BACKWARD, EVALUATION):
            counted = after(Tensor.backward, lambda *_, **__: self.happened(BACKWARD))
            Tensor.backward = outermost(Tensor.backward, counted)  # type: ignore[method-assign]

    def watch_replays(self, module: Any) -> None:
        """Count after each replay of a step what happened at its capture."""
        kind = module.StepReplay
        capture, happened = kind.__init__, weakref.WeakKeyDictionary[Any, tuple[str, ...]]()

        @functools.wraps(capture)
        def captured(replay: Any, *args: Any, **kwargs: Any) -> None:
            with self.noting() as noted:
                capture(replay, *args, **kwargs)
            happened[replay] = tuple(noted)

        def repeat(_result: Any, replay: Any, *_: Any) -> None:
            for each in happened[replay]:
                self.happened(each)

        kind.__init__, kind.__call__ = captured, after(kind.__call__, repeat)

    @contextmanager
    def noting(self) -> Iterator[list[str]]:
        with self._lock:
            before, self._noted = self._noted, []
            try:
                yield self._noted
            finally:
                self._noted = before

    def happened(self, kind: str) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._noted is not None:
                self._noted.append(kind)
                return
            self._backward += kind == BACKWARD
            if self._unit in ("", kind):
                self._passed(kind)

    def _ask(self, iterator: Any) -> None:
        """Count the batch asked for, and the last one as an evaluation's if nothing was differentiated since."""
        if is_ours(iterator):
            return
        if self._asked.get(iterator) == self._backward:
            self.happened(EVALUATION)
        self._asked[iterator] = self._backward
        self.happened(BATCH)

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Count one optimizer's steps: a program with several steps each of them for a batch.

        It is the one that first stepped after all others: before its step, a graph of the others may still be needed.
        """
        leader = self._leader() if self._leader else None
        self._others = 0 if optimizer is leader else self._others + 1
        if leader is None or optimizer not in self._optimizers or self._others > _PATIENCE:
            self._leader, leader, self._others = weakref.ref(optimizer), optimizer, 0
        self._optimizers.add(optimizer)
        if leader is optimizer:
            self.happened(OPTIMIZER)


class Gate:
    def __init__(self, address: str, until: int = 0) -> None:
        self._address = address
        self._verifier: Connection | None = None
        self._steps = 0
        self._leave = Leave(until)
        self._observer: Observer | None = None
        self._start = 0.0
        self._captures = 0
        self.unseen: Callable[[], tuple[str, ...]] = tuple

    def watch(self, torch: Any) -> None:
        def count(*_: Any, **__: Any) -> None:
            self._captures += 1

        torch.cuda.CUDAGraph.capture_begin = before(torch.cuda.CUDAGraph.capture_begin, count)

    def passed(self, kind: str) -> None:
        if self._verifier is None:
            gate = socket.socket(socket.AF_UNIX)
            gate.connect(self._address)
            self._verifier = Connection(gate.detach())
            atexit.register(self._depart, self._verifier, os.getpid())
            if not self._leave.until:
                self._wait(self._verifier)
        self._steps += 1
        if self._observer:
            self._observer.passed()
        if self._steps >= self._leave.until:
            synchronize()
            arrival = self._arrival(kind, time.perf_counter() - self._start)
            sys.stdout.flush()  # what the program has printed belongs to its steps
            self._verifier.send(arrival)
            self._wait(self._verifier)

    def _wait(self, verifier: Connection) -> None:
        try:
            self._leave = verifier.recv()
        except (EOFError, OSError):
            sys.stdout.flush()
            os._exit(_END)
        self._observer = Observer(synchronize) if self._leave.observed else None
        self._start = time.perf_counter()

    def _depart(self, verifier: Connection, process: int) -> None:
        with suppress(OSError):  # the verifier is gone
            if os.getpid() == process:
                verifier.send(self._steps)

    def _arrival(self, kind: str, seconds: float) -> Arrival:
        compiler = sys.modules.get("torch._dynamo.utils")
        compilations = int(compiler.counters["stats"]["unique_graphs"]) if compiler else 0
        device_bytes, device_share = _device_memory()
        return Arrival(
            self._steps,
            kind,
            seconds,
            device_bytes,
            _host_bytes(),
            self._captures + compilations,
            platform_of(),
            device_share,
            self._observer.result() if self._observer else None,
            self.unseen(),
            tuple((frame.f_code.co_filename, frame.f_lineno) for frame in frames()),
        )


def frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back


def platform_of() -> Platform:
    torch = sys.modules["torch"]
    versions = {"torch": str(torch.__version__), "python": platform.python_version(), "system": platform.platform()}
    if not torch.cuda.is_initialized():
        return Platform(*rank_and_ranks(), host(), versions)
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    versions["cuda"] = str(torch.version.cuda)
    return Platform(*rank_and_ranks(), gpu.name, versions, str(getattr(gpu, "uuid", "")))


def host() -> str:
    return f"CPU, {os.cpu_count()} cores"


def keep_sockets(run: Path) -> None:
    """Have multiprocessing keep sockets in the folder of a run, which is removed however this process ends."""
    config: dict[str, object] = current_process()._config  # type: ignore[attr-defined]
    config.setdefault("tempdir", str(run))  # children inherit it


def rank_and_ranks() -> tuple[int, int]:
    ranks, rank = (int(os.environ.get(name, "0")) for name in ("LOCAL_WORLD_SIZE", "RANK"))
    group = sys.modules.get("torch.distributed")
    if group and group.is_available() and group.is_initialized():
        return group.get_rank(), ranks or group.get_world_size()
    return rank, ranks or 1


def synchronize() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _device_memory() -> tuple[int, float]:
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():
        return 0, 0.0
    total = cuda.get_device_properties(cuda.current_device()).total_memory
    return int(cuda.max_memory_allocated()), float(cuda.max_memory_reserved() / total)


def _host_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
