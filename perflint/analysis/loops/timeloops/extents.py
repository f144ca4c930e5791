"""Recognises loops whose bounds cover a whole axis."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.facts import Program
from perflint.analysis.loops.dataflow import LoopFlow
from perflint.analysis.loops.found import Header
from perflint.analysis.loops.header import called
from perflint.syntax.walk import Loop, assigned_values, own_nodes, path_of


def runs_backwards(loop: Loop) -> bool:
    """Does its head say `reversed`?"""
    calls = () if isinstance(loop, ast.While) else ast.walk(loop.iter)
    return any(called(part) == "reversed" for part in calls if isinstance(part, ast.Call))


def covers_an_axis(program: Program, loop: Loop, header: Header, flow: LoopFlow) -> bool:
    """Does the loop run over the whole of an axis of what it walks through?"""
    scope = program.function_of(loop) or program.tree
    names = [path_of(part) for bound in header.bounds for part in sizes(bound)]
    bounds = [loop.test] if isinstance(loop, ast.While) else [*header.bounds]
    bounds += [value for name in names for value in assigned_values(scope, name)]
    axes = {axis for bound in bounds for part in ast.walk(bound) if (axis := _sized_axis(part)) is not None}
    axes |= {axis for name in names for axis in _unpacked_axes(scope, name)}
    return bool(axes & {each.axis for each in flow.slices if each.axis is not None})


def sizes(node: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    """The variables that a bound is computed from, not those whose size it is."""
    if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and path_of(node)):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from sizes(node.left)
        yield from sizes(node.right)
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield node.value
    elif isinstance(node, ast.Call) and called(node) in ("int", "min", "max"):
        for argument in node.args:
            yield from sizes(argument)


def _sized_axis(node: ast.AST) -> int | None:
    """The axis whose size `x.size(1)`, `x.shape[1]` or `len(x)` is."""
    if isinstance(node, ast.Call) and called(node) in ("len", "numel"):
        return 0
    if isinstance(node, ast.Call) and called(node) == "size" and node.args:
        index = node.args[0]
    elif isinstance(node, ast.Subscript) and _is_shape(node.value):
        index = node.slice
    else:
        return None
    return index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else None


def _unpacked_axes(scope: ast.AST, path: str) -> Iterator[int]:
    """The axes whose size the variable is, where `batch, length, width = x.shape` or `x.size()` binds it."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and _is_shape(node.value):
            yield from (axis for axis, part in enumerate(node.targets[0].elts) if path_of(part) == path)


def _is_shape(node: ast.expr) -> bool:
    return called(node) == "size" or (isinstance(node, ast.Attribute) and node.attr == "shape")
