"""What can be done about a costly read: its fix, or what stands in the way of one, and what other reads are worth."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from perflint.analysis.heat.syncs import Sync, first_reads, hot_syncs, is_repeated
from perflint.analysis.links import HotPlace
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import LOOPS, own_nodes, receiver_of
from perflint.transforms.accumulate import accumulation
from perflint.transforms.advice import advice
from perflint.transforms.blocked import Blocked
from perflint.transforms.collected import slot_store
from perflint.transforms.deferral import deferral
from perflint.transforms.rewrite import Rewrite


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
    """The costly reads of the program."""
    found = hot_syncs(program)
    reads = [_remedy(program, sync, found) for sync in first_reads(program, found)]
    of_loop: dict[HotPlace | None, list[HostRead]] = defaultdict(list)
    for read in reads:
        of_loop[program.hot_by(read.sync.node)].append(read)
    return [_beside(program, read, of_loop[program.hot_by(read.sync.node)]) for read in reads]


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
    try:
        is_accumulated = _accumulation(program, repeat) is not None
        if not is_accumulated:
            deferral(program, [repeat])
    except Blocked:
        line = program.source.position(repeat.start)[0]
        raise Blocked(f"line {line} reads the same value in every iteration") from None
    return is_accumulated


def _accumulation(program: Program, sync: Sync) -> Fix | None:
    try:
        return slot_store(program, sync) or accumulation(program, sync)
    except Blocked as reason:
        if str(reason):
            raise
    return None


def _together(one: Fix, other: Fix) -> Fix:
    assert isinstance(one.change, Rewrite) and isinstance(other.change, Rewrite)
    change = Rewrite(one.change.source, (*one.change.operations, *other.change.operations))
    return Fix(f"{one.title}; {other.title}", one.safety, change, other.requires)


_SHOWN = 5  # lines
_FEW = 1  # waits that a fix may leave: behind it, the host runs ahead until that one


class HostRead(NamedTuple):
    """A costly read with its fixes or, where there is none, what blocks them; `repeats` read the value once more."""

    sync: Sync
    repeats: tuple[Sync, ...]
    fixes: tuple[Fix, ...]
    blocked: str


def _beside(program: Program, read: HostRead, of_loop: Sequence[HostRead]) -> HostRead:
    """`read` with fixes that say which waits `of_loop` they leave, and that are not applied without effect.

    Where the host waits again before it has launched anything of weight, or several times more, nothing is gained until
    those waits go, too.
    """
    if not read.fixes:
        return read
    (fix,) = read.fixes
    others = [each for each in of_loop if each is not read]
    left = [each for each in others if not any(other.is_safe or other.requires == fix.requires for other in each.fixes)]
    near = [each for each in left if _is_near(program, read.sync, each.sync)]
    stuck = [each.sync for each in near if not each.fixes] or [
        each for each in _unknown(program, read.sync, of_loop) if _is_near(program, read.sync, each)
    ]
    costly = [each.sync for each in left if not each.fixes]
    is_little = fix.requires or len(costly) > _FEW or any(_is_deeper(program, read.sync, each) for each in costly)
    if stuck or (is_little and costly):
        gain, wait = ("nothing", stuck[0]) if stuck else ("little", costly[0])
        return read._replace(fixes=(), blocked=f"{gain} is gained while line {_line(program, wait)} waits, too")
    lesser = [each for each in others if any(other.safety is Safety.BEHAVIOUR for other in each.fixes)]
    if any(_is_near(program, read.sync, each.sync) for each in lesser):
        fix = replace(fix, safety=Safety.BEHAVIOUR)  # to go with it
    if requires := next((other.requires for each in near for other in each.fixes if other.requires), ""):
        fix, left = replace(fix, requires=requires), [each for each in left if not each.fixes]
    return read._replace(fixes=(replace(fix, title=f"{fix.title}{_told(program, left)}"),))


def _told(program: Program, left: Sequence[HostRead]) -> str:
    if not left:
        return ""
    lines = list(dict.fromkeys(f"line {_line(program, each.sync)}" for each in left))
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    count = "another wait remains" if len(left) == 1 else f"{len(left)} other waits remain"
    return f"; {count}: {', '.join(lines[:_SHOWN])}{more}"


def _unknown(program: Program, read: Sync, reads: Sequence[HostRead]) -> Iterator[Sync]:
    """The methods that read a value of unknown kind in the block of `read`: the host may wait for them."""
    known = {sync.node for each in reads for sync in (each.sync, *each.repeats)}
    block = program.block_of(program.statement_of(read.node))
    simple = (each for each in block if isinstance(each, ast.Assign | ast.AugAssign | ast.Expr))
    for node in (node for each in simple for node in own_nodes(each)):
        tensor = receiver_of(node, "item", "tolist")
        if not isinstance(node, ast.Call) or tensor is None or node.args or node in known:
            continue
        value = program.value(tensor)
        may_wait = value.kind in (Kind.UNKNOWN, Kind.TENSOR) and value.place is not Place.HOST
        if may_wait and ast.dump(tensor) != ast.dump(read.tensor):
            yield Sync(node, tensor, "item", *program.span(node), True)


def _is_deeper(program: Program, read: Sync, other: Sync) -> bool:
    own, inner = ([each for each in program.ancestors(sync.node) if isinstance(each, LOOPS)] for sync in (read, other))
    return bool(own) and own[0] in inner[1:]


def _line(program: Program, sync: Sync) -> int:
    return program.source.position(sync.start)[0]


def _is_near(program: Program, read: Sync, other: Sync) -> bool:
    """Does `other` wait whenever `read` does, with only small operations launched in between?"""
    own, statement = program.statement_of(read.node), program.statement_of(other.node)
    block = program.block_of(statement)
    around = next((each for each in (own, *program.ancestors(own)) if each in block), None)
    if around is None or program.function_of(own) is not program.function_of(statement):
        return False
    start, end = sorted((read.end, other.end))
    first, last = sorted((block.index(statement), block.index(around)))
    nodes = (node for each in block[first : last + 1] for node in ast.walk(each))
    work = (node for node in nodes if isinstance(node, ast.Call | ast.For | ast.While) and _is_work(program, node))
    return not any(start < program.span(node)[1] < end for node in work)


def _is_work(program: Program, node: ast.Call | ast.For | ast.While) -> bool:
    """May it launch more than an operation, or keep the host busy?"""
    if not isinstance(node, ast.Call):
        return True
    if program.qualified(node.func):
        return False
    method = program.value(node.func)
    return method.owner is None or method.owner.kind is not Kind.TENSOR or method.name == "backward"
