"""The fixes of a loop over time: all of its steps at once, or captured as a graph."""

from __future__ import annotations

from collections.abc import Callable

from perflint.fixes.blocked import Blocked
from perflint.graphing.candidate import graphed
from perflint.graphing.captured import is_captured
from perflint.lift.branches import lifted_or_divided
from perflint.program import Program
from perflint.program.timeloops import AUTOREGRESSIVE, MIXED, RECURRENCE, VECTORIZABLE
from perflint.program.walk import PlainLoop
from perflint.rule import Fix

__all__ = ["fix_of", "is_captured"]

Way = Callable[[Program, PlainLoop], Fix]

_AT_ONCE = (lifted_or_divided, "not all steps can be computed at once")
_AS_GRAPH = (graphed, "no CUDA graph can hold the loop as it is")
_WAYS = {
    VECTORIZABLE: [_AT_ONCE],
    MIXED: [_AT_ONCE, _AS_GRAPH],
    AUTOREGRESSIVE: [_AS_GRAPH],
    RECURRENCE: [_AS_GRAPH],
}


def fix_of(program: Program, loop: PlainLoop, kind: str) -> tuple[Fix | None, str]:
    """The first way that can be proved to give the same, else what stands in the way of each."""
    tried = [_try(program, loop, *way) for way in _WAYS[kind]]
    fix = next((fix for fix, _ in tried if fix), None)
    return fix, "" if fix else "; ".join(blocked for _, blocked in tried)


def _try(program: Program, loop: PlainLoop, way: Way, failed: str) -> tuple[Fix | None, str]:
    try:
        return way(program, loop), ""
    except Blocked as blocked:
        return None, f"{failed}: {blocked}"
