"""The fixes of a loop over time: all of its steps at once, or captured as a graph."""

from __future__ import annotations

from collections.abc import Callable

from perflint.analysis.loops.flow import AUTOREGRESSIVE, MIXED, RECURRENCE, VECTORIZABLE
from perflint.analysis.program import Program
from perflint.syntax.source import Fix
from perflint.syntax.walk import PlainLoop
from perflint.transforms.aliases import check_aliases
from perflint.transforms.capture.candidate import graphed
from perflint.transforms.capture.captured import is_captured
from perflint.transforms.remedy import Remedy
from perflint.transforms.rewrite import Blocked
from perflint.transforms.vectorize.rewrite import speculated, vectorized_or_unswitched

__all__ = ["is_captured", "remedy"]

Way = Callable[[Program, PlainLoop], Fix]

_AT_ONCE = (vectorized_or_unswitched, "not all steps can be computed at once")
_AS_GRAPH = (graphed, "no CUDA graph can capture the loop as it is")
_WAYS = {
    VECTORIZABLE: [_AT_ONCE],
    MIXED: [_AT_ONCE, _AS_GRAPH],
    AUTOREGRESSIVE: [_AS_GRAPH],
    RECURRENCE: [
        (vectorized_or_unswitched, ""),
        _AS_GRAPH,
    ],  # whose kind says already that the first way is not to be had
}


def remedy(program: Program, loop: PlainLoop, kind: str, because: str) -> Remedy:
    """The ways that can be proved to give the same, else what stands in the way of each."""
    tried = [(failed, _try(program, loop, way)) for way, failed in _WAYS[kind]]
    fixes = tuple(found for _, found in tried if isinstance(found, Fix))
    if not fixes and kind != AUTOREGRESSIVE and isinstance(guess := _try(program, loop, speculated), Fix):
        return Remedy(kind, because, (guess,))
    if not fixes:
        reasons = (f"{failed}: {found}" for failed, found in tried if failed)
        return Remedy(kind, because, blocked="; ".join(reasons))
    if kind == RECURRENCE and isinstance(tried[0][1], Fix):
        kind, because = VECTORIZABLE, "what it carries is no more than the state of a torch RNN or Cell"
    return Remedy(kind, because, fixes)


def _try(program: Program, loop: PlainLoop, way: Way) -> Fix | Blocked:
    try:
        fix = way(program, loop)
        if way is not graphed:
            check_aliases(program, loop)
        return fix
    except Blocked as blocked:
        return blocked
