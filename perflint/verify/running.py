"""A running program: advanced step by step, paused and killed with all its children, its output read."""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from perflint.shim import plan
from perflint.shim.plan import Plan
from perflint.shim.session import RUN, SITE, plan_of
from perflint.verify import forks, processes
from perflint.verify.agent.cover import remove
from perflint.verify.messages import GATE, ORDERS, Arrival, Leave, Orders, Platform, Program, Variant
from perflint.verify.processes import Guardian
from perflint.verify.protocol import Budget, Ledger, TimeUp
from perflint.verify.statistics import subject

_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?(?P<what>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)")
_TRACEBACK = "Traceback (most recent call last)"
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_KEPT = 2**20  # bytes from the beginning of an output that are kept, and as many from its end
_MOST = 2**26  # bytes that it may take on the disk
_OWN_PORT = {"PET_STANDALONE": "1"}  # has torchrun choose a free one: it is started several times at once
_GLANCE = 0.05  # seconds


class Fault(Exception):
    """`words` follow the name of the variant that failed."""

    def __init__(self, variant: str, words: str) -> None:
        super().__init__(f"{subject(variant)} {words}")
        self.variant, self.words = variant, words


class ProgramEnded(Fault):
    """A program ended before the step that it had leave for."""

    def __init__(self, variant: str, words: str, code: int, errors: str) -> None:
        super().__init__(variant, words)
        self.code, self.errors = code, errors

    @property
    def is_failure(self) -> bool:
        """Whether a signal or an exception ended it, and no exit code of its own choice."""
        return self.code < 0 or (self.code == 1 and _TRACEBACK in self.errors)


class NoProgress(Fault):
    """A program took far longer than the original to its next step."""


def last_words(errors: str) -> str:
    lines = _COLORS.sub("", errors).strip().splitlines()
    found = (match for line in reversed(lines) if (match := _EXCEPTION.match(line)))
    told = next((match["what"] for match in found if "ChildFailedError" not in match["what"]), "")
    return (told or (lines[-1] if lines else "")).rstrip()


def ending(code: int, errors: str) -> str:
    if code >= 0:
        words = last_words(errors) if code else ""
        hint = " (verify runs programs without input)" if words.startswith("EOFError: EOF when reading") else ""
        return ": ".join(filter(None, [f"ended with exit code {code}", f"{words}{hint}"]))
    known = [each for each in signal.Signals if each == -code]
    why = ", as where memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {known[0].name if known else f'signal {-code}'}{why}"


class Output:
    """What a program prints, in a `file` opened for appending, whoever opens it.

    Programs may print gigabytes: `trim` frees their middle.
    """

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  # read when the program is gone
        fcntl.fcntl(self.file, fcntl.F_SETFL, os.O_APPEND)
        self._gone = 0  # bytes

    def trim(self) -> None:
        size = os.fstat(self.file.fileno()).st_size
        if size > _MOST:
            self.file.truncate(_KEPT)
            self._gone += size - _KEPT

    @property
    def text(self) -> str:
        size = os.fstat(self.file.fileno()).st_size
        head, tail = self._read(0), self._read(max(_KEPT, size - _KEPT))
        missing = self._gone + size - len(head) - len(tail)
        middle = f"\n... {missing:,} bytes ...\n".encode() if missing > 0 else b""
        return (head + middle + tail).decode("utf-8", "replace")

    def so_far(self) -> str:
        head = self._read(0)
        return (head if len(head) < _KEPT else head[: head.rfind(b"\n") + 1]).decode("utf-8", "replace")

    def _read(self, start: int) -> bytes:
        return os.pread(self.file.fileno(), _KEPT, start)


