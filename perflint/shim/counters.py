"""Counts in a file that outlives its process how often each patched file was loaded, and each change was run."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

HIT = "__perflint_hit__"  # the global function by which patched code counts

_SUFFIX = ".counts"
_BYTES = struct.calcsize("Q")


class Counters:
    """The counters of this process and of those that it forks, which share the file's memory."""

    def __init__(self, folder: Path, count: int) -> None:
        path = folder / f"{os.getpid()}{_SUFFIX}"
        with path.open("w+b") as file:
            file.truncate(max(count, 1) * _BYTES)
            numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

        def hit(number: int) -> None:
            numbers[number] += 1

        self.hit = hit  # counts one more; a function by itself, as torch.compile wants it


def read(folder: Path, count: int) -> list[list[int]]:
    """The `count` counts of each process that wrote to `folder`; one that was killed as it began has none."""
    contents = (file.read_bytes() for file in sorted(folder.glob(f"*{_SUFFIX}")))
    counts = ([number for (number,) in struct.iter_unpack("Q", content)] for content in contents if content)
    return [numbers[:count] for numbers in counts]
