"""Tells what is loop-invariant, and may be computed once."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.memory.dispatch import Modules
from perflint.analysis.values.values import Kind
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.vectorize.modules import Module, module_of
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import Invariant

_PURE = frozenset(
    f"builtins.{name}" for name in "len int float bool min max abs range isinstance tuple list round".split()
) | {f"torch.{name}" for name in "device get_default_dtype finfo iinfo".split()}
_CLOSED = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.Lambda)


def invariant(scope: Scope, node: ast.expr) -> Invariant:
    """The value of what is the same in every step, and may be computed once; raises Blocked."""
    check_invariant(scope, node)
    return scope.invariant(node)


def check_invariant(scope: Scope, *nodes: ast.expr) -> None:
    """Raise Blocked unless working out `nodes`, which the loop leaves as they are, gives the same each time."""
    for part in (part for node in nodes for part in ast.walk(node)):
        if isinstance(part, ast.Call) and not _is_pure(scope, part):
            raise Blocked(f"{shown(scope.program, part)} may give another result each time", part)
        if isinstance(part, _CLOSED):
            raise Blocked("other code may run in each step", part)


def _is_pure(scope: Scope, node: ast.Call) -> bool:
    """Does the call give the same each time, and change nothing?"""
    value = scope.program.value(node.func)
    if value.kind is Kind.LIBRARY and value.name in _PURE:
        return True
    method = torch_ops.of_method(node.func.attr) if isinstance(node.func, ast.Attribute) else None
    if method is not None and method.does("measuring"):
        return True
    if (module := module_of(scope.program, node.func)) is not None:
        return module.is_function(scope.program) and not scope.program.get(Modules).is_changed(node.func)
    entry = called_operation(scope, node)
    return entry is not None and entry.result == "tensor" and not entry.does("random") and not entry.in_place


def called_module(scope: Scope, node: ast.Call) -> Module | None:
    """The module that is called, where it is known how it was built; raises Blocked if each step has another."""
    if scope.program.value(node.func).kind is Kind.MODULE and scope.varies(node.func):
        raise Blocked(f"{shown(scope.program, node.func)} is another module in each step", node)
    return module_of(scope.program, node.func)


def called_operation(scope: Scope, node: ast.Call) -> torch_ops.Operation | None:
    """What the table of torch says of the call; None where it is none of torch's, or writes to one of its arguments."""
    value = scope.program.value(node.func)
    if any(keyword.arg in ("out", "inplace", None) for keyword in node.keywords):
        return None
    if value.kind is Kind.LIBRARY:
        return torch_ops.of_function(value.name)
    if value.kind is Kind.METHOD and value.owner is not None and value.owner.kind is Kind.TENSOR:
        return torch_ops.of_method(value.name)
    return None
