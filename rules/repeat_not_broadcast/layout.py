"""Tells whether a view in the place of a copy would give a result another layout that matters."""

from __future__ import annotations

import ast

from perflint import api
from perflint.api import Consumer, Kind, Program, Reading, Role, Trait, converts, is_view

from .copies import Copy
from .readers import other_operands

_DEPTH = 12
_ORDERLY = frozenset({"pointwise", "reduction", "like", "restriding", "keeping", "joining", "indexing", "same_shape"})
_DISORDERLY: tuple[Trait, ...] = ("any_strides", "permuting", "matmul")


def lays_out_differently(program: Program, copy: Copy, reading: Reading) -> bool:
    """Would a result have another layout, next to a transposed tensor, or where code in sight asks for it?

    A repeated axis of a view decides nothing: the next operand does, or the order of the source's axes, which the copy
    sorts. Where code asks, any of them may be transposed.
    """
    return any(_is_laid_out_differently(program, copy, consumer) for consumer in reading.consumers)


def _is_laid_out_differently(program: Program, copy: Copy, consumer: Consumer) -> bool:
    node, decides = consumer.node, _decides(program, consumer)
    tensors = [copy.source, consumer.operand, *other_operands(consumer)]
    if decides and any(_is_permuted(program, tensor, _DEPTH) for tensor in tensors):
        return True
    follows = isinstance(node, ast.Subscript) or consumer.role in (Role.ELEMENTWISE, Role.REDUCTION)
    if consumer.in_place or not follows or not isinstance(node, ast.expr):
        return False
    return api.asks_for_layout(program, node)


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
