"""Tells tensors into which no gradient can flow."""

from __future__ import annotations

import ast

from perflint import api
from perflint.api import Flow, Kind, Program

from .copies import Copy


def may_have_gradient(program: Program, flow: Flow, copy: Copy) -> bool:
    """May a gradient flow back through the copy?"""
    value = program.value(copy.source)
    if value.dtype in ("bool", "int") or program.without_gradients(copy.call):
        return False
    return not _is_constant(program, flow, copy.source, 8)


def _is_constant(program: Program, flow: Flow, node: ast.expr, depth: int) -> bool:
    """Was it made out of nothing, so that no gradient flows into it?"""
    if depth == 0:
        return False
    if isinstance(node, ast.Subscript):
        return _is_constant(program, flow, node.value, depth)
    if isinstance(node, ast.Name):
        values = [program.parent(each) for each in flow.definitions(node)]
        return bool(values) and all(
            isinstance(each, ast.Assign)
            and isinstance(each.targets[0], ast.Name)
            and _is_constant(program, flow, each.value, depth - 1)
            for each in values
        )
    if isinstance(node, ast.Call):
        entry = api.torch_function(program.qualified(node.func))
        if entry is not None and "factory" in entry.traits:
            return not any(keyword.arg == "requires_grad" for keyword in node.keywords)
        if (
            isinstance(node.func, ast.Attribute)
            and (method := api.torch_method(node.func.attr)) is not None
            and not method.in_place
        ):
            others = [] if node.func.attr == "expand_as" else node.args
            alone = not any(program.value(each).kind is Kind.TENSOR for each in others)
            return alone and _is_constant(program, flow, node.func.value, depth - 1)
    return False
