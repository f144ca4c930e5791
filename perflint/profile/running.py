"""Runs the unmodified program, whose processes record some of its steps."""

from __future__ import annotations

import math
import os
import signal
import site
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perflint.profile import record
from perflint.profile.record import AGENT, STEPS, Fetches, Orders, Record
from perflint.shim.counts import tallied
from perflint.shim.joining import ALSO
from perflint.shim.plan import Plan
from perflint.verify import forks, processes
from perflint.verify.messages import Program
from perflint.verify.processes import Guardian
from perflint.verify.running import started

_GLANCE = 0.2  # seconds between two looks at how far the program is
_EMPTY = Plan("", {}, (), (), {}, False, False, "")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ran:
    """What a program has left: its exit code, the records of its ranks and workers, and its steps by their kinds.

    It `is_interrupted` if that was asked for, by the user or because nothing more was to be recorded.
    """

    code: int
    records: tuple[Record, ...]
    workers: tuple[Fetches, ...]
    steps: dict[str, int]
    is_interrupted: bool


@dataclass(frozen=True)
class Manner:
    """How a program is run: until the end of its record if it `stops`, for so many `seconds` at most.

    Where it is stopped, it has some seconds of `patience` to end by itself. Its output goes to `stdout` and `stderr`,
    as subprocess.Popen names them. It is a fork of a process that has imported `libraries`, unless these are None.
    """

    stops: bool = False
    seconds: float = math.inf
    patience: float = 10.0
    stdout: int | None = None
    stderr: int | None = None
    libraries: tuple[str, ...] | None = None


def run(program: Program, orders: Orders, tell: Tell, guardian: Guardian, manner: Manner) -> Ran:
    """Run a program, which records some of its steps by `orders`."""
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
    """Wait for the program's end, and return whether it was interrupted."""
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
    """Have the program end by Ctrl-C, or else by force."""
    with suppress(KeyboardInterrupt):
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            end = time.monotonic() + patience
            while time.monotonic() < end:
                if process.poll() is not None:
                    return True
                time.sleep(_GLANCE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return True


def _libraries() -> tuple[str, ...]:
    """The folders of Python, of what is installed, torch among it, and of perflint."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | {*site.getsitepackages(), site.getusersitepackages()}
    torch = find_spec("torch")
    if torch and torch.origin:
        folders.add(str(Path(torch.origin).parents[1]))
    return tuple(sorted(f"{folder}{os.sep}" for folder in {*folders, str(Path(__file__).parents[1])} if folder))
