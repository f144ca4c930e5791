"""Decides what is done about a copy, what that promises, and whether it would change the layout of a result."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perflint import api
from perflint.api import (
    Blocked,
    Consumer,
    Fix,
    Kind,
    Program,
    Reading,
    Replace,
    Role,
    Safety,
    Shape,
    Shapes,
    Trait,
    Write,
    converts,
    is_view,
)

from .copies import Copy, is_caught, is_elementwise, may_have_gradient, other_operands

_DEPTH = 12
_ORDERLY = frozenset({"pointwise", "reduction", "like", "restriding", "keeping", "joining", "indexing", "same_shape"})
_DISORDERLY: tuple[Trait, ...] = ("any_strides", "permuting", "matmul")


def patch(
    program: Program, shapes: Shapes, copy: Copy, reading: Reading, repeated: Repeated, writes: list[Write]
) -> Fix:
    _check(program, copy, reading, repeated, writes)
    assert copy.counts is not None and isinstance(copy.call.func, ast.Attribute)
    rank, needed = shapes.shape(copy.source).rank, unproved_rank(shapes, copy)
    safety = Safety.BEHAVIOUR if needed else _safety(program, shapes, copy, reading, repeated)
    proviso = f", where the tensor has {'one axis' if needed == 1 else f'{needed} axes'}" if needed else ""
    new = 0 if rank is None else len(copy.counts) - rank  # axes that the source lacks keep their 1
    ones = [count for position, count in enumerate(copy.counts) if api.integer(count) == 1 and position >= new]
    view = Replace(copy.call.func, api.expression("{x}.expand", x=copy.source))
    kept = [Replace(count, api.number(-1)) for count in ones]
    return Fix(f"use expand, which makes a view{proviso}", safety, api.rewrite(program, view, *kept))


def _check(program: Program, copy: Copy, reading: Reading, repeated: Repeated, writes: list[Write]) -> None:
    if writes:  # by code that can't be looked into, while the copy is in use
        raise Blocked("the repeated tensor may be written to here, which a view shows", writes[0].node)
    if lays_out_differently(program, copy, reading):
        raise Blocked(
            "a tensor here is transposed, or may be: the result would be laid out in memory in another way, "
            "which `.view()` after it may not take"
        )
    if is_caught(program, copy):
        raise Blocked("a negative count raises an error here, which is handled; a view has another use for it")
    if reading.shown:
        raise Blocked("other files may get hold of it, and write to it or reshape it")
    if reading.converted:
        raise Blocked("a move or cast writes it out all the same: move or cast first, then expand")
    if is_reshaped(program, copy):
        raise Blocked("a tensor is given another shape in place on the way, so that its axes are not sure")
    if not repeated.sure:
        raise Blocked("whether the tensor lacks these axes, or has them with size 1, is not known here")
    if copy.form != "repeat":
        raise Blocked("only what is written as `repeat` is rewritten")


def _safety(program: Program, shapes: Shapes, copy: Copy, reading: Reading, repeated: Repeated) -> Safety:
    """Exact, unless sums (of the gradient, a reduction or a product) may be taken in another order."""
    if any(consumer.role is Role.REDUCTION for consumer in reading.consumers):
        return Safety.ROUNDING
    for consumer in reading.consumers:
        if consumer.role is Role.MATMUL and (
            repeated.positions != (0,) or not shapes.shape(consumer.operand).size(0).startswith("x")
        ):
            return Safety.ROUNDING
    reordered = repeated.new and len(repeated.positions) > 1
    return Safety.ROUNDING if reordered and may_have_gradient(program, copy) else Safety.EXACT


def lays_out_differently(program: Program, copy: Copy, reading: Reading) -> bool:
    """Would a result have another layout, next to a transposed tensor, or where code in sight asks for it?

    A repeated axis of a view decides nothing: the next operand does, or the order of the source's axes, which the copy
    sorts. What isn't shown to be in order may be transposed.
    """
    layouts = _Layouts(program)
    return any(_is_laid_out_differently(program, layouts, copy, consumer) for consumer in reading.consumers)


def _is_laid_out_differently(program: Program, layouts: _Layouts, copy: Copy, consumer: Consumer) -> bool:
    node, decides = consumer.node, _decides(program, consumer)
    tensors = [copy.source, consumer.operand, *other_operands(consumer)]
    if decides and any(_is_permuted(program, tensor, _DEPTH) for tensor in tensors):
        return True
    follows = isinstance(node, ast.Subscript) or consumer.role in (Role.ELEMENTWISE, Role.REDUCTION)
    if consumer.in_place or not follows or not isinstance(node, ast.expr):
        return False
    met = other_operands(consumer) if decides else []
    return not all(map(layouts.is_in_order, [copy.source, *met])) and api.asks_for_layout(program, node)


class _Layouts:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._proving: set[ast.AST] = set()

    def is_in_order(self, node: ast.expr) -> bool:
        """Do the strides of the tensor surely not grow from one axis to the next?"""
        if self._program.value(node).kind in (Kind.NUMBER, Kind.STRING, Kind.NONE, Kind.DEVICE, Kind.LIBRARY):
            return True
        return all(map(self._is_made_in_order, api.origins(self._program, node)))

    def _is_made_in_order(self, node: ast.AST) -> bool:
        if node in self._proving:
            return False
        self._proving.add(node)
        try:
            if isinstance(node, ast.Subscript):
                return self._keeps_order(node.slice) and self.is_in_order(node.value)
            return isinstance(node, ast.Call) and self._gives_order(node)
        finally:
            self._proving.discard(node)

    def _keeps_order(self, index: ast.expr) -> bool:
        """Is it a slice, a number, or the like; or a tensor for the first axis alone?"""
        parts = index.elts if isinstance(index, ast.Tuple) else []
        return all(
            isinstance(each, ast.Slice | ast.Constant | ast.UnaryOp) or self._program.value(each).kind is Kind.NUMBER
            for each in parts
        )

    def _gives_order(self, call: ast.Call) -> bool:
        found = api.operation(self._program, call)
        if found is None or any(each.arg in ("memory_format", "out", None) for each in call.keywords):
            return False
        if found.does.does("in_order"):
            return True
        if any(map(found.does.does, _DISORDERLY)):
            return False
        parts = [found.tensor, *found.arguments, *(each.value for each in call.keywords)]
        if found.tensor is not None and not found.traits & _ORDERLY:
            return False
        if found.tensor is None or found.does.does("taking_sizes"):
            parts = parts[:1]
        return all(self._are_in_order(each) for each in parts if each is not None)

    def _are_in_order(self, node: ast.expr) -> bool:
        parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
        return all(map(self.is_in_order, parts))


def _decides(program: Program, consumer: Consumer) -> bool:
    if consumer.in_place:
        return False
    if isinstance(consumer.node, ast.Subscript):
        return True
    if consumer.role is not Role.ELEMENTWISE:
        return False
    behind = isinstance(consumer.node, ast.BinOp) and consumer.operand is consumer.node.right
    return not (
        behind and isinstance(consumer.node, ast.BinOp) and program.value(consumer.node.left).kind is Kind.TENSOR
    )


def _is_permuted(program: Program, node: ast.expr, depth: int) -> bool:
    if isinstance(node, ast.Name) and depth:
        return any(_is_permuted(program, each, depth - 1) for each in api.assigned(program, node))
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT")
    if isinstance(node, ast.Subscript):
        return _is_permuted(program, node.value, depth)
    if isinstance(node, ast.BinOp):
        return _is_permuted(program, node.left, depth) or _is_permuted(program, node.right, depth)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        entry = api.torch_method(name)
        stays = converts(name) or is_view(name) or (entry is not None and "pointwise" in entry.traits)
        is_permuting = api.torch_does(name, "permuting") or any(each.arg == "memory_format" for each in node.keywords)
        return is_permuting or (stays and _is_permuted(program, node.func.value, depth))
    return False


_NAMES = 4  # and views, behind which an index is looked for


@dataclass(frozen=True)
class Repeated:
    """The positions, among the axes of the result, that are repeated.

    `new`: the first of them may be an axis that the source lacks. `sure`: expand can't be refused.
    """

    positions: tuple[int, ...]
    new: bool
    sure: bool = True


def proved(program: Program, shapes: Shapes, copy: Copy, reading: Reading) -> Repeated | None:
    if copy.form == "expanded" or copy.form == "stack":
        return Repeated((copy.axis or 0,), new=False)
    shape = shapes.shape(copy.source)
    if copy.form in ("interleave", "cat"):
        return Repeated((copy.axis,), new=False) if copy.axis is not None and shape.size(copy.axis) == "1" else None
    if copy.counts is None:
        return None
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
    return None if unproved else Repeated(tuple(repeated), new, sure=not _is_sliced(program, shapes, copy.source))


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
    for _ in range(_NAMES):
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


def unproved_rank(shapes: Shapes, copy: Copy) -> int:
    """The axes that the source needs for its counts of 1 to stand for existing ones; 0 where it surely has them."""
    if copy.form != "repeat" or copy.counts is None or shapes.shape(copy.source).rank is not None:
        return 0
    existing = next((position for position, count in enumerate(copy.counts) if api.integer(count) == 1), None)
    needed = len(copy.counts) - existing if existing is not None else 0
    return needed if shapes.least(copy.source) < needed else 0


def _is_below_one(program: Program, count: ast.expr) -> bool:
    number = api.integer(count) if api.integer(count) is not None else program.value(count).literal
    return isinstance(number, int) and number < 1


def _ranks(shape: Shape, counts: tuple[ast.expr, ...], least: int) -> list[int]:
    """How many axes the source may have, `least` or more; a count of 1 is taken to stand for an existing one."""
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


def _repeated_axes(shapes: Shapes, consumer: Consumer, symbol: str) -> list[int]:
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


def _elementwise_around(program: Program, consumer: Consumer) -> Iterator[ast.AST]:
    """The elementwise operations around the one that reads the copy, one by one."""
    node: ast.AST | None = consumer.node
    while node is not None and is_elementwise(program, node):
        yield node
        parent = program.parent(node)
        if isinstance(parent, ast.Attribute) and isinstance(program.parent(parent), ast.Call):
            parent = program.parent(parent)
        node = parent