class Running:
    """A variant's process with its children and ranks, within a budget; a context."""

    def __init__(
        self,
        program: Program,
        variant: Variant,
        orders: Orders,
        guardian: Guardian,
        budget: Budget,
        ledger: Ledger,
        libraries: Sequence[str] | None = (),
    ) -> None:
        self._variant, self._budget, self._ledger = variant.name, budget, ledger
        self._begin = time.monotonic()
        self.folder = tempfile.mkdtemp(prefix="run-", dir=guardian.folder)
        guardian.watch(self.folder)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(Path(self.folder) / GATE))
        self._server.listen()
        self._ranks: dict[Connection, Arrival | None] = {}
        self._platforms: dict[int, Platform] = {}
        self._given = self._leave = Leave(orders.until)
        self._unit, self._step = orders.unit, 0
        self._paused = self._has_started = False
        self.output, self.errors = Output(), Output()
        self._process = started(
            program,
            variant.plan,
            orders,
            self.folder,
            {**_OWN_PORT, **orders.environment()},
            stdin=subprocess.DEVNULL,
            stdout=self.output.file,
            stderr=self.errors.file,
            libraries=libraries,
        )
        self._groups = frozenset({self._process.pid})  # it leads one, which its loaders' workers belong to

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        processes.kill(self.folder)
        self._process.wait()
        self._server.close()
        for rank in self._ranks:
            rank.close()
        remove(self.folder)

    def advance(self, until: int, patience: float, *, observed: bool = False) -> Arrival:
        """Run to step `until`; return how the slowest of the ranks came there.

        Raises ProgramEnded, NoProgress after `patience` seconds, and TimeUp at the end of the budget.
        """
        leave = Leave(until, observed)
        if self._paused:
            processes.resume(self._groups)
            self._paused = False
        if leave != self._leave:
            self._leave = leave
            for rank in self._ranks:
                self._allow(rank)
        end = time.monotonic() + patience
        while (arrivals := self._arrivals()) is None:
            if self._listen():
                continue  # it may have been there in time, while nobody listened
            if not self._budget.left:
                raise TimeUp
            if time.monotonic() > end:
                words = f"hangs{self._place()}: it came to no step for {patience:.0f} s"
                raise NoProgress(self._variant, words)
        arrival = slowest(arrivals)
        if not self._has_started:
            self._has_started = True
            self._ledger.started(time.monotonic() - self._begin)
        self._step = arrival.step
        return arrival

    @property
    def platforms(self) -> tuple[Platform, ...]:
        return tuple(self._platforms[rank] for rank in sorted(self._platforms))

    def pause(self) -> None:
        self._groups = processes.pause(self.folder, self._groups)
        self._paused = True

    def finish(self, patience: float) -> int:
        try:
            self.advance(sys.maxsize, patience)
        except ProgramEnded as ended:
            return ended.code
        raise AssertionError("a program has no last step")

    def ended(self) -> ProgramEnded:
        code, errors = self._process.returncode, self.errors.text
        return ProgramEnded(self._variant, f"{ending(code, errors)}{self._place(', ')}", code, errors)

    def _place(self, comma: str = " ") -> str:
        return f"{comma}after step {self._step}" if self._step and self._unit else ""

    def _arrivals(self) -> list[Arrival] | None:
        arrivals = [arrival for arrival in self._ranks.values() if arrival]
        expected = max((arrival.platform.ranks for arrival in arrivals), default=1)
        return arrivals if len(arrivals) >= expected else None

    def _listen(self) -> bool:
        self.output.trim()
        self.errors.trim()
        heard = wait([self._server, *self._ranks], _GLANCE)
        for each in heard:
            if isinstance(each, Connection):
                self._hear(each)
            else:
                rank = Connection(self._server.accept()[0].detach())
                self._ranks[rank] = None
                if self._leave != self._given or not self._given.until:
                    self._allow(rank)
        if not heard and self._process.poll() is not None:
            raise self.ended()
        return bool(heard)

    def _allow(self, rank: Connection) -> None:
        self._ranks[rank] = None
        with suppress(OSError):  # it has ended meanwhile: its exit code tells how
            rank.send(self._leave)

    def _hear(self, rank: Connection) -> None:
        try:
            told: Arrival | int = rank.recv()
        except (EOFError, OSError):  # the process is ending: its exit code follows
            del self._ranks[rank]
            rank.close()
            return
        if isinstance(told, int):
            self._step = max(self._step, told)
            return
        self._platforms[told.platform.rank] = told.platform
        if told.step >= self._leave.until:  # it may have had leave for fewer from the start
            self._ranks[rank] = told


def started(
    program: Program, patches: Plan, orders: object, run: str, given: Mapping[str, str], **named: Any
) -> subprocess.Popen[bytes]:
    """Start a program patched, following `orders`, which go to the folder `run`.

    The variables `given` name its agent; what else is `named` is for forks.Popen.
    """
    plan.save(patches, plan_of(Path(run)))
    Path(run, ORDERS).write_bytes(pickle.dumps(orders))
    joined = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join(each for each in joined if each != SITE)  # it would join by itself, before it is started
    return forks.Popen(
        [sys.executable, "-m", "perflint.verify.agent.start", program.kind.value, program.name, *program.arguments],
        cwd=program.folder,
        env={**os.environ, RUN: run, "PYTHONPATH": paths, **given},
        start_new_session=True,
        **named,
    )


def slowest(arrivals: Sequence[Arrival]) -> Arrival:
    return replace(
        max(arrivals, key=lambda arrival: arrival.seconds),
        device_bytes=max(arrival.device_bytes for arrival in arrivals),
        host_bytes=max(arrival.host_bytes for arrival in arrivals),
        device_share=max(arrival.device_share for arrival in arrivals),
        captures=sum(arrival.captures for arrival in arrivals),
    )
