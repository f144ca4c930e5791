"""What can be done about a costly read: its fix, or what stands in the way of one."""

from __future__ import annotations

from dataclasses import dataclass

from perflint.analysis.heat.hot_syncs import first_reads, hot_syncs, is_repeated
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.program import Program
from perflint.syntax.edits import Fix
from perflint.transforms.accumulate import accumulation
from perflint.transforms.advice import advice
from perflint.transforms.blocked import Blocked


@dataclass(frozen=True)
class Remedy:
    """What may be done about a loop, whose kind it may prove to be another, and why; `blocked` says why nothing is."""

    kind: str
    because: str
    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


def remedies(program: Program) -> list[tuple[Sync, tuple[Fix, ...], str]]:
    """Each costly read of the program with its fixes or, where there is none, what blocks them."""
    found = hot_syncs(program)
    return [(sync, *_remedy(program, sync, found)) for sync in first_reads(program, found)]


def _remedy(program: Program, sync: Sync, found: list[Sync]) -> tuple[tuple[Fix, ...], str]:
    try:
        fix = accumulation(program, sync)
        _check_repeats(program, sync, found)
    except Blocked as reason:
        return (), str(reason) or advice(program, sync)
    return (fix,), ""


def _check_repeats(program: Program, sync: Sync, found: list[Sync]) -> None:
    """Raise Blocked where the same value is read once more in each iteration, so that nothing would be won."""
    for other in found:
        if is_repeated(program, sync, other):
            try:
                accumulation(program, other)
            except Blocked:
                line = program.source.position(other.start)[0]
                raise Blocked(f"line {line} reads the same value in every iteration") from None
