"""What is verified: a program and the variants of it that are compared, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from perflint.shim.plan import Plan


class Kind(Enum):
    """How a program is named: by its script, as python -m does, or as a function to be called again and again."""

    SCRIPT = "script"
    MODULE = "module"
    CALL = "call"


@dataclass(frozen=True)
class Program:
    """A program, its arguments, and the folder that it is started in."""

    kind: Kind
    name: str
    arguments: tuple[str, ...]
    folder: Path

    def __str__(self) -> str:
        dash = {Kind.SCRIPT: (), Kind.MODULE: ("-m",), Kind.CALL: ("--call",)}[self.kind]
        return " ".join((*dash, self.name, *self.arguments))


class Loop(NamedTuple):
    """A loop of a module itself, and of no function: the real path of its file, and its first and last line."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class Variant:
    """A program's text with some fixes applied, or none, under the name that it is reported by.

    `loops` are those of the original's that hold fixes.
    """

    name: str
    plan: Plan
    loops: tuple[Loop, ...] = ()
