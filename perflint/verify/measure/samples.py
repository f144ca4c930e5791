"""What a race measures: the time of windows of steps, of several variants of a program in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass

ORIGINAL, AGAIN, PATCHED = "original", "original again", "patched"  # every race holds these
ORIGINALS = (ORIGINAL, AGAIN)  # the same program twice: how they differ is noise
KEPT, WHOLE = "the fixes kept so far", "all fixes"  # variants of a patch that is being chosen


@dataclass(frozen=True)
class Window:
    """`steps` consecutive steps of one variant, which took `seconds` (> 0) from idle device to idle device.

    A round has a process of its own for each variant. The windows of a round that have the same number are the same
    steps of the program, measured one behind the other, and are compared with each other. Of several ranks, the slowest
    counts.
    """

    variant: str
    round: int
    number: int
    seconds: float
    steps: int

    def __post_init__(self) -> None:
        if not (0 < self.seconds < math.inf and self.steps > 0):
            raise ValueError(f"no window has {self.steps} steps in {self.seconds} s")


@dataclass(frozen=True)
class Samples:
    """Every window of a race, in the order in which they were measured."""

    windows: tuple[Window, ...] = ()


def subject(variant: str) -> str:
    """The program that is called so, as the subject of a sentence."""
    if variant in ORIGINALS:
        return "the original"
    return f"the {variant} program" if variant == PATCHED else f"the program with {variant}"


def only(fix: str) -> str:
    """The variant with one fix alone."""
    return f"only {fix}"


def more(fix: str) -> str:
    """The variant with one more fix than those that are kept so far."""
    return f"{KEPT}, and {fix}"
