"""Tells what is loop-invariant, and may be computed once."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.memory.dispatch import Modules
from perflint.analysis.values.operations import TorchCall, operation
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
    found = called_operation(scope, node)
    does = found.does if found is not None else None
    return does is not None and does.result == "tensor" and not does.does("random") and not does.in_place


def called_module(scope: Scope, node: ast.Call) -> Module | None:
    """The module that is called, where it is known how it was built; raises Blocked if each step has another."""
    if scope.program.value(node.func).kind is Kind.MODULE and scope.varies(node.func):
        raise Blocked(f"{shown(scope.program, node.func)} is another module in each step", node)
    return module_of(scope.program, node.func)


def called_operation(scope: Scope, node: ast.Call) -> TorchCall | None:
    """The operation of torch that is called; None where it is none, or writes to one of its arguments."""
    if any(keyword.arg in ("out", "inplace", None) for keyword in node.keywords):
        return None
    found = operation(scope.program, node)
    is_method = isinstance(node.func, ast.Attribute) and found is not None and found.tensor is node.func.value
    is_known = not is_method or scope.program.value(node.func.value).kind is Kind.TENSOR  # type: ignore[attr-defined]
    return found if is_known else None
