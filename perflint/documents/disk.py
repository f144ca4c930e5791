"""Reads files, replaces them atomically, and says where in them something stands, or why they can't be read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, order=True)
class Position:
    """A place in a file, or in one cell of a notebook.

    `line` and `column` count characters from 1, `offset` from 0, in the file or in the source of the notebook's cell
    number `cell` (from 0). `program_line` is the line of the program made of all cells.
    """

    cell: int | None
    offset: int
    line: int
    column: int
    program_line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class PlacedEdit:
    start: Position
    end: Position
    text: str


@dataclass(frozen=True)
class Problem:
    """Why a file could not be checked, in one line, and the line in the file if there is one.

    A `traceback` shows a defect of perflint or of a rule; other problems have None.
    """

    message: str
    line: int | None = None
    traceback: str | None = None


MAX_BYTES = 256_000_000


class Unreadable(Exception):
    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(message, line)

    def __reduce__(self) -> tuple[type[Unreadable], tuple[str, int | None]]:
        return Unreadable, (self.problem.message, self.problem.line)


class Unwritable(Exception):
    """Why a changed file was not written, in one line; the file is unchanged."""


def read_bytes(path: Path) -> bytes:
    """Raises Unreadable."""
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
    """Atomically replace the content of the file at `path`, or the one it links to; mode and owner stay.

    Raises Unwritable, also if its content is not `before`.
    """
    try:
        target = path.resolve(strict=True)
        status = target.stat()
        if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise Unwritable(f"{path}: not written: the file is read-only")
        with _replacing(target, after, mode=0o600) as temporary:
            with contextlib.suppress(OSError):  # it may be somebody else's
                if hasattr(os, "chown"):
                    os.chown(temporary, status.st_uid, status.st_gid)
            temporary.chmod(stat.S_IMODE(status.st_mode))
            if target.read_bytes() != before:
                raise Unwritable(f"{path}: not written: the file changed after it was read")
    except OSError as error:
        raise Unwritable(f"{path}: not written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Atomically write `text` to the file at `path`, or the one it links to, new or not; raises OSError."""
    with _replacing(path.resolve(), text.encode("utf-8")):
        pass


@contextlib.contextmanager
def _replacing(target: Path, data: bytes, mode: int = 0o666) -> Iterator[Path]:
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
    try:
        temporary.touch(mode)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
