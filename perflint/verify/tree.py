"""All processes of one run of a program, whoever started them: they are known by a variable of their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

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


def pause(run: str) -> None:
    """Stop all, loader workers and other children too, until `resume`; return once they stand still."""
    end = time.monotonic() + _PATIENCE
    while any(status not in _STILL for status in _signal(run, signal.SIGSTOP)) and time.monotonic() < end:
        time.sleep(0.001)


def resume(run: str) -> None:
    """Let all go on."""
    _signal(run, signal.SIGCONT)


def kill(run: str) -> None:
    """End all, also those that are paused, and those that are started meanwhile."""
    end = time.monotonic() + _PATIENCE
    while any(status != psutil.STATUS_ZOMBIE for status in _signal(run, signal.SIGKILL)) and time.monotonic() < end:
        time.sleep(0.02)


def _signal(run: str, number: signal.Signals) -> list[str]:
    """Send a signal to all; return what each was doing before."""
    found: list[str] = []
    for process in processes(run):
        with contextlib.suppress(*_GONE):
            found.append(process.status())
            process.send_signal(number)
    return found
