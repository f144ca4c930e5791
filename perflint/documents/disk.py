"""Reads files, and replaces them atomically."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from perflint.documents.places import Problem

MAX_BYTES = 256_000_000


class Unreadable(Exception):
    """A file that cannot be checked, and why."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(message, line)

    def __reduce__(self) -> tuple[type[Unreadable], tuple[str, int | None]]:
        return Unreadable, (self.problem.message, self.problem.line)


class Unwritable(Exception):
    """Why a changed file was not written, in one line; the file is as it was."""


class Changed(Unwritable):
    """The file is no longer what was read."""


def read_bytes(path: Path) -> bytes:
    """The content of the regular file at `path`; raises Unreadable."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is not a regular file")
        if status.st_size > MAX_BYTES:
            raise Unreadable(f"is too large: {status.st_size:,} bytes; the limit is {MAX_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from error


def replace_bytes(path: Path, before: bytes, after: bytes) -> None:
    """Atomically give the file at `path`, or the one that it links to, the content `after`; mode and owner stay.

    Raises Changed if its content is not `before`, and Unwritable if it cannot be written.
    """
    try:
        target = path.resolve(strict=True)
        status = target.stat()
        if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise Unwritable(f"{path}: not written: the file is read-only")
        _require(target, before, path)
        temporary = _write_temporary(target, after, status)
    except OSError as error:
        raise Unwritable(f"{path}: not written: {error.strerror or error}") from error
    try:
        _require(target, before, path)
        temporary.replace(target)
    except OSError as error:
        raise Unwritable(f"{path}: not written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(target.parent)


def write_text(path: Path, text: str) -> None:
    """Atomically put `text` into the file at `path`, or the one that it links to, new or not; raises OSError."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _require(target: Path, before: bytes, path: Path) -> None:
    if target.read_bytes() != before:
        raise Changed(f"{path}: not written: the file changed after it was read")


def _write_temporary(target: Path, data: bytes, status: os.stat_result) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _copy_owner(temporary, status)
        temporary.chmod(stat.S_IMODE(status.st_mode))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _copy_owner(temporary: Path, status: os.stat_result) -> None:
    own = temporary.stat()
    if hasattr(os, "chown") and (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        with contextlib.suppress(OSError):
            os.chown(temporary, status.st_uid, status.st_gid)


def _flush_folder(folder: Path) -> None:
    """Make the new directory entry last through a crash, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
