"""What a fix of one read is worth beside the other reads that the same loop waits for."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from perflint.analysis.heat.syncs import Sync
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.edits import Fix

_SHOWN = 5  # lines


class HostRead(NamedTuple):
    """A costly read with its fixes or, where there is none, what blocks them; `repeats` read the value once more."""

    sync: Sync
    repeats: tuple[Sync, ...]
    fixes: tuple[Fix, ...]
    blocked: str


def beside(program: Program, read: HostRead, of_loop: Sequence[HostRead]) -> HostRead:
    """`read` with fixes that name which waits `of_loop` they leave, and that are not applied without effect.

    Where the host waits again before it has launched anything of weight, nothing is gained until that wait goes, too.
    """
    if not read.fixes:
        return read
    (fix,) = read.fixes
    others = [each for each in of_loop if each is not read]
    left = [each for each in others if not any(other.is_safe or other.requires == fix.requires for other in each.fixes)]
    near = [each for each in left if _is_near(program, read.sync, each.sync)]
    if stuck := next((each for each in near if not each.fixes), None):
        return read._replace(fixes=(), blocked=f"nothing is gained while line {_line(program, stuck)} waits, too")
    if requires := next((other.requires for each in near for other in each.fixes if other.requires), ""):
        fix, left = replace(fix, requires=requires), [each for each in left if not each.fixes]
    return read._replace(fixes=(replace(fix, title=f"{fix.title}{_told(program, left)}"),))


def _told(program: Program, left: Sequence[HostRead]) -> str:
    """The waits that are left, as the end of a title."""
    if not left:
        return ""
    lines = list(dict.fromkeys(f"line {_line(program, each)}" for each in left))
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    count = "another wait remains" if len(left) == 1 else f"{len(left)} other waits remain"
    return f"; {count}: {', '.join(lines[:_SHOWN])}{more}"


def _line(program: Program, read: HostRead) -> int:
    return program.source.position(read.sync.start)[0]


def _is_near(program: Program, read: Sync, other: Sync) -> bool:
    """Does `other` wait whenever `read` does, with nothing but small operations launched in between?"""
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
