"""Tells where a view instead of a copy would change how a result is laid out in memory."""

from __future__ import annotations

import ast

from perflint import api
from perflint.api import Consumer, Flow, Kind, Program, Reading, Role, converts, is_view

from .copies import Copy
from .verdict import other_operands

_DEPTH = 6


def lays_out_differently(program: Program, flow: Flow, copy: Copy, reading: Reading) -> bool:
    """Does the copy decide on the layout of a result, as its first operand, and meet a transposed tensor?

    A repeated axis of a view decides nothing: then the next operand does.
    """
    for consumer in reading.consumers:
        if _decides(program, consumer):
            tensors = [copy.source, consumer.operand, *other_operands(consumer)]
            if any(_is_permuted(program, flow, tensor, _DEPTH) for tensor in tensors):
                return True
    return False


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


def _is_permuted(program: Program, flow: Flow, node: ast.expr, depth: int) -> bool:
    if depth == 0:
        return False
    if isinstance(node, ast.Name):
        values = [program.parent(each) for each in flow.definitions(node)]
        return any(
            isinstance(each, ast.Assign)
            and isinstance(each.targets[0], ast.Name)
            and _is_permuted(program, flow, each.value, depth - 1)
            for each in values
        )
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT")
    if isinstance(node, ast.Subscript):
        return _is_permuted(program, flow, node.value, depth - 1)
    if isinstance(node, ast.BinOp):
        return _is_permuted(program, flow, node.left, depth - 1) or _is_permuted(program, flow, node.right, depth - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if api.torch_does(node.func.attr, "permuting"):
            return True
        entry = api.torch_method(node.func.attr)
        stays = (
            converts(node.func.attr) or is_view(node.func.attr) or (entry is not None and "pointwise" in entry.traits)
        )
        return stays and _is_permuted(program, flow, node.func.value, depth - 1)
    return False
