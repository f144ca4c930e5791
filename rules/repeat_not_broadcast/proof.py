"""Proves that a repeated axis has size 1 or is new, so that a view can stand for the copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perflint import api
from perflint.api import Consumer, Program, Reading, Role, Shape, Shapes

from .copies import Copy
from .readers import is_elementwise, other_operands

_DEPTH = 4


@dataclass(frozen=True)
class Repeated:
    """The positions, among the axes of the result, that are repeated.

    `new`: the first of them may be an axis that the source lacks. `sure`: expand can't be refused; otherwise the text
    only makes it very likely.
    """

    positions: tuple[int, ...]
    new: bool
    sure: bool = True


def proved(program: Program, shapes: Shapes, copy: Copy, reading: Reading) -> Repeated | None:
    """What the copy repeats, if a view could do that."""
    if copy.form == "expanded" or copy.form == "stack":
        return Repeated((copy.axis or 0,), new=False)
    shape = shapes.shape(copy.source)
    if copy.form in ("interleave", "cat"):
        return Repeated((copy.axis,), new=False) if copy.axis is not None and shape.size(copy.axis) == "1" else None
    counts = copy.counts
    repeated = [position for position, count in enumerate(counts) if api.integer(count) != 1]
    if all(shapes.size(counts[position]) == "1" for position in repeated):
        return None  # a variable that is 1 here, as the width of a beam that has yet to grow
    if any(_is_below_one(program, counts[position]) for position in repeated):
        return None
    ranks = _ranks(shape, counts, shapes.least(copy.source))
    unproved = [
        position for position in repeated if not all(_is_single(shape, position, len(counts), rank) for rank in ranks)
    ]
    new = min(ranks, default=0) < len(counts)
    unproved = [position for position in unproved if not result_shows(program, shapes, reading, counts[position])]
    if not unproved:
        return Repeated(tuple(repeated), new, sure=not _is_sliced(program, shapes, copy.source))
    suggested = (result_suggests(program, shapes, reading, counts[position], loosely=True) for position in unproved)
    return Repeated(tuple(repeated), new, sure=False) if all(suggested) else None


def is_reshaped(program: Program, copy: Copy) -> bool:
    """May a shape change in place on the way to the copy: in its function, in callers, or of an attribute?"""
    functions = set(map(program.function_of, api.callers(program, copy.call)))
    return any(
        program.function_of(each) in functions or isinstance(getattr(each.func, "value", None), ast.Attribute)
        for each in program.get(_reshaping)
    )


def _reshaping(program: Program) -> list[ast.Call]:
    calls = (api.operation(program, each) for each in program.of_type(ast.Call))
    written = (each for each in calls if each is not None and each.does.in_place)
    return [each.call for each in written if each.does.does("restriding") or each.does.does("strided")]


def _is_sliced(program: Program, shapes: Shapes, node: ast.expr) -> bool:
    """Is it one element of an axis that may have none: `x[:1]`?"""
    for _ in range(_DEPTH):
        if isinstance(node, ast.Name) and len(values := api.assigned(program, node)) == 1:
            node = values[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and api.is_view(node.func.attr):
            node = node.func.value
        else:
            break
    if not isinstance(node, ast.Subscript):
        return False
    shape = shapes.shape(node.value)
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(
        isinstance(each, ast.Slice) and _takes_one(each) and not shape.size(axis).isdigit()
        for axis, each in enumerate(indices)
    )


def _takes_one(index: ast.Slice) -> bool:
    lower, upper = api.integer(index.lower) or 0, api.integer(index.upper)
    return lower == -1 if index.upper is None else upper is not None and upper - lower == 1


def unproved_rank(program: Program, shapes: Shapes, copy: Copy, reading: Reading) -> int:
    """The axes that the source needs for its counts of 1 to stand for axes that exist; 0 where it surely has them.

    With fewer, a repeated axis that is known to have size 1 may be another one. That speaks against it where the result
    shows the size of the axis, unless that other one happens to have size 1, too.
    """
    shape = shapes.shape(copy.source)
    if copy.form != "repeat" or shape.rank is not None:
        return 0
    numbers = [api.integer(count) for count in copy.counts]
    needed = len(numbers) - numbers.index(1) if 1 in numbers else 0
    ranks = range(max(1, shapes.least(copy.source)), needed)
    shown = [
        position
        for position, count in enumerate(copy.counts)
        if ranks
        and numbers[position] != 1
        and all(_is_single(shape, position, len(numbers), rank) for rank in range(needed, len(numbers) + 1))
        and (result_shows(program, shapes, reading, count) or result_suggests(program, shapes, reading, count))
    ]
    refuted = all(any(not _is_single(shape, position, len(numbers), rank) for position in shown) for rank in ranks)
    return 0 if refuted else needed


def _is_below_one(program: Program, count: ast.expr) -> bool:
    number = api.integer(count) if api.integer(count) is not None else program.value(count).literal
    return isinstance(number, int) and number < 1


def _ranks(shape: Shape, counts: tuple[ast.expr, ...], least: int) -> list[int]:
    """How many axes the source may have, `least` or more; a count of 1 is taken to stand for an axis that exists."""
    if shape.rank is not None:
        return [shape.rank]
    existing = next((len(counts) - position for position, count in enumerate(counts) if api.integer(count) == 1), 1)
    return list(range(min(max(existing, least), len(counts)), len(counts) + 1))


def _is_single(shape: Shape, position: int, counts: int, rank: int) -> bool:
    """Is the axis at this position of the result of size 1, or new, if the source has `rank` axes?"""
    axis = position - (counts - rank)
    return axis < 0 or shape.size(axis) == "1" or shape.size(axis - rank) == "1"


def result_shows(program: Program, shapes: Shapes, reading: Reading, count: ast.expr) -> bool:
    """Is the copy joined with, or written into, something whose size on that axis is the count itself?"""
    symbol = shapes.size(count)
    return bool(symbol) and any(
        _joins(program, shapes, consumer, symbol) or _fills(program, shapes, consumer, symbol)
        for consumer in reading.consumers
    )


def result_suggests(
    program: Program, shapes: Shapes, reading: Reading, count: ast.expr, *, loosely: bool = False
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
            leaves = [part for other in others for part in _leaves(program, other)]
            places = [place for axis in axes for place in ((axis, axis + rank) if loosely else (axis,))]
            if any(_has(shapes, leaf, place, symbol) for leaf in leaves for place in places):
                return True
    return False


def _has(shapes: Shapes, tensor: ast.expr, axis: int, symbol: str) -> bool:
    """Is that axis of that size: counted from the back, or from the front where the rank is unknown?"""
    shape = shapes.shape(tensor)
    return (axis < 0 or shape.rank is None) and shape.size(axis) == symbol


def _repeated_axes(shapes: Shapes, consumer: Consumer, symbol: str) -> list[int]:
    """The axes of the operand, counted from the back, that hold the count times an unknown size."""
    shape = shapes.shape(consumer.operand)
    return [axis for axis in range(-(shape.rank or 0), 0) if shape.size(axis) == f"x{symbol}"]


def _joins(program: Program, shapes: Shapes, consumer: Consumer, symbol: str) -> bool:
    found, shape = api.operation(program, consumer.node), shapes.shape(consumer.operand)
    joined = found.joined_axis if found is not None and "joining" in found.traits else None
    if found is None or joined is None or shape.rank is None:
        return False
    parts = found.tensor.elts if isinstance(found.tensor, ast.Tuple | ast.List) else []
    return any(
        axis % shape.rank != joined % shape.rank
        and symbol in {shapes.shape(part).size(axis % shape.rank) for part in parts if part is not consumer.operand}
        for axis in _repeated_axes(shapes, consumer, symbol)
    )


def _fills(program: Program, shapes: Shapes, consumer: Consumer, symbol: str) -> bool:
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
    """The elementwise operations around the one that reads the copy, each taking the last one's result."""
    node: ast.AST | None = consumer.node
    while node is not None and is_elementwise(program, node):
        yield node
        parent = program.parent(node)
        if isinstance(parent, ast.Attribute) and isinstance(program.parent(parent), ast.Call):
            parent = program.parent(parent)
        node = parent


def _leaves(program: Program, node: ast.expr, depth: int = _DEPTH) -> Iterator[ast.expr]:
    yield node
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult) else []
    if isinstance(node, ast.Name) and len(values := api.assigned(program, node)) == 1:
        parts = values
    for each in parts if depth else ():
        yield from _leaves(program, each, depth - 1)
