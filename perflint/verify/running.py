"""A running program: advanced step by step, paused and killed with all its children, its output read."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TextIO

from perflint.shim import plan
from perflint.shim.session import RUN, SITE, plan_of
from perflint.verify import processes
from perflint.verify.messages import Arrival, Departure, Leave, Orders, Platform, Program, Variant, decoded, encoded
from perflint.verify.processes import Guardian
from perflint.verify.statistics import subject

_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?(?P<what>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)")
_POLL = 0.001  # seconds
_INT = struct.calcsize("i")
_KEPT = 2**20  # bytes from the beginning of an output that are kept, and as many from its end
_OWN_PORT = {"PET_STANDALONE": "1"}  # has torchrun choose a free one: it is started several times at once
_GLANCE = 0.05  # seconds between two looks at whether a process has ended
_LAST_WORDS = 5.0  # seconds in which the output of a process that has ended must be read


class Fault(Exception):
    """A variant of a program failed; `words` say how, behind its name."""

    def __init__(self, variant: str, words: str) -> None:
        super().__init__(f"{subject(variant)} {words}")
        self.variant, self.words = variant, words


class ProgramEnded(Fault):
    """A program has ended, or failed, before the step that it had leave to go to."""

    def __init__(self, variant: str, words: str, code: int, errors: str) -> None:
        super().__init__(variant, words)
        self.code, self.errors = code, errors


class NoProgress(Fault):
    """A program has not reached its next step in time."""


def last_words(errors: str) -> str:
    """The line that says why a program failed: of an exception, but not of a launcher's about its ranks."""
    lines = errors.strip().splitlines()
    found = (match for line in reversed(lines) if (match := _EXCEPTION.match(line)))
    told = next((match["what"] for match in found if "ChildFailedError" not in match["what"]), "")
    return told or (lines[-1] if lines else "")


def ending(code: int, errors: str) -> str:
    """How a program ended, in words, by its exit code and standard error."""
    if code >= 0:
        words = last_words(errors) if code else ""
        hint = " (verify runs programs without input)" if words.startswith("EOFError: EOF when reading") else ""
        return ": ".join(filter(None, [f"ended with exit code {code}", f"{words}{hint}"]))
    known = [each for each in signal.Signals if each == -code]
    why = ", as where memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {known[0].name if known else f'signal {-code}'}{why}"


class Output:
    """Reads a pipe to its end in a thread of its own, and keeps its beginning and end: programs may print gigabytes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.count = 0
        self._head, self._tail = b"", b""
        self._pipe, self._lock = pipe, threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the output, which comes once all who could print are gone."""
        self._thread.join(seconds)

    @property
    def text(self) -> str:
        """What was printed, without the middle where it was too much."""
        missing = self.count - len(self._head) - len(self._tail)
        middle = f"\n... {missing:,} bytes ...\n".encode() if missing > 0 else b""
        return (self._head + middle + self._tail).decode("utf-8", "replace")

    def so_far(self) -> str:
        """What a program that waits has printed, in whole lines, up to a limit."""
        while self._thread.is_alive():
            with self._lock:
                if fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(_INT)) == bytes(_INT):  # nothing is left to be read
                    break
            time.sleep(_POLL)
        whole = self._head if self.count == len(self._head) else self._head[: self._head.rfind(b"\n") + 1]
        return whole.decode("utf-8", "replace")

    def _read(self) -> None:
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        while waiting.poll():
            with self._lock:  # nothing is on its way while others hold it
                part = self._pipe.read1(65536)  # type: ignore[attr-defined]
                if not part:
                    return
                self.count += len(part)
                room = _KEPT - len(self._head)
                self._head, part = self._head + part[:room], part[room:]
                self._tail = (self._tail + part)[-_KEPT:]


@dataclass
class _Rank:
    """The connection to one process that takes steps."""

    connection: socket.socket
    stream: TextIO
    platform: Platform | None = None
    arrival: Arrival | None = None

    def allow(self, leave: Leave) -> None:
        self.arrival = None
        with suppress(ConnectionError):  # it has ended meanwhile: its exit code tells how
            self.stream.write(json.dumps(encoded(leave)) + "\n")
            self.stream.flush()


