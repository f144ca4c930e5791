"""What can be done about a costly read: its fix, or what stands in the way of one."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from perflint.analysis.heat.hot_syncs import first_reads, hot_syncs, is_repeated
from perflint.analysis.heat.syncs import Sync
from perflint.analysis.links import HotPlace
from perflint.analysis.program import Program
from perflint.syntax.source import Fix
from perflint.transforms.accumulate import accumulation
from perflint.transforms.advice import advice
from perflint.transforms.blocked import Blocked
from perflint.transforms.collected import slot_store
from perflint.transforms.deferral import deferral
from perflint.transforms.rewrite import Rewrite
from perflint.transforms.waits import HostRead, beside


@dataclass(frozen=True)
class Remedy:
    """What may be done about a loop, whose kind it may prove to be another, and why; `blocked` says why nothing is."""

    kind: str
    because: str
    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


@dataclass(frozen=True)
class TrainingStep:
    """A step of training, at its backward pass, and the fix that makes it one CUDA graph; `blocked` says why not."""

    backward: ast.Call
    fixes: tuple[Fix, ...] = ()
    blocked: str = ""


def remedies(program: Program) -> list[HostRead]:
    """Each costly read of the program with its fixes or, where there is none, what blocks them."""
    found = hot_syncs(program)
    reads = [_remedy(program, sync, found) for sync in first_reads(program, found)]
    of_loop: dict[HotPlace | None, list[HostRead]] = defaultdict(list)
    for read in reads:
        of_loop[program.hot_by(read.sync.node)].append(read)
    return [beside(program, read, of_loop[program.hot_by(read.sync.node)]) for read in reads]


def _remedy(program: Program, sync: Sync, found: list[Sync]) -> HostRead:
    repeats = [other for other in found if is_repeated(program, sync, other)]
    try:
        return HostRead(sync, tuple(repeats), (_fix(program, sync, repeats),), "")
    except Blocked as reason:
        return HostRead(sync, tuple(repeats), (), str(reason) or advice(program, sync))


def _fix(program: Program, sync: Sync, repeats: list[Sync]) -> Fix:
    """The fix of a read, with those that read the value once more in each iteration: else nothing would be won.

    Raises Blocked.
    """
    fix = _accumulation(program, sync)
    if fix is None:
        deferral(program, [sync])
    reported = [other for other in repeats if not _is_accumulated(program, other)]
    if fix is None:
        return deferral(program, [sync, *reported])
    return _together(fix, deferral(program, reported)) if reported else fix


def _is_accumulated(program: Program, repeat: Sync) -> bool:
    """Is a value that is read once more added up or collected, rather than reported? Raises Blocked."""
    try:
        is_accumulated = _accumulation(program, repeat) is not None
        if not is_accumulated:
            deferral(program, [repeat])
    except Blocked:
        line = program.source.position(repeat.start)[0]
        raise Blocked(f"line {line} reads the same value in every iteration") from None
    return is_accumulated


def _accumulation(program: Program, sync: Sync) -> Fix | None:
    """The fix of a value that is added up or collected; None where it is neither. Raises Blocked."""
    try:
        return slot_store(program, sync) or accumulation(program, sync)
    except Blocked as reason:
        if str(reason):
            raise
    return None


def _together(one: Fix, other: Fix) -> Fix:
    """Both fixes as one."""
    assert isinstance(one.change, Rewrite) and isinstance(other.change, Rewrite)
    change = Rewrite(one.change.source, (*one.change.operations, *other.change.operations))
    return Fix(f"{one.title}; {other.title}", one.safety, change, other.requires)
