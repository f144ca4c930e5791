"""Decides what is done about a copy, what that promises, and whether it would change the layout of a result."""

from __future__ import annotations

import ast

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
    Shapes,
    Trait,
    Write,
    converts,
    is_view,
)

from .copies import Copy
from .proof import Repeated, is_reshaped, unproved_rank
from .readers import is_caught, may_have_gradient, other_operands

_DEPTH = 12
_ORDERLY = frozenset({"pointwise", "reduction", "like", "restriding", "keeping", "joining", "indexing", "same_shape"})
_DISORDERLY: tuple[Trait, ...] = ("any_strides", "permuting", "matmul")


def patch(
    program: Program, shapes: Shapes, copy: Copy, reading: Reading, repeated: Repeated, writes: list[Write]
) -> Fix:
    """The fix of a copy; raises Blocked, which says what stands in its way."""
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
    sorts. What the file doesn't show to be in order may be transposed.
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
    """Proves that tensors have their axes in order."""

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
