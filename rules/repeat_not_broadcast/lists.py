"""Proves counts that are not written out: each axis is either a 1 of the shape or a 1 of the counts."""

from __future__ import annotations

import ast

from perflint import api
from perflint.api import Program, Shapes

from .copies import Copy


def filled_in_turn(program: Program, copy: Copy) -> bool:
    """Is it `x.view(sizes).repeat(counts)`, with `sizes[1:] = [1] * n` and `counts[0] = 1`, or the other way round?"""
    view = copy.source
    if not (
        isinstance(view, ast.Call)
        and isinstance(view.func, ast.Attribute)
        and view.func.attr in ("view", "reshape")
        and len(view.args) == 1
    ):
        return False
    sizes, counts = view.args[0], copy.call.args[-1]
    function = program.function_of(copy.call)
    if not isinstance(sizes, ast.Name) or not isinstance(counts, ast.Name) or function is None:
        return False
    ones = [_ones(function, name.id) for name in (sizes, counts)]
    if None in ones:
        return False
    fronts = sorted(ones, key=lambda part: part != "front")
    return fronts == ["front", "back"]


def spread(shapes: Shapes, copy: Copy) -> tuple[int, ...]:
    """The axes that `x.repeat(1, *sizes)` repeats, if they all have size 1; none if that is not so."""
    *front, last = copy.call.args
    shape = shapes.shape(copy.source)
    if not isinstance(last, ast.Starred) or any(isinstance(each, ast.Starred) for each in front):
        return ()
    ones = all(api.integer(count) == 1 for count in front)
    behind = tuple(range(len(front), shape.rank or 0))
    return behind if ones and all(shape.size(axis) == "1" for axis in behind) else ()


def _ones(function: ast.AST, name: str) -> str | None:
    """Which part of the list is filled with ones: "front" is [0], "back" is [1:]; None for anything else."""
    found = [
        statement for statement in ast.walk(function)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)
        and isinstance(statement.targets[0].value, ast.Name) and statement.targets[0].value.id == name
    ]  # fmt: skip
    if len(found) != 1 or not isinstance(found[0].targets[0], ast.Subscript):
        return None
    index, value = found[0].targets[0].slice, found[0].value
    if api.integer(index) == 0 and api.integer(value) == 1:
        return "front"
    is_tail = (
        isinstance(index, ast.Slice) and api.integer(index.lower) == 1 and index.upper is None and index.step is None
    )
    if not is_tail or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
        return None
    is_one = isinstance(value.left, ast.List) and [api.integer(each) for each in value.left.elts] == [1]
    return "back" if is_one else None
