"""The folder that the processes of a run write their records to; it survives a run that is killed.

Each process that uses the folder holds a lock on it, which also keeps cleaners of temporary files away.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from perflint.shim.plan import UNREADABLE, Plan, load
from perflint.shim.session import plan_of

_PREFIX = "perflint-run-"
_KEEP_S = 7 * 86_400


class RunFolder:
    """A folder that this process uses for itself and its children, or shares with the other ranks of its host."""

    def __init__(self, path: Path, lock: int | None, shared: bool) -> None:
        self.path, self._lock, self._shared = path, lock, shared

    def leave(self) -> None:
        """Release the folder; the last process to do so removes it."""
        if not self._shared or (self._lock is not None and _locks(self._lock, alone=True)):
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)


def enter() -> RunFolder:
    """A new folder; where a launcher has started several ranks on this host, the one that they share."""
    if os.name == "nt":
        return RunFolder(Path(tempfile.mkdtemp(prefix=_PREFIX)), None, shared=False)
    if not _is_rank():
        return again(Path(tempfile.mkdtemp(prefix=_PREFIX)))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    path = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}-{os.getppid()}-{attempt}"
    lock = None
    while lock is None:
        lock = _joined(path)
    return RunFolder(path, lock, shared=True)


def again(path: Path) -> RunFolder:
    """The folder at `path`, which this process has made, or has used before it became another program."""
    lock = os.open(path, os.O_RDONLY)
    _locks(lock, alone=False)
    return RunFolder(path, lock, shared=_is_rank())


def _is_rank() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def latest(root: Path) -> tuple[Path, Plan] | None:
    """The latest run of the project at `root` that still runs or was killed: its folder and plan."""
    found = []
    for path in _folders():
        with suppress(*UNREADABLE):
            plan = load(plan_of(path))
            if plan.root == os.path.realpath(root):
                found.append((path.stat().st_mtime_ns, path, plan))
    return max(found)[1:] if found else None


def sweep() -> None:
    """Remove old folders of runs that were killed."""
    for path in _folders():
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY)
            if path.stat().st_mtime < time.time() - _KEEP_S and _locks(lock, alone=True):
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _folders() -> Iterator[Path]:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if path.lstat().st_uid == os.getuid():
                yield path


def _joined(path: Path) -> int | None:
    """A shared lock on the folder at `path`; None if it has just been removed."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    if os.fstat(lock).st_uid != os.getuid():
        raise PermissionError(f"{path} is somebody else's")
    if _locks(lock, alone=True):
        for file in path.iterdir():  # of processes that were killed
            file.unlink(missing_ok=True)
    _locks(lock, alone=False)
    with suppress(OSError):
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    os.close(lock)
    return None


def _locks(lock: int, *, alone: bool) -> bool:
    """Lock a folder, exclusively if `alone` and it is free, else shared; return whether that succeeded."""
    try:
        import fcntl  # here: there is none on Windows

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except (OSError, ImportError):  # others hold it, or there are no locks in this place
        return False
    return True
