"""The batching rule of calls of functions and modules of the same file: what their bodies compute."""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import replace

from perflint.analysis.memory.dispatch import may_be_wrapped
from perflint.analysis.values.classes import ClassInfo
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import defaults_of
from perflint.syntax.walk import own_nodes
from perflint.transforms.blocked import Blocked, shown
from perflint.transforms.template import reference
from perflint.transforms.vectorize.scope import Callee, Scope
from perflint.transforms.vectorize.values import Batched, Invariant, Value

_ATTRIBUTES = frozenset({"__getattr__", "__getattribute__", "__setattr__"})
_DEPTH = 3


def intercepts(owner: ClassInfo, names: Set[str] = _ATTRIBUTES) -> bool:
    """Whether a class says itself what it means to read or to set an attribute, or whatever `names` are about."""
    return any(info.methods.keys() & names for info in owner.lineage())


def callee_of(scope: Scope, node: ast.Call) -> ast.FunctionDef | None:
    """The function of this file that surely runs; None where `node` calls something else."""
    function = scope.program.callee(node)
    if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
        return None
    value = scope.program.value(node.func)
    if not value.sure or value.kind not in (Kind.MODULE, Kind.FUNCTION):
        return None
    return function


def lift_inline(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> Value:
    """The value of a call of `function`; its statements go to `scope.draft.before`. Raises Blocked."""
    _check(scope, node, function)
    inner = _entered(scope, node, function)
    *statements, last = [each for each in function.body if not _is_docstring(each)] or function.body
    if not isinstance(last, ast.Return) or last.value is None:
        raise Blocked(f"`{function.name}` does not end by returning what it computes", node)
    try:
        for each in scope.facts.lift_statements(inner, statements):
            scope.draft.before.append(each)
        return inner.lift(last.value)
    except Blocked as blocked:
        raise Blocked(f"in {shown(scope.program, node.func)}, {blocked}", node) from None


def _check(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> None:
    owner = scope.program.class_of(function)
    if function.decorator_list or _depth(scope) >= _DEPTH:
        raise Blocked(f"`{function.name}` is wrapped or calls too deep", node)
    if may_be_wrapped(scope.program):
        raise Blocked(f"{shown(scope.program, node.func)} may be wrapped: calling it is more than its body", node)
    if owner is not None and intercepts(owner, {*_ATTRIBUTES, "__call__"}):
        raise Blocked(f"calling {shown(scope.program, node.func)} is more than its body", node)
    if owner is not None and any(True for _ in owner.overriding(function.name)):
        raise Blocked(f"a subclass has its own `{function.name}`", node)
    if scope.varies(node.func):
        raise Blocked("another function is called in each step", node)
    if any(isinstance(each, ast.Global | ast.Nonlocal | ast.Yield | ast.Lambda) for each in own_nodes(function)):
        raise Blocked(f"`{function.name}` does more than compute", node)


def _depth(scope: Scope) -> int:
    return scope.callee.depth if scope.callee is not None else 0


def _entered(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> Scope:
    """The scope of `function`, whose parameters have the values of the arguments."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg or any(isinstance(each, ast.Starred) for each in node.args):
        raise Blocked(f"`{function.name}` takes any number of arguments", node)
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    inner = Scope(scope.facts, scope.draft, scope.assigned, callee=Callee(_depth(scope) + 1))
    if scope.program.class_of(function) is not None:
        inner = _with_self(scope, inner, names.pop(0), scope.code(_receiver(scope, node)))
    given, defaults = scope.program.arguments(node, function).given, defaults_of(function)
    for name in [*names, *(each.arg for each in arguments.kwonlyargs)]:
        if name in given:
            _hand(inner, name, scope.lift(given[name]), function)
        elif isinstance(defaults.get(name), ast.Constant):
            _hand(inner, name, Invariant(defaults[name], 0), function)
        else:
            raise Blocked(f"`{function.name}` gets no `{name}`", node)
    return inner


def _hand(inner: Scope, name: str, value: Value, function: ast.FunctionDef) -> None:
    reads = sum(isinstance(each, ast.Name) and each.id == name for each in ast.walk(function))
    if isinstance(value, Batched) and reads > 1:  # dropout draws once, and nothing is computed twice
        is_computed = any(isinstance(each, ast.Call | ast.BinOp) for each in ast.walk(value.code))
        value = value.named(reference(inner.bound(value.code)) if is_computed else value.code)
    inner.values[name] = value
    if isinstance(value, Invariant) and inner.callee is not None:
        inner.callee.codes[name] = value.code


def _with_self(scope: Scope, inner: Scope, name: str, receiver: ast.expr) -> Scope:
    prefix = f"{ast.unparse(receiver)}."
    known = (*scope.values, *scope.assigned)
    own = {each: f"{name}.{each.removeprefix(prefix)}" for each in known if each.startswith(prefix)}
    others = {each for each in scope.assigned if not each.startswith(f"{name}.")}
    values = {own[each]: value for each, value in scope.values.items() if each in own}
    shared = {own[each] for each in scope.assigned if each in own}
    callee = Callee(_depth(inner), {name: receiver})
    return replace(inner, assigned=frozenset(shared | others), values=values, callee=callee)


def _receiver(scope: Scope, node: ast.Call) -> ast.expr:
    if scope.program.value(node.func).kind is Kind.MODULE:
        return node.func
    if not isinstance(node.func, ast.Attribute):
        raise Blocked("it is not known what a method is called of", node)
    return node.func.value


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
