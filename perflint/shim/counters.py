"""Counts, in files that survive their processes, how often patched files were loaded and changes were run."""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Callable, Iterator, MutableSequence
from pathlib import Path
from typing import NamedTuple

CALL = "__perflint_call__"  # the global decorator by which the verifier is told of calls

_SUFFIX = ".counts"
_BYTES = struct.calcsize("Q")
_NONE: MutableSequence[int] = array("Q")


class Counters:
    """The `count` counters of a process, by its name if it has one, in a file that is there once it has counted.

    Processes that it forks count for themselves.
    """

    def __init__(self, folder: Path, count: int, name: str = "") -> None:
        self._place = folder, count
        self._name = name
        self._numbers: MutableSequence[int] = _NONE
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def of(self, first: int) -> Callable[[int], None]:
        """What counts one more of the counters from `first` on: a function by itself, as torch.compile wants it."""

        def hit(number: int) -> None:
            if self._numbers is _NONE:
                self._numbers = _counts(*self._place, self._name)
            self._numbers[first + number] += 1

        return hit

    def _begin_anew(self) -> None:
        self._numbers, self._name = _NONE, ""


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
        if len(content) == _size(count):
            yield Process(name, struct.unpack(f"{len(content) // _BYTES}Q", content)[:count])


def _counts(folder: Path, count: int, name: str) -> MutableSequence[int]:
    try:
        return mapped(folder / f"{name or os.getpid()}.{os.urandom(4).hex()}{_SUFFIX}", count)  # numbers come again
    except OSError:  # the run is over, and this process goes on without it, or there is no room
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
