"""Notes how often the graphs of a run were replayed, and why those that never were stayed eager."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from perflint.shim.watches import Undo, replace

MODULE = "perflint.runtime.records"
_SUFFIX = ".graphs"


class Graphed(NamedTuple):
    """A function or loop that may run as graphs: how often a graph of it was replayed, or why none was."""

    name: str
    replays: int
    reason: str


class Graphs:
    """The graphed functions of this process, which are written to the folder `run` as it ends."""

    def __init__(self, run: Path) -> None:
        self._run, self._process = run, os.getpid()
        self._replays: dict[str, int] = {}  # by the names of functions
        self._records: weakref.WeakSet[Any] = weakref.WeakSet()  # which hold memory of the device

    def watch(self, records: ModuleType) -> Undo:
        """See each function's records in the module of these as they are made and used."""
        kind = records.Records
        make, replayed = kind.__init__, kind.replayed

        @functools.wraps(make)
        def init(each: Any, *args: Any, **kwargs: Any) -> None:
            make(each, *args, **kwargs)
            self._replays.setdefault(each._name, 0)
            self._records.add(each)

        @functools.wraps(replayed)
        def count(each: Any) -> None:
            self._replays[each._name] += 1
            replayed(each)

        undo = replace(kind, "__init__", init), replace(kind, "replayed", count)
        atexit.register(self.write)

        def undo_both() -> None:
            self.write()
            atexit.unregister(self.write)
            for each in undo:
                each()

        return undo_both

    def write(self) -> None:
        """Leave what was seen for the summary."""
        refused = {each._name: reason for each in self._records for reason in each.refused.values()}
        seen = [Graphed(name, count, refused.get(name, _reason())) for name, count in self._replays.items()]
        if seen and self._run.is_dir() and os.getpid() == self._process:  # and no child, which would count again
            (self._run / f"{self._process}{_SUFFIX}").write_text(json.dumps(seen), "utf-8")


def _reason() -> str:
    torch = sys.modules["torch"]
    return "it was not called often enough" if torch.cuda.is_available() else "there is no device"


def graphed(run: Path) -> Iterator[Graphed]:
    """What the processes of a run wrote, that of one name together."""
    found: dict[str, Graphed] = {}
    for file in sorted(run.glob(f"*{_SUFFIX}")):
        for name, replays, reason in json.loads(file.read_text("utf-8")):
            before = found.get(name, Graphed(name, 0, ""))
            found[name] = Graphed(name, before.replays + replays, before.reason or reason)
    return iter(found.values())
