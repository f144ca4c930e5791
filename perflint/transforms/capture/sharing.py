"""Which names of a function may be aliases, so that a write to one of them is seen by another."""

from __future__ import annotations

from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import Location
from perflint.analysis.program import Program
from perflint.syntax.walk import PlainLoop

ELSEWHERE = "<elsewhere>"  # stands for all that is no name of the function


def sharing(program: Program, loop: PlainLoop, name: str) -> set[str]:
    """The other names that may be aliases of `name`, at any time; ELSEWHERE if what is no name may be one."""
    points = program.get(Memory).points_to(loop)
    if not points.is_known:
        return {ELSEWHERE, *points.names} - {name}
    places = points.outer(name)
    found = {other for other in points.names if other != name and _overlap(points.outer(other), places)}
    holders = {place for (place, _), held in points.cells.held.items() if not places.isdisjoint(held)}
    if any(place.is_outside for place in (*places, *holders)):
        found.add(ELSEWHERE)
    return found | {other for other in points.names if not holders.isdisjoint(points.outer(other))} - {name}


def _overlap(some: frozenset[Location], others: frozenset[Location]) -> bool:
    return any(one.may_be(other) for one in some for other in others)
