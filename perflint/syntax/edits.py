"""Edits of a text, the fixes that are made of them, and what a fix promises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Safety(str, Enum):
    """What a fix promises about results; `perflint verify` holds it to that."""

    EXACT = "exact"  # bitwise the same results
    ROUNDING = "rounding"  # the same mathematics in another order of floats
    BEHAVIOUR = "behaviour"  # random streams, precision, types or memory change

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters [start, end) of the checked text by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Fix:
    """A patch: all of its edits are applied, or none.

    `requires` names the distribution that the fixed program imports and the original one doesn't, if there is one.
    """

    title: str
    safety: Safety
    edits: tuple[Edit, ...]
    requires: str = ""

    @property
    def is_safe(self) -> bool:
        """Is it applied without being asked for?"""
        return is_safe(self.safety, self.requires)


def is_safe(safety: Safety, requires: str) -> bool:
    """Is a fix applied without being asked for: the same results, and nothing new to install?"""
    return safety is not Safety.BEHAVIOUR and not requires
