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
_PATIENCE = 10.0  # seconds that killed processes have to be gone


def processes(run: str) -> Iterator[psutil.Process]:
    """The living processes of the run whose folder is `run`, but for this one."""
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.pid != os.getpid() and process.environ().get(RUN) == run:
                yield process


def pause(run: str) -> None:
    """Stop all, loader workers and other children too, until `resume`."""
    _signal(run, signal.SIGSTOP)


def resume(run: str) -> None:
    """Let all go on."""
    _signal(run, signal.SIGCONT)


def kill(run: str) -> None:
    """End all, also those that are paused, and those that are started meanwhile."""
    end = time.monotonic() + _PATIENCE
    while _signal(run, signal.SIGKILL) and time.monotonic() < end:
        time.sleep(0.02)


def _signal(run: str, number: signal.Signals) -> int:
    living = [process for process in processes(run) if process.status() != psutil.STATUS_ZOMBIE]
    for process in living:
        with contextlib.suppress(*_GONE):
            process.send_signal(number)
    return len(living)
