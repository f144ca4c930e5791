"""Tells which operation of torch a call runs."""

from __future__ import annotations

import ast
from typing import NamedTuple

from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.torch_ops import table as torch_table

_SAME = {"concat": "cat", "concatenate": "cat", "row_stack": "vstack"}  # names for one function of torch
_RECEIVERS = frozenset({Kind.TENSOR, Kind.UNKNOWN})


class Operation(NamedTuple):
    """An operation of torch as one call runs it.

    `name` is torch's canonical one, without a module and whatever it is imported as ("cat" for `torch.concat`), with
    its underscore where it works in place. `tensor` is the expression that it is a method of, or its first argument.
    `traits` are those of `perflint.torch_ops`: pointwise, reduction, view, random, factory, like, inplace.
    """

    name: str
    call: ast.Call
    tensor: ast.expr | None
    arguments: tuple[ast.expr, ...]
    traits: frozenset[str]


def operation(program: Program, node: ast.AST) -> Operation | None:
    """The operation of torch that `node` is a call of: its functions, or the methods of what is or may be a tensor."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    qualified = program.qualified(node.func)
    if qualified:
        function = torch_table.function(qualified)
        if function is None:
            return None
        first = None if "factory" in function.traits else next(iter(node.args), None)
        rest = tuple(node.args if first is None else node.args[1:])
        return Operation(_canonical(qualified), node, first, rest, function.traits)
    if not isinstance(node.func, ast.Attribute) or program.value(node.func.value).kind not in _RECEIVERS:
        return None
    method = torch_table.method(node.func.attr) if program.callee(node) is None else None
    if method is None:
        return None
    return Operation(_canonical(node.func.attr), node, node.func.value, tuple(node.args), method.traits)


def _canonical(name: str) -> str:
    name = name.rpartition(".")[2]
    return _SAME.get(name, name)
