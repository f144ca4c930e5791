"""All processes of one run of a program, whoever started them: they are known by a variable of their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator

import psutil

from perflint.shim.session import RUN

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied)
_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE)
_SIZES = ("pss", "uss", "rss")  # the first that the system tells
_PATIENCE = 10.0  # seconds that processes have to do as they are told


def processes(run: str) -> Iterator[psutil.Process]:
    """The living processes of the run whose folder is `run`, but for this one.

    What they have started without an environment is known by its session, which is that of the run.
    """
    living = {process: _session(process) for process in psutil.process_iter() if process.pid != os.getpid()}
    named = {process for process in living if _belongs(process, run)}
    sessions = {living[process] for process in named} - {os.getsid(0), None}
    yield from (process for process, session in living.items() if process in named or session in sessions)


def _belongs(process: psutil.Process, run: str) -> bool:
    with contextlib.suppress(*_GONE):
        return process.environ().get(RUN) == run
    return False


def _session(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        return os.getsid(process.pid)
    return None


def memory(run: str) -> int:
    """The bytes of memory that all take together: what several share counts once, where the system tells."""
    used = 0
    for process in processes(run):
        with contextlib.suppress(*_GONE):
            info = process.memory_full_info()
            used += next(getattr(info, name) for name in _SIZES if hasattr(info, name))
    return used


def pause(run: str, known: Iterable[int]) -> frozenset[int]:
    """Stop all, loader workers and other children too, until `resume`; return their groups once they stand still.

    The groups that are `known` stop at once: it takes time to look for others, and they would work meanwhile.
    """
    _signal(known, signal.SIGSTOP)
    end = time.monotonic() + _PATIENCE
    groups = _groups(run)
    while (moving := [group for group, status in groups if status not in _STILL]) and time.monotonic() < end:
        _signal(moving, signal.SIGSTOP)
        time.sleep(0.001)
        groups = _groups(run)
    return frozenset(group for group, _ in groups)


def resume(groups: Iterable[int]) -> None:
    """Let all go on that `pause` has stopped."""
    _signal(groups, signal.SIGCONT)


def kill(run: str) -> None:
    """End all, also those that are paused, and those that are started meanwhile."""
    end = time.monotonic() + _PATIENCE
    while (
        left := [group for group, status in _groups(run) if status != psutil.STATUS_ZOMBIE]
    ) and time.monotonic() < end:
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)


def _groups(run: str) -> list[tuple[int, str]]:
    """The group of each process of the run, and what the process is doing."""
    found: list[tuple[int, str]] = []
    for process in processes(run):
        with contextlib.suppress(ProcessLookupError, *_GONE):
            found.append((os.getpgid(process.pid), process.status()))
    return found


def _signal(groups: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to all processes of groups, each group at once."""
    for group in {*groups} - {os.getpgrp()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
