"""Tells which tensors surely have no axes: losses, reductions of whole tensors, and what is computed of such."""

from __future__ import annotations

import ast
from collections.abc import Set

from perflint import torch_ops
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.values.operations import operation
from perflint.analysis.values.returned import given, returned
from perflint.analysis.values.values import Kind

_REDUCING = frozenset({"reduction", "reduce", "size_average", None})  # None: in `**options`
_INPUTS = 2  # of a loss, an output and a target; what follows may say how it is reduced


def has_no_axes(program: Program, node: ast.expr, asked: Set[ast.AST] = frozenset()) -> bool:
    """Is it a loss, or another reduction of a whole tensor, or computed of such? `asked` is carried around a loop."""
    if isinstance(node, ast.Name):
        values = _assigned(program, node) if node not in asked else []
        rest = (has_no_axes(program, each, asked | {node}) for each in values)
        return node in asked or (bool(values) and all(rest))
    if isinstance(node, ast.BinOp):
        parts = (each for each in (node.left, node.right) if program.value(each).kind is not Kind.NUMBER)
        return all(has_no_axes(program, each, asked) for each in parts)
    if not isinstance(node, ast.Call):
        return False
    if program.value(node.func).kind is Kind.MODULE:
        made = [each for each in program.get(Origins).of(node.func) if isinstance(each, ast.expr)]
        return bool(made) and all(isinstance(each, ast.Call) and _is_mean_loss(program, each) for each in made)
    if program.callee(node) is not None:
        values = returned(program, node) if node not in asked else []
        return bool(values) and all(has_no_axes(program, each, asked | {node}) for each in values)
    found = operation(program, node)
    if found is None:
        return False
    if found.does.does("loss"):
        return len(node.args) <= _INPUTS and not _is_told(node)
    is_whole = found.does.does("reduction") and found.does.result == "tensor"
    return is_whole and not (found.arguments or node.keywords)


def _assigned(program: Program, name: ast.Name) -> list[ast.expr]:
    """The expressions whose values the variable may have there; none where it may have others."""
    values = program.get(Flow).graph(name).definitions(name)
    found = [given(program, each) if isinstance(each, Definition) else [] for each in values]
    return [node for each in found for node in each] if all(found) else []


def _is_mean_loss(program: Program, made: ast.Call) -> bool:
    """Is it one of torch's modules for losses, which gives the mean of all, as it does unless it is told?"""
    is_loss = torch_ops.class_kind(program.qualified(made.func)) == "loss"
    return is_loss and not made.args and not _is_told(made)


def _is_told(call: ast.Call) -> bool:
    """May a call say how the loss is reduced?"""
    is_open = any(isinstance(each, ast.Starred) for each in call.args)
    return is_open or any(each.arg in _REDUCING for each in call.keywords)
