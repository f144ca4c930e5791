"""Counters that no plan foresees, for graphs and compiled modules, which survive their processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from perflint.shim.counters import mapped, unheard

_COUNT = 8  # bytes, in front of the name and the remark


class Tally:
    """A count of something of this `kind` with a `name`, and a remark; processes that are forked add to the same."""

    def __init__(self, run: Path, kind: str, name: str) -> None:
        self._path = run / f"{os.getpid()}.{os.urandom(4).hex()}.{kind}"
        self._name = name
        try:
            self._count = mapped(self._path, 1)
        except OSError:  # the run is over, or there is no room
            self._count = unheard(1)
        self.remark("")

    def add(self) -> None:
        """Count one more."""
        self._count[0] += 1

    def remark(self, text: str) -> None:
        """Say something of it, in place of what was said before."""
        with suppress(OSError), self._path.open("r+b") as file:
            file.seek(_COUNT)
            file.write(json.dumps([self._name, text]).encode("ascii"))
            file.truncate()


class Tallied(NamedTuple):
    """What all processes of a run counted under one name, and the first remark on it."""

    name: str
    times: int
    remark: str


def tallied(run: Path, kind: str) -> list[Tallied]:
    """What the processes of a run counted of a `kind`; nothing of one that was killed as it began to."""
    found: dict[str, Tallied] = {}
    for name, times, remark in _each(run, kind):
        before = found.get(name, Tallied(name, 0, ""))
        found[name] = Tallied(name, before.times + times, before.remark or remark)
    return list(found.values())


def _each(run: Path, kind: str) -> Iterator[tuple[str, int, str]]:
    for file in sorted(run.glob(f"*.{kind}")):
        content = file.read_bytes()
        with suppress(ValueError):
            name, remark = json.loads(content[_COUNT:])
            yield name, int.from_bytes(content[:_COUNT], sys.byteorder), remark
