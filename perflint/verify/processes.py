"""Finds, pauses, resumes and kills all processes of a run, also when the verifier itself is killed.

Processes are known by a variable of their environment, whoever started them. As `python -m perflint.verify.processes
FOLDER` this is the guardian: it waits until the verifier is gone, and cleans up.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from perflint.shim.session import RUN
from perflint.verify.agent.cover import remove
from perflint.verify.agent.journal import put_back

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied)
_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE)
_SIZES = ("pss", "uss", "rss")  # the first that the system reports
_PATIENCE = 10.0  # seconds that processes have to react to signals
_JOURNAL = "journal"
_LONGEST = 60  # characters of a folder: the paths of sockets in it have 104 at most


def processes(run: str) -> Iterator[psutil.Process]:
    """The living processes of the run whose folder is `run`, except this one.

    Children without an environment are found by their session.
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
    used = 0
    for process in processes(run):
        with contextlib.suppress(*_GONE):
            info = process.memory_full_info()
            used += next(getattr(info, name) for name in _SIZES if hasattr(info, name))
    return used


def pause(run: str, known: Iterable[int]) -> frozenset[int]:
    """Stop all processes of a run, the groups that are `known` at once; return their groups once they stand still."""
    _signal(known, signal.SIGSTOP)
    end = time.monotonic() + _PATIENCE
    groups = _groups(processes(run))
    while (moving := [group for group, status in groups if status not in _STILL]) and time.monotonic() < end:
        _signal(moving, signal.SIGSTOP)
        time.sleep(0.001)
        groups = _groups(processes(run))
    return frozenset(group for group, _ in groups)


def resume(groups: Iterable[int]) -> None:
    _signal(groups, signal.SIGCONT)


def kill(run: str) -> None:
    found: set[psutil.Process] = set()  # kept: a dying process has lost its environment already
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        found.update(processes(run))
        left = [group for group, status in _groups(found) if status != psutil.STATUS_ZOMBIE]
        if not left:
            return
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)


def _groups(family: Iterable[psutil.Process]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for process in family:
        with contextlib.suppress(ProcessLookupError, *_GONE):
            if process.is_running():  # else its number may be another's
                found.append((os.getpgid(process.pid), process.status()))
    return found


def _signal(groups: Iterable[int], number: signal.Signals) -> None:
    for group in {*groups} - {os.getpgrp()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


class Guardian:
    """A process that outlives this one, kills what it has started, and removes `folder`, which all of it may use.

    Programs keep the files that they change in `journal`.
    """

    def __init__(self) -> None:
        usual = tempfile.gettempdir()
        self.folder = Path(usual if len(usual) <= _LONGEST else "/tmp") / f"perflint-{secrets.token_hex(6)}"
        self.journal = self.folder / _JOURNAL
        command = [sys.executable, "-m", __spec__.name, str(self.folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)
        self.folder.mkdir(mode=0o700)  # after the guardian has started, which removes it
        self.journal.mkdir()

    def watch(self, run: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{run}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main(folder: str) -> None:
    """Wait until the verifier is gone, then kill its runs, restore files and remove folders."""
    runs = [line.rstrip("\n") for line in sys.stdin]
    for run in runs:
        if Path(run).exists():  # else it has been killed
            kill(run)
    put_back(Path(folder) / _JOURNAL)
    for each in (*runs, folder):
        remove(each)


if __name__ == "__main__":
    main(sys.argv[1])
