"""Finds evidence in what reads a copy that the axis it repeats had size 1."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Consumer, Flow, Program, Reading, Role, Shapes, joins

from .verdict import other_operands

_DEPTH = 4


def result_shows(program: Program, shapes: Shapes, reading: Reading, count: ast.expr) -> bool:
    """Is the copy joined with, or written into, something whose size on that axis is the count itself?"""
    symbol = shapes.size(count)
    return bool(symbol) and any(
        _joins(program, shapes, consumer, symbol) or _fills(program, shapes, consumer, symbol)
        for consumer in reading.consumers
    )


def result_suggests(
    program: Program, shapes: Shapes, flow: Flow, reading: Reading, count: ast.expr, *, loosely: bool = False
) -> bool:
    """Does it meet, element by element, a tensor whose size on that axis is the count: unless that is 1, it is so.

    `loosely`: of a tensor with nobody knows how many axes, these are taken to be as many as the copy has.
    """
    symbol = shapes.size(count)
    for consumer in reading.consumers if symbol else ():
        rank = shapes.shape(consumer.operand).rank or 0
        axes = _repeated_axes(shapes, consumer, symbol)
        if axes:
            others = _met(program, consumer) if consumer.role is Role.ELEMENTWISE else _index(consumer)
            leaves = [part for other in others for part in _leaves(flow, other, _DEPTH)]
            places = [place for axis in axes for place in ((axis, axis + rank) if loosely else (axis,))]
            if any(_has(shapes, leaf, place, symbol) for leaf in leaves for place in places):
                return True
    return False


def _has(shapes: Shapes, tensor: ast.expr, axis: int, symbol: str) -> bool:
    """Is that axis of that size: counted from the back, or from the front where it is not known how many there are?"""
    shape = shapes.shape(tensor)
    return (axis < 0 or shape.rank is None) and shape.size(axis) == symbol


def _repeated_axes(shapes: Shapes, consumer: Consumer, symbol: str) -> list[int]:
    """The axes of the operand, counted from the back, that hold the count times an unknown size."""
    shape = shapes.shape(consumer.operand)
    return [axis for axis in range(-(shape.rank or 0), 0) if shape.size(axis) == f"x{symbol}"]


def _joins(program: Program, shapes: Shapes, consumer: Consumer, symbol: str) -> bool:
    call = consumer.node
    if not (isinstance(call, ast.Call) and joins(program.qualified(call.func))):
        return False
    parts = call.args[0].elts if isinstance(call.args[0], ast.Tuple | ast.List) else []
    dim = next(
        (k.value for k in call.keywords if k.arg in ("dim", "axis")),
        call.args[1] if len(call.args) > 1 else ast.Constant(0),
    )
    joined = api.integer(dim)
    shape = shapes.shape(consumer.operand)
    if joined is None or shape.rank is None:
        return False
    return any(
        axis % shape.rank != joined % shape.rank
        and symbol in {shapes.shape(part).size(axis % shape.rank) for part in parts if part is not consumer.operand}
        for axis in _repeated_axes(shapes, consumer, symbol)
    )


def _fills(program: Program, shapes: Shapes, consumer: Consumer, symbol: str) -> bool:
    """Is the result of elementwise operations written into a tensor, whose shape holds?"""
    axes = _repeated_axes(shapes, consumer, symbol)
    if not axes or consumer.role is not Role.ELEMENTWISE:
        return False
    node: ast.AST = consumer.node
    for around in _elementwise_around(program, consumer):
        node = around
    parent = node if isinstance(node, ast.Assign | ast.AugAssign) else program.parent(node)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
        target: ast.expr = parent.targets[0]
    elif isinstance(parent, ast.AugAssign):
        target = parent.target
    else:
        return False
    return any(shapes.shape(target).size(axis) == symbol for axis in axes)


def _met(program: Program, consumer: Consumer) -> Iterator[ast.expr]:
    """The tensors with which the copy, or what comes of it in the same expression, is combined."""
    yield from other_operands(consumer)
    child = consumer.node
    for around in _elementwise_around(program, consumer):
        if around is not child and isinstance(child, ast.expr):
            yield from other_operands(Consumer(around, child, Role.ELEMENTWISE))
        child = around


def _index(consumer: Consumer) -> Iterator[ast.expr]:
    """What `gather` takes from the copy: no more along its other axes than there is."""
    call = consumer.node
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "gather"):
        return
    if consumer.operand in (call.func.value, *call.args[:1]):
        yield from [each.value for each in call.keywords if each.arg == "index"] or call.args[-1:]


def _elementwise_around(program: Program, consumer: Consumer) -> Iterator[ast.AST]:
    """The elementwise operations, from the one that reads the copy outwards, that take each other's results."""
    node: ast.AST | None = consumer.node
    while node is not None and _is_elementwise(node):
        yield node
        parent = program.parent(node)
        if isinstance(parent, ast.Attribute) and isinstance(program.parent(parent), ast.Call):
            parent = program.parent(parent)
        node = parent


def _is_elementwise(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, ast.MatMult)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        entry = api.torch_method(node.func.attr)
        return entry is not None and "pointwise" in entry.traits and not node.keywords
    return isinstance(node, ast.Compare | ast.UnaryOp)


def _leaves(flow: Flow, node: ast.expr, depth: int) -> Iterator[ast.expr]:
    """The operands of elementwise operators within `node`, and `node` itself."""
    yield node
    if depth == 0:
        return
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        yield from _leaves(flow, node.left, depth - 1)
        yield from _leaves(flow, node.right, depth - 1)
    elif isinstance(node, ast.Name):
        definitions = flow.definitions(node)
        parent = flow.program.parent(next(iter(definitions))) if len(definitions) == 1 else None
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            yield from _leaves(flow, parent.value, depth - 1)
