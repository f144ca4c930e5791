"""What a function does with an induction variable that it is passed."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from perflint.analysis.facts import Program
from perflint.analysis.loops.dataflow import TimeSlice
from perflint.analysis.loops.header import called
from perflint.analysis.loops.indices import picks_one, place, spans_an_axis
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import Function, own_nodes, path_of

_DEPTH = 3  # calls inside of calls


def steps_taken(
    program: Program, call: ast.Call, indices: frozenset[str], depth: int = _DEPTH
) -> tuple[TimeSlice, ...] | None:
    """The steps that what `call` calls takes of its arguments, by the number of the iteration that it gets.

    None where that can't be told, or where the number goes into a tensor.
    """
    callee = program.callee(call)
    if callee is None:
        return None
    bound = program.arguments(call, callee)
    if bound.is_open:
        return None
    given = bound.given
    numbers = frozenset(name for name, value in given.items() if path_of(value) in indices)
    if not numbers:
        return None
    found: list[TimeSlice] = []
    for node in own_nodes(callee):
        if isinstance(node, ast.Name) and node.id in numbers:
            steps = _use(program, callee, node, numbers, given, depth)
            if steps is None:
                return None
            found.extend(steps)
    return tuple(found)


def _use(
    program: Program,
    callee: Function,
    number: ast.Name,
    numbers: frozenset[str],
    given: Mapping[str, ast.expr],
    depth: int,
) -> tuple[TimeSlice, ...] | None:
    """The step that one use of the number picks; empty where it only tests or prints it, None for anything else."""
    child: ast.AST = number
    for parent in program.ancestors(number):
        if isinstance(parent, ast.Compare | ast.If | ast.FormattedValue) and isinstance(number.ctx, ast.Load):
            return ()
        if isinstance(parent, ast.Subscript) and child is parent.slice:
            return _step(program, callee, parent, numbers, given)
        if isinstance(parent, ast.Call) and child in (*parent.args, *parent.keywords):
            inner = steps_taken(program, parent, numbers, depth - 1) if depth else None
            return () if inner == () or called(parent) == "print" else None
        if not isinstance(parent, ast.BinOp | ast.Tuple | ast.Slice | ast.keyword):
            return None
        child = parent
    return None


def _step(
    program: Program, callee: Function, node: ast.Subscript, numbers: frozenset[str], given: Mapping[str, ast.expr]
) -> tuple[TimeSlice, ...] | None:
    root: ast.expr = node.value
    while isinstance(root, ast.Subscript):
        root = root.value
    is_module = Kind.MODULE in (program.value(node).kind, program.value(node.value).kind)
    if is_module or not isinstance(root, ast.Name) or not isinstance(node.ctx, ast.Load):
        return None
    if root.id not in given:
        return () if _binds(callee, root.id) else None
    if not picks_one(node.slice, lambda part: path_of(part) in numbers):
        return None
    base = ast.unparse(node.value).replace(root.id, ast.unparse(given[root.id]), 1)
    axis, offset = place(node, numbers)
    is_tensor = program.value(node.value).kind is Kind.TENSOR or spans_an_axis(node.slice)
    return (TimeSlice(base, node, axis, offset, is_tensor),)


def _binds(function: Function, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in own_nodes(function)
    )
