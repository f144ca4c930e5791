"""Holds a program up between two of its steps until it is told how far it may go."""

from __future__ import annotations

import atexit
import json
import os
import platform
import resource
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from perflint.verify.agent.observe import Observer
from perflint.verify.codec import decoded, encoded
from perflint.verify.measure.timeline import Timeline

_END = 1  # exit code of a process whose verifier is gone


@dataclass(frozen=True)
class Leave:
    """A process may go on to step number `until`, `observed` or not: whatever observes slows it down."""

    until: int
    observed: bool = False


@dataclass(frozen=True)
class Platform:
    """What a process runs on: its rank, how many ranks there are on this host, its device, and versions.

    `gpu` is the end of its GPU's UUID, empty where torch doesn't tell, and None while there is no GPU in use.
    """

    rank: int
    ranks: int
    device: str
    versions: Mapping[str, str]
    gpu: str | None = None


@dataclass(frozen=True)
class Arrival:
    """A process stands behind step number `step`, of the kind `kind`, `seconds` after it was let go.

    `device_bytes` and `host_bytes` are the most memory that it has held; `captures` counts the graphs that it
    has captured and the functions that it has compiled: a window in which that happens isn't steady. If it was observed
    on its way, there is a `timeline`. In a recording, `unseen` names functions and loops with fixes that it is in, and
    has never left so far.
    """

    step: int
    kind: str
    seconds: float
    device_bytes: int
    host_bytes: int
    captures: int
    platform: Platform
    device_share: float = 0.0
    timeline: Timeline | None = None
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class Departure:
    """A process comes to its end behind step number `left`."""

    left: int


class Gate:
    """The gate of one process: its steps are counted, and it waits behind the one that it was allowed.

    From the start it is allowed to go on `until` a step, if there is one.
    """

    def __init__(self, address: str, until: int = 0) -> None:
        self._address = address
        self._stream: TextIO | None = None
        self._steps = 0
        self._leave = Leave(until)
        self._observer: Observer | None = None
        self._start = 0.0
        self.captures = 0
        self.unseen: Callable[[], tuple[str, ...]] = tuple

    def passed(self, kind: str) -> None:
        """One more step is done: wait if it is the last one allowed."""
        if self._stream is None:
            self._stream = self._connected()
            if not self._leave.until:
                self._wait()
        self._steps += 1
        if self._observer:
            self._observer.passed()
        if self._steps >= self._leave.until:
            synchronize()
            arrival = self._arrival(kind, time.perf_counter() - self._start)
            sys.stdout.flush()  # what the program has printed belongs to its steps
            self._tell(arrival)
            self._wait()

    def _connected(self) -> TextIO:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        atexit.register(self._depart, os.getpid())
        return connection.makefile("rw", encoding="utf-8")

    def _wait(self) -> None:
        assert self._stream is not None
        line = self._stream.readline()
        if not line:
            sys.stdout.flush()
            os._exit(_END)
        self._leave = decoded(Leave, json.loads(line))
        self._observer = Observer(synchronize) if self._leave.observed else None
        self._start = time.perf_counter()

    def _tell(self, told: Arrival | Departure) -> None:
        assert self._stream is not None
        self._stream.write(json.dumps(encoded(told)) + "\n")
        self._stream.flush()

    def _depart(self, process: int) -> None:
        """Tell how far the program came, unless this is a child that was forked."""
        with suppress(OSError):  # nobody listens any more
            if os.getpid() == process:
                self._tell(Departure(self._steps))

    def _arrival(self, kind: str, seconds: float) -> Arrival:
        captures = self.captures + _compilations()
        timeline = self._observer.result() if self._observer else None
        memory = _device_bytes(), _host_bytes()
        return Arrival(
            self._steps, kind, seconds, *memory, captures, _platform(), _device_share(), timeline, self.unseen()
        )


def _platform() -> Platform:
    torch = sys.modules["torch"]
    versions = {"torch": str(torch.__version__), "python": platform.python_version(), "system": platform.platform()}
    if not torch.cuda.is_initialized():
        return Platform(*place(), f"CPU, {os.cpu_count()} cores", versions)
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Platform(*place(), gpu.name, {**versions, "cuda": str(torch.version.cuda)}, str(getattr(gpu, "uuid", "")))


def place() -> tuple[int, int]:
    """The rank of this process, and how many there are on this host."""
    ranks, rank = (int(os.environ.get(name, "0")) for name in ("LOCAL_WORLD_SIZE", "RANK"))
    group = sys.modules.get("torch.distributed")
    if group and group.is_available() and group.is_initialized():
        return group.get_rank(), ranks or group.get_world_size()
    return rank, ranks or 1


def synchronize() -> None:
    """Wait for the device, where one is in use."""
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _device_share() -> float:
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():
        return 0.0
    return float(cuda.max_memory_reserved() / cuda.get_device_properties(cuda.current_device()).total_memory)


def _device_bytes() -> int:
    cuda = sys.modules["torch"].cuda
    return int(cuda.max_memory_allocated()) if cuda.is_initialized() else 0


def _host_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # bytes in one of what the system counts
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _compilations() -> int:
    compiler = sys.modules.get("torch._dynamo.utils")
    return int(compiler.counters["stats"]["unique_graphs"]) if compiler else 0
