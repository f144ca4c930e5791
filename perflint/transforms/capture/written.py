"""What a step of a loop writes to in place, and whether that is the loop's own."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, own_nodes, stores
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.ownership import argument_names, bound_to, is_new, is_own, memory_of
from perflint.transforms.capture.sharing import ELSEWHERE, sharing
from perflint.transforms.vectorize.scope import is_repeated

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def in_place(program: Program, statement: ast.stmt) -> Iterator[ast.Name]:
    """The names to whose tensors, or parts of them, a statement writes."""
    for node in own_nodes(statement):
        written = _written(program, node)
        owner = memory_of(program, written) if written is not None else None
        if isinstance(owner, ast.Name):
            yield owner


def changes_in_place(method: str) -> bool:
    """Does a method of that name write to its tensor?"""
    entry = torch_ops.of_method(method)
    return entry is not None and entry.in_place


def _written(program: Program, node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target if program.value(node.target).kind is not Kind.NUMBER else None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and changes_in_place(node.func.attr):
        return node.func.value
    return None


def carried_and_written(program: Program, loop: PlainLoop, apart: Container[ast.stmt]) -> list[str]:
    """The names that a step writes to as the step before left them, in order.

    Such a step may work on a copy instead, if nobody else knows the tensor; raises Blocked if somebody may. What the
    statements `apart` do is left out.
    """
    found: dict[str, None] = {}
    bound: set[str] = set()
    for statement in loop.body:
        for name in in_place(program, statement) if statement not in apart else ():
            if name.id not in bound and name.id not in ("self", "cls"):
                _check_own(program, loop, name)
                _check_small(program, name)
                found[name.id] = None
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            bound |= {
                each.id
                for each in own_nodes(statement)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
    return list(found)


def check_written_behind(program: Program, loop: PlainLoop, stored: set[str], read: set[str]) -> None:
    """Raise Blocked if what the loop leaves by two names, of those `stored` and those `read` later, is written to.

    The one name would show what was written by the other; results that are copied apart would not.
    """
    fresh: set[str] = set()
    for statement in _around(program, loop):
        for name in in_place(program, statement):
            others = sharing(program, loop, name.id)
            if name.id not in fresh and (others | {name.id}) & stored and others & read:
                shared = f"`{min(others & read)}` may share its memory"
                raise Blocked(f"`{name.id}` is written to in place when the loop is over, and {shared}", name)
        if isinstance(statement, ast.Assign) and is_new(program, statement.value):
            fresh |= {each.id for each in statement.targets if isinstance(each, ast.Name)}


def _around(program: Program, loop: PlainLoop) -> Iterator[ast.stmt]:
    """The statements that run when the loop is over: those behind it, and in front too if another loop is around."""
    function = program.function_of(loop)
    inside = set(own_nodes(loop))
    again = is_repeated(program, loop)
    statements = [each for each in own_nodes(function or loop) if isinstance(each, _PLAIN) and each not in inside]
    yield from (each for each in statements if again or each.lineno > loop.lineno)


def _check_own(program: Program, loop: PlainLoop, name: ast.Name) -> None:
    """Raise Blocked where somebody else may know the tensor that a step writes to."""
    function, text = program.function_of(loop), f"`{name.id}`"
    if function is None or name.id in argument_names(function):
        raise Blocked(
            f"{text} may be the caller's, who would see what is written to it: write to a copy, {_COPY}", name
        )
    if not stores(function, name.id):
        raise Blocked(f"{text} is written to in place, and belongs to the code around: write to a copy, {_COPY}", name)
    made = [bound_to(program, each) for each in stores(function, name.id)]
    if any(program.value(each or name).kind is not Kind.TENSOR for each in made if not isinstance(each, ast.AugAssign)):
        raise Blocked(f"{text} is changed in place, and is not known to be a tensor from the start", name)
    if not is_own(program, function, name):
        raise Blocked(
            f"{text} is written to in place, and may be what others know as well: write to a copy, {_COPY}", name
        )
    others = sorted(sharing(program, loop, name.id))
    if others:
        shared = "what is kept elsewhere" if ELSEWHERE in others else f"`{others[0]}`"
        raise Blocked(
            f"{text} is written to in place, and {shared} may share its memory: write to a copy, {_COPY}", name
        )


def _check_small(program: Program, name: ast.Name) -> None:
    """Raise Blocked where steps fill a tensor one after the other, which is too large to be copied in each of them."""
    around, function = program.parent(name), program.function_of(name)
    parts = own_nodes(around.slice) if isinstance(around, ast.Subscript) else ()
    is_slot = any(isinstance(part, ast.Name) and program.value(part).kind is Kind.NUMBER for part in parts)
    if not is_slot or function is None:
        return
    values = [bound_to(program, each) for each in stores(function, name.id)]
    ranks = [program.get(Shapes).shape(each).rank for each in values if isinstance(each, ast.expr)]
    if any(rank is None or rank > _ROWS for rank in ranks):
        raise Blocked(f"`{name.id}`, which is filled step by step, may be too large to copy in each: {_LISTED}", name)


_ROWS = 2  # axes of a tensor of which steps fill the columns, such as tokens
_LISTED = "append to a list, and stack that"
_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)
_COPY = "made by `.clone()` in front of the loop"
