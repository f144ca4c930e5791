"""What the last step of a loop doesn't run, since it is left before: whether anybody would see that it ran."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.course import Course
from perflint.transforms.capture.results import Collected
from perflint.transforms.capture.sharing import sharing
from perflint.transforms.capture.table import entry_of
from perflint.transforms.capture.written import in_place
from perflint.transforms.shown import shown

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def check_skipped(program: Program, loop: PlainLoop, course: Course, found: Sequence[Collected]) -> None:
    """Raise Blocked where the statements behind the test leave more than values that nobody reads."""
    for statement in course.late(loop):
        if statement in course.counting:
            continue
        for node in own_nodes(statement):
            if isinstance(node, ast.Name) and node.id == course.index:
                raise Blocked(f"`{node.id}` may be too large behind the test: use it before the test", node)
            if isinstance(node, ast.Call) and _draws(program, node, set()):
                reason = "draws random numbers, which the last step doesn't: draw them before the test"
                raise Blocked(f"{shown(program, node)} {reason}", node)
        _check_writes(program, loop, course, found, statement)


def _check_writes(
    program: Program, loop: PlainLoop, course: Course, found: Sequence[Collected], statement: ast.stmt
) -> None:
    tested = {node.id for node in ast.walk(course.end.test) if isinstance(node, ast.Name)}
    for name in in_place(program, statement):
        seen = (sharing(program, loop, name.id) | {name.id}) & ({each.name for each in found} | tested)
        if seen:
            reason = "is written to in place behind the test, which the last step doesn't: do that before the test"
            raise Blocked(f"`{name.id}` {reason}", name)


def _draws(program: Program, call: ast.Call, seen: set[ast.AST]) -> bool:
    """May the call draw random numbers?"""
    callee, value = program.callee(call), program.value(call.func)
    if callee is not None:
        if callee in seen:
            return False
        seen.add(callee)
        return any(isinstance(node, ast.Call) and _draws(program, node, seen) for node in own_nodes(callee))
    if value.kind is Kind.MODULE:
        kind = torch_ops.class_kind(value.name) if value.name else None
        may_hold = kind not in ("module", "rnn-cell", "loss") and "dropout" in program.text.lower()
        return kind == "dropout" or may_hold
    entry = entry_of(program, call)
    return entry is not None and "random" in entry.traits
