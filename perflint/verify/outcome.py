"""What a verification comes to."""

from __future__ import annotations

from enum import Enum


class Outcome(str, Enum):
    """What a verdict comes to; a race alone comes to one of the first four."""

    FASTER = "faster"  # and, as a verdict, the same: the only one that is a success
    SLOWER = "slower"
    LEVEL = "nothing to gain"  # a gain of 5 % is ruled out
    UNSURE = "can't tell"
    DIFFERENT = "different"
    UNCHECKED = "not checkable"
    UNFIXED = "nothing to fix"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value
