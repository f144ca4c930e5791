"""Edits of a text, the fixes that are made of them, and what a fix promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property


class Safety(str, Enum):
    """What a fix promises about results; `perflint verify` holds it to that."""

    EXACT = "exact"  # bitwise the same results
    ROUNDING = "rounding"  # the same mathematics in another order of floats
    PRECISION = "precision"  # other number formats: TF32, bfloat16
    BEHAVIOUR = "behaviour"  # random streams, types or memory change

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters [start, end) of the checked text by `text`."""

    start: int
    end: int
    text: str


class Unrenderable(Exception):
    """A fix that cannot be written, and why."""


Change = tuple[Edit, ...] | Callable[[], tuple[Edit, ...]]


@dataclass(frozen=True)
class Fix:
    """A patch: all of its edits are applied, or none.

    `change` gives the edits when they are asked for, or is them (see `perflint.transforms.rewrite`). `requires` names
    the distribution that the fixed program imports and the original one doesn't, if there is one. `assumes` says what a
    run has shown and nothing proves: the fixed program asks, and does what the original one does where it isn't so.
    """

    title: str
    safety: Safety
    change: Change = field(compare=False)
    requires: str = ""
    assumes: str = ""

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """What the change does to the text; raises Unrenderable."""
        return self.change() if callable(self.change) else self.change

    @property
    def is_safe(self) -> bool:
        """Is it applied without being asked for?"""
        return is_safe(self.safety, self.requires, self.assumes)

    def __reduce__(self) -> tuple[type[Fix], tuple[object, ...]]:
        """What goes to other processes: the edits, if they are written, and not the program that they are made of."""
        return Fix, (self.title, self.safety, self.__dict__.get("edits", ()), self.requires, self.assumes)


def is_safe(safety: Safety, requires: str, assumes: str) -> bool:
    """Is a fix applied without being asked for: the same results, nothing new to install, and nothing assumed?"""
    return safety in (Safety.EXACT, Safety.ROUNDING) and not requires and not assumes
