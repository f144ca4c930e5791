"""A program that runs under the verifier: let go step by step, paused, and ended with all its children."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from perflint.shim import plan
from perflint.shim.session import RUN, SITE, plan_of
from perflint.verify.agent.gate import Arrival, Departure, Leave, Platform
from perflint.verify.codec import decoded, encoded
from perflint.verify.measure.samples import subject
from perflint.verify.run import tree
from perflint.verify.run.guardian import Guardian
from perflint.verify.run.orders import Orders
from perflint.verify.run.output import Output, ending
from perflint.verify.spec import Program, Variant

_OWN_PORT = {"PET_STANDALONE": "1"}  # has torchrun choose a free one: it is started several times at once
_GLANCE = 0.05  # seconds between two looks at whether a process has ended
_LAST_WORDS = 5.0  # seconds that a process that has ended has to be read


class Fault(Exception):
    """A variant of a program did what it mustn't: `words` say what, behind its name."""

    def __init__(self, variant: str, words: str) -> None:
        super().__init__(f"{subject(variant)} {words}")
        self.variant, self.words = variant, words


class ProgramEnded(Fault):
    """A program has come to its end, or to an error, before the step that it was allowed to."""

    def __init__(self, variant: str, words: str, code: int, errors: str) -> None:
        super().__init__(variant, words)
        self.code, self.errors = code, errors


class NoProgress(Fault):
    """A program has not come to its next step for as long as it was given."""


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
    """One process of a variant, with its children and, where it is distributed, its ranks. Use as a context."""

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
        tree.kill(self.folder)
        self._process.wait()
        self._selector.close()
        for each in (self._server, *[rank.connection for rank in self._ranks]):
            each.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def advance(self, until: int, patience: float, *, observed: bool = False) -> Arrival:
        """Let the program go on to step `until`, observed or not; return how the slowest of its ranks came there.

        Raises ProgramEnded, and NoProgress where it takes longer than `patience` seconds.
        """
        leave = Leave(until, observed)
        if self._paused:
            tree.resume(self._groups)
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
        """What its ranks run on, the first rank first; nothing is known before their first step."""
        known = (rank.platform for rank in self._ranks if rank.platform)
        return tuple(sorted(known, key=lambda platform: platform.rank))

    def pause(self) -> None:
        """Stop the program and all its children where they are."""
        self._groups = tree.pause(self.folder, self._groups)
        self._paused = True

    def finish(self, patience: float) -> int:
        """Let the program run to its end; return its exit code. Raises NoProgress."""
        try:
            self.advance(sys.maxsize, patience)
        except ProgramEnded as ended:
            return ended.code
        raise AssertionError("a program has no last step")

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

    def ended(self) -> ProgramEnded:
        """What became of a program that has come to its end."""
        code, (_, errors) = self._process.returncode, self.printed()
        return ProgramEnded(self._variant, f"{ending(code, errors)}{self._place(', ')}", code, errors)

    def _place(self, comma: str = " ") -> str:
        return f"{comma}behind step {self._step}" if self._step else ""

    def printed(self) -> tuple[str, str]:
        """All that a program has printed that has come to its end, or was ended: output and errors."""
        for output in (self.output, self.errors):
            output.wait(_LAST_WORDS)
        return self.output.text, self.errors.text


def slowest(arrivals: Sequence[Arrival]) -> Arrival:
    """How the slowest of all ranks came there, with the most memory that one of them held, and all their captures."""
    return replace(
        max(arrivals, key=lambda arrival: arrival.seconds),
        device_bytes=max(arrival.device_bytes for arrival in arrivals),
        host_bytes=max(arrival.host_bytes for arrival in arrivals),
        device_share=max(arrival.device_share for arrival in arrivals),
        captures=sum(arrival.captures for arrival in arrivals),
    )


def _started(program: Program, variant: Variant, orders: Orders, folder: str) -> subprocess.Popen[bytes]:
    path = plan_of(Path(folder))
    plan.save(variant.plan, path)
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