class Running:
    """A process of a variant, with its children and ranks. Use as a context."""

    def __init__(self, program: Program, variant: Variant, orders: Orders, guardian: Guardian) -> None:
        self._variant = variant.name
        self.folder = tempfile.mkdtemp(prefix="run-", dir=guardian.folder)
        guardian.watch(self.folder)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(Path(self.folder) / "gate"))
        self._server.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._ranks: list[_Rank] = []
        self._given = self._leave = Leave(orders.until)
        self._step = 0
        self._paused = False
        self._process = _started(program, variant, replace(orders, address=self._server.getsockname()), self.folder)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._groups = frozenset({self._process.pid})  # it leads one, which its loaders' workers belong to
        self.output, self.errors = Output(self._process.stdout), Output(self._process.stderr)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        processes.kill(self.folder)
        self._process.wait()
        self._selector.close()
        for each in (self._server, *[rank.connection for rank in self._ranks]):
            each.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def advance(self, until: int, patience: float, *, observed: bool = False) -> Arrival:
        """Run to step `until`; return how the slowest of the ranks came there.

        Raises ProgramEnded, and NoProgress after `patience` seconds.
        """
        leave = Leave(until, observed)
        if self._paused:
            processes.resume(self._groups)
            self._paused = False
        for rank in self._ranks if leave != self._leave else ():
            rank.allow(leave)
        self._leave = leave
        end = time.monotonic() + patience
        while (arrivals := self._arrivals()) is None:
            if time.monotonic() > end:
                words = f"hangs{self._place()}: it came to no step for {patience:.0f} s"
                raise NoProgress(self._variant, words)
            self._listen()
        arrival = slowest(arrivals)
        self._step = arrival.step
        return arrival

    @property
    def platforms(self) -> tuple[Platform, ...]:
        """What its ranks run on, by rank; nothing is known before their first step."""
        known = (rank.platform for rank in self._ranks if rank.platform)
        return tuple(sorted(known, key=lambda platform: platform.rank))

    def pause(self) -> None:
        """Stop the program and all its children where they are."""
        self._groups = processes.pause(self.folder, self._groups)
        self._paused = True

    def finish(self, patience: float) -> int:
        """Run the program to its end; return its exit code. Raises NoProgress."""
        try:
            self.advance(sys.maxsize, patience)
        except ProgramEnded as ended:
            return ended.code
        raise AssertionError("a program has no last step")

    def ended(self) -> ProgramEnded:
        """How the program, which has ended, did so."""
        code, (_, errors) = self._process.returncode, self.printed()
        return ProgramEnded(self._variant, f"{ending(code, errors)}{self._place(', ')}", code, errors)

    def printed(self) -> tuple[str, str]:
        """The whole output and standard error of the program, which has ended or was killed."""
        for output in (self.output, self.errors):
            output.wait(_LAST_WORDS)
        return self.output.text, self.errors.text

    def _place(self, comma: str = " ") -> str:
        return f"{comma}behind step {self._step}" if self._step else ""

    def _arrivals(self) -> list[Arrival] | None:
        """The arrivals of all ranks, once all are there."""
        arrivals = [rank.arrival for rank in self._ranks if rank.arrival]
        expected = max((arrival.platform.ranks for arrival in arrivals), default=1)
        return arrivals if len(arrivals) >= expected else None

    def _listen(self) -> None:
        events = self._selector.select(_GLANCE)
        for key, _ in events:
            if key.fileobj is self._server:
                self._welcome()
            else:
                self._hear(key.data)
        if not events and self._process.poll() is not None:
            raise self.ended()

    def _welcome(self) -> None:
        connection, _ = self._server.accept()
        rank = _Rank(connection, connection.makefile("rw", encoding="utf-8"))
        self._ranks.append(rank)
        self._selector.register(connection, selectors.EVENT_READ, rank)
        if self._leave != self._given or not self._given.until:
            rank.allow(self._leave)

    def _hear(self, rank: _Rank) -> None:
        line = ""
        with suppress(ConnectionError):  # it has gone without reading what we told it
            line = rank.stream.readline()
        if not line:  # the process is ending: its exit code follows
            self._selector.unregister(rank.connection)
            return
        told = json.loads(line)
        if "left" in told:
            self._step = max(self._step, decoded(Departure, told).left)
        else:
            arrival = decoded(Arrival, told)
            rank.platform = arrival.platform
            if arrival.step >= self._leave.until:  # it may have had leave for fewer from the start
                rank.arrival = arrival


def slowest(arrivals: Sequence[Arrival]) -> Arrival:
    """The arrival of the slowest rank, with the peak memory of any, and the captures of all."""
    return replace(
        max(arrivals, key=lambda arrival: arrival.seconds),
        device_bytes=max(arrival.device_bytes for arrival in arrivals),
        host_bytes=max(arrival.host_bytes for arrival in arrivals),
        device_share=max(arrival.device_share for arrival in arrivals),
        captures=sum(arrival.captures for arrival in arrivals),
    )


def _started(program: Program, variant: Variant, orders: Orders, folder: str) -> subprocess.Popen[bytes]:
    plan.save(variant.plan, plan_of(Path(folder)))
    joined = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join(each for each in joined if each != SITE)  # it would join by itself, before it is started
    given: Mapping[str, str] = {RUN: folder, "PYTHONPATH": paths, **_OWN_PORT, **orders.environment()}
    return subprocess.Popen(
        [sys.executable, "-m", "perflint.verify.agent.start", program.kind.value, program.name, *program.arguments],
        cwd=program.folder,
        env={**os.environ, **given},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
