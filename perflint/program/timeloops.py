"""Recognises loops over time, and tells by data flow which kind each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.program.walk import Loop

if TYPE_CHECKING:
    from perflint.program import Program


@dataclass(frozen=True)
class TimeLoop:
    """What is known of a time loop: its kind, and what in the data flow shows it."""

    kind: str
    because: str


def time_loop(program: Program, loop: Loop) -> TimeLoop | None:
    """`loop` as a loop over time, or None if it is none."""
    return None
