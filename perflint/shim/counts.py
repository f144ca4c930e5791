"""Counts what takes effect in a run, in memory-mapped files that survive their processes."""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from perflint.shim.hooks import Undo, after, before, replace, undo_all

CALL = "__perflint_call__"  # the global decorator by which the verifier is told of calls
CUT, DUE = "__perflint_cut__", "__perflint_due__"  # global functions around what it shortens: iterables and tests
GRAPHS = "perflint.runtime.records"  # the module whose records count replays
FIXES, _GRAPH = "fixes", "graph"  # kinds of tallies
_BYTES = struct.calcsize("Q")


class Tally:
    """A counter of some `kind` under a `name`, with a remark, which forked processes share.

    `process` is what to call this one, if not by its pid.
    """

    def __init__(self, run: Path, kind: str, name: str, process: str = "") -> None:
        self._path = run / f"{process or os.getpid()}.{time.time_ns():020}.{kind}"  # pids are reused
        self._name = name
        self._count = _mapped(self._path)
        self.remark("")

    def add(self) -> None:
        self._count[0] += 1

    def remark(self, text: str) -> None:
        with suppress(OSError), self._path.open("r+b") as file:
            file.seek(_BYTES)
            file.write(json.dumps([self._name, text]).encode("ascii"))
            file.truncate()


def counter(run: Path, path: str, process: str = "") -> Callable[[int], None]:
    """A function that counts by the numbers of a file's changes, 0 for its loading; a plain one, for torch.compile.

    Forked processes count for themselves.
    """
    tallies: dict[int, Tally] = {}
    names = [process]

    def hit(number: int) -> None:
        tally = tallies.get(number)
        if tally is None:
            tally = tallies[number] = Tally(run, FIXES, change(path, number), names[0])
        tally.add()

    def start_anew() -> None:
        tallies.clear()
        names[0] = ""

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=start_anew)
    return hit


def change(path: str, number: int) -> str:
    return f"{number} {path}"


def _mapped(path: Path) -> MutableSequence[int]:
    zero = bytes(_BYTES)
    try:
        with path.open("x+b") as file:
            file.write(zero)  # a sparse file would kill the process on a full disk
            file.flush()
            return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")  # type: ignore[return-value]
    except OSError:
        return array("Q", zero)


class Tallied(NamedTuple):
    """What was counted under a name, a remark on it, and the process, by its name or pid, "" for all of them."""

    name: str
    times: int
    remark: str
    process: str = ""


def read(run: Path, kind: str) -> list[Tallied]:
    """The tallies of a `kind` in a run, by process and age, those of named processes first."""
    found = []
    for file in run.glob(f"*.{kind}"):
        process, content = file.name.partition(".")[0], file.read_bytes()
        with suppress(ValueError):  # of a process that was killed as it started
            name, remark = json.loads(content[_BYTES:])
            times = int.from_bytes(content[:_BYTES], sys.byteorder)
            found.append(((process.isdigit(), len(process), file.name), Tallied(name, times, remark, process)))
    return [tally for _, tally in sorted(found)]


def tallied(run: Path, kind: str) -> list[Tallied]:
    found: dict[str, Tallied] = {}
    for name, times, remark, _ in read(run, kind):
        known = found.get(name, Tallied(name, 0, ""))
        found[name] = Tallied(name, known.times + times, known.remark or remark)
    return list(found.values())


def count_graphs(run: Path, module: Any) -> Undo:
    """Count how often graphed functions are replayed, and remark why others stay eager, by the module of records."""

    def tally(records: Any) -> Tally:
        if not hasattr(records, "tally"):
            records.tally = Tally(run, _GRAPH, records._name)
        return records.tally  # type: ignore[no-any-return]

    kind = module.Records
    patched = {
        "__init__": after(kind.__init__, lambda _, each, *args, **kwargs: tally(each)),
        "replayed": after(kind.replayed, lambda _, each: tally(each).add()),
        "refuse": before(kind.refuse, lambda each, mode, reason: tally(each).remark(reason)),
    }
    return undo_all([replace(kind, name, new) for name, new in patched.items()])


def graphed(run: Path) -> Iterator[Tallied]:
    torch = sys.modules.get("torch")
    seldom = "it was not called often enough" if not torch or torch.cuda.is_available() else "there is no device"
    return (each._replace(remark=each.remark or seldom) for each in tallied(run, _GRAPH))
