"""Counts what takes effect in a run, in memory-mapped files that survive their processes."""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from perflint.shim.hooks import Undo, Watch, after, before, replace, undo_all

CALL = "__perflint_call__"  # the global decorator by which the verifier is told of calls
GRAPHS = "perflint.runtime.records"  # the module whose records count replays
_GRAPH = "graph"
_SUFFIX = ".counts"
_BYTES = struct.calcsize("Q")
_NONE: MutableSequence[int] = array("Q")


class Counters:
    """The `count` counters of a process, which are written to `folder` once one has counted.

    The process is reported by its `name` if it has one, else by its pid. Forked processes count for themselves.
    """

    def __init__(self, folder: Path, count: int, name: str = "") -> None:
        self._folder, self._count, self._name = folder, count, name
        self._numbers: MutableSequence[int] = _NONE
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    def of(self, first: int) -> Callable[[int], None]:
        """A function that increments the counters from `first` on; a plain one, as torch.compile needs it."""

        def hit(number: int) -> None:
            if self._numbers is _NONE:  # pids are reused: the name has a random part
                name = f"{self._name or os.getpid()}.{os.urandom(4).hex()}{_SUFFIX}"
                self._numbers = _mapped(self._folder / name, self._count)
            self._numbers[first + number] += 1

        return hit

    def _start_anew(self) -> None:
        self._numbers, self._name = _NONE, ""


class Process(NamedTuple):
    """The counts of a process that loaded or ran something patched, and its name or pid."""

    name: str
    counts: tuple[int, ...]


def read(folder: Path, count: int) -> Iterator[Process]:
    """The processes that wrote `count` counts to `folder`, named ones first; none that was killed as it started."""
    named = {file: file.name.partition(".")[0] for file in folder.glob(f"*{_SUFFIX}")}
    for file, name in sorted(named.items(), key=lambda item: (item[1].isdigit(), len(item[1]), item[0].name)):
        content = file.read_bytes()
        if len(content) == max(count, 1) * _BYTES:
            yield Process(name, struct.unpack(f"{len(content) // _BYTES}Q", content)[:count])


def _mapped(path: Path, count: int) -> MutableSequence[int]:
    """`count` zeros, backed by a new file; by nothing where the run is over or the disk is full."""
    zeros = bytes(max(count, 1) * _BYTES)
    try:
        with path.open("x+b") as file:
            file.write(zeros)  # a sparse file would kill the process on a full disk
            file.flush()
            return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")  # type: ignore[return-value]
    except OSError:
        return array("Q", zeros)


class Tally:
    """A counter of some `kind` with a `name` and a remark, which no plan foresees; forked processes share it."""

    def __init__(self, run: Path, kind: str, name: str) -> None:
        self._path = run / f"{os.getpid()}.{os.urandom(4).hex()}.{kind}"
        self._name = name
        self._count = _mapped(self._path, 1)
        self.remark("")

    def add(self) -> None:
        """Count one more."""
        self._count[0] += 1

    def remark(self, text: str) -> None:
        """Replace the remark."""
        with suppress(OSError), self._path.open("r+b") as file:
            file.seek(_BYTES)
            file.write(json.dumps([self._name, text]).encode("ascii"))
            file.truncate()


class Tallied(NamedTuple):
    """What all processes of a run counted under one name, and the first remark on it."""

    name: str
    times: int
    remark: str


def tallied(run: Path, kind: str) -> list[Tallied]:
    """The tallies of a `kind` in a run, those of one name added up."""
    found: dict[str, Tallied] = {}
    for file in sorted(run.glob(f"*.{kind}")):
        content = file.read_bytes()
        with suppress(ValueError):  # of a process that was killed as it started
            name, remark = json.loads(content[_BYTES:])
            known = found.get(name, Tallied(name, 0, ""))
            times = known.times + int.from_bytes(content[:_BYTES], sys.byteorder)
            found[name] = Tallied(name, times, known.remark or remark)
    return list(found.values())


def count_graphs(run: Path) -> Watch:
    """Counts how often graphed functions are replayed, and remarks why others stay eager."""

    def tally(records: Any) -> Tally:
        if not hasattr(records, "tally"):
            records.tally = Tally(run, _GRAPH, records._name)
        return records.tally  # type: ignore[no-any-return]

    def watch(module: ModuleType) -> Undo:
        kind = module.Records
        patched = {
            "__init__": after(kind.__init__, lambda _, each, *args, **kwargs: tally(each)),
            "replayed": after(kind.replayed, lambda _, each: tally(each).add()),
            "refuse": before(kind.refuse, lambda each, mode, reason: tally(each).remark(reason)),
        }
        return undo_all([replace(kind, name, new) for name, new in patched.items()])

    return watch


def graphed(run: Path) -> Iterator[Tallied]:
    """How often each graphed function of a run was replayed, and why if never."""
    torch = sys.modules.get("torch")
    seldom = "it was not called often enough" if not torch or torch.cuda.is_available() else "there is no device"
    return (each._replace(remark=each.remark or seldom) for each in tallied(run, _GRAPH))
