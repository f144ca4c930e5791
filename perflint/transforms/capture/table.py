"""What the table of torch says of a call, as far as its arguments tell."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.values.values import Kind

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def entry_of(program: Program, node: ast.Call) -> torch_ops.Operation | None:
    """The entry of a call of a function of torch, or else of a method of that name, which a tensor may have."""
    value = program.value(node.func)
    entry = torch_ops.of_function(value.name) if value.kind is Kind.LIBRARY else None
    if entry is None and value.kind is not Kind.LIBRARY and isinstance(node.func, ast.Attribute):
        entry = torch_ops.of_method(node.func.attr)
    if entry is None:
        return None
    named = {each.arg: _kind(program, each.value) for each in node.keywords if each.arg}
    return entry.select([_kind(program, each) for each in node.args], named)


def _kind(program: Program, node: ast.expr) -> str:
    kind = program.value(node).kind
    if kind in (Kind.TENSOR, Kind.NUMBER):
        return torch_ops.TENSOR if kind is Kind.TENSOR else torch_ops.NUMBER
    return torch_ops.NONE if kind is Kind.NONE else torch_ops.OTHER
