"""Counts in files that outlive their processes how often each patched file was loaded, and each change was run."""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Iterator, MutableSequence
from pathlib import Path
from typing import NamedTuple

HIT = "__perflint_hit__"  # the global function by which patched code counts
CALL = "__perflint_call__"  # the global decorator by which the verifier is told of calls

_SUFFIX = ".counts"
_BYTES = struct.calcsize("Q")


class Counters:
    """The counters of a process, by its name if it has one; those that it forks count for themselves."""

    def __init__(self, folder: Path, count: int, name: str = "") -> None:
        numbers = _counts(folder, count, name)

        def hit(number: int) -> None:
            numbers[number] += 1

        def begin_anew() -> None:
            nonlocal numbers
            try:
                numbers = _counts(folder, count, "")
            except OSError:  # there is no room
                numbers = unheard(count)

        self.hit = hit  # counts one more; a function by itself, as torch.compile wants it
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=begin_anew)


class Process(NamedTuple):
    """A process of a run, which loaded or ran something patched: its name or its number, and its counts."""

    name: str
    counts: tuple[int, ...]


def read(folder: Path, count: int) -> Iterator[Process]:
    """The processes that wrote `count` counts to `folder`, those with names first.

    Of one that was killed as it began there are none.
    """
    named = {file: file.name.partition(".")[0] for file in folder.glob(f"*{_SUFFIX}")}
    for file, name in sorted(named.items(), key=lambda item: (item[1].isdigit(), len(item[1]), item[0].name)):
        content = file.read_bytes()
        if len(content) == _size(count) and any(content):
            yield Process(name, struct.unpack(f"{len(content) // _BYTES}Q", content)[:count])


def _counts(folder: Path, count: int, name: str) -> MutableSequence[int]:
    try:
        return mapped(folder / f"{name or os.getpid()}.{os.urandom(4).hex()}{_SUFFIX}", count)  # numbers come again
    except FileNotFoundError:  # the run is over, and this process goes on without it
        return unheard(count)


def mapped(path: Path, count: int) -> MutableSequence[int]:
    """Zeros in a new file at `path`, which what is written to them is written to; raises OSError."""
    with path.open("x+b") as file:
        file.write(bytes(_size(count)))  # not a hole in the file: to write to that on a full disk kills the process
        file.flush()
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")  # type: ignore[return-value]


def unheard(count: int) -> MutableSequence[int]:
    """Zeros that nobody will read."""
    return array("Q", bytes(_size(count)))


def _size(count: int) -> int:
    return max(count, 1) * _BYTES
