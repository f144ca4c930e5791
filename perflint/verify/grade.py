"""Grades of how alike the results of two programs are, and the outcomes of a verification."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from perflint.engine.rule import Safety


class Grade(str, Enum):
    """How alike results are, the most alike first."""

    BITWISE = "bitwise"
    ROUNDING = "rounding"  # floats were added in another order
    ALIKE = "alike"  # no more different than two runs with different seeds
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # can't be checked

    def __str__(self) -> str:
        return self.value

    @property
    def is_same(self) -> bool:
        return self in _SAME


NO_TIME = "there was no time to record what it computes"
_SAME = (Grade.BITWISE, Grade.ROUNDING, Grade.ALIKE)
_PROMISED = {Safety.EXACT: Grade.BITWISE, Safety.ROUNDING: Grade.ROUNDING}  # others: statistically alike


@dataclass(frozen=True)
class Likeness:
    """A grade and its evidence, in sentences without full stops, the most telling first.

    It `is_crowded` if it is that of a run with other fixes, too.
    """

    grade: Grade
    evidence: tuple[str, ...] = ()
    is_crowded: bool = False

    def keeps(self, promise: Safety, own: Grade) -> bool:
        """Whether this is what a fix with that promise owes, where two runs of the original are alike by `own`."""
        if not self.grade.is_same or not own.is_same:
            return False
        owed = max(_PROMISED.get(promise, Grade.ALIKE), own, key=_SAME.index)
        return _SAME.index(self.grade) <= _SAME.index(owed)

    @property
    def crowded(self) -> Likeness:
        """What this tells of a fix that ran with others: what differs need not be its doing."""
        told = tuple(f"together with the others {each}" for each in self.evidence)
        return replace(self, evidence=told, is_crowded=True)


class Outcome(str, Enum):
    """The outcome of a verification; that of a race is one of the first four."""

    FASTER = "faster"  # and, as a verdict, the same: the only success
    SLOWER = "slower"
    LEVEL = "nothing to gain"  # a gain of 5 % is ruled out
    UNSURE = "can't tell"
    DIFFERENT = "different"
    UNCHECKED = "not checkable"
    UNFIXED = "nothing to fix"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


def worst(likenesses: Iterable[Likeness]) -> Likeness:
    grades = (Grade.BITWISE, Grade.ROUNDING, Grade.ALIKE, Grade.UNKNOWN, Grade.DIFFERENT)
    return max(likenesses, key=lambda each: grades.index(each.grade))
