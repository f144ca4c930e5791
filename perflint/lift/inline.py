"""Lifts calls of functions and modules of the same file: by what their bodies compute."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.lift.scope import Scope
from perflint.lift.steps import Cannot, Lifted, Same, Steps, atom
from perflint.program.values import Kind
from perflint.program.walk import own_nodes

_WRAPS = ("DataParallel", "torch.compile", ".compile(", "jit.", "register_forward", "register_module", "checkpoint(")
_INTERCEPTS = frozenset({"__call__", "__getattr__", "__getattribute__", "__setattr__"})
_DEPTH = 3


def callee_of(scope: Scope, node: ast.Call) -> ast.FunctionDef | None:
    """The function of this file that surely runs; None where `node` calls something else."""
    function = scope.program.callee(node)
    if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
        return None
    value = scope.program.value(node.func)
    if not value.sure or value.kind not in (Kind.MODULE, Kind.FUNCTION):
        return None
    return function


def lift_inline(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> Lifted:
    """The value of a call of `function` in all steps; its statements go to `scope.before`. Raises Cannot."""
    _check(scope, node, function)
    inner = replace(scope, values={}, texts={}, locals={}, depth=scope.depth + 1)
    _bind(scope, inner, node, function)
    *statements, last = [each for each in function.body if not _is_docstring(each)] or function.body
    if not isinstance(last, ast.Return) or last.value is None:
        raise Cannot(f"`{function.name}` does not end by returning what it computes", node)
    try:
        for text in inner.lift_statements(statements):
            scope.before.append(text)
        return inner.lift(last.value)
    except Cannot as cannot:
        raise Cannot(f"in `{scope.program.segment(node.func)}`, {cannot}", node) from None


def _check(scope: Scope, node: ast.Call, function: ast.FunctionDef) -> None:
    owner = scope.program.class_of(function)
    if function.decorator_list or scope.depth >= _DEPTH:
        raise Cannot(f"`{function.name}` is wrapped or calls too deep", node)
    if any(wrap in scope.program.text for wrap in _WRAPS):
        raise Cannot(f"`{scope.program.segment(node.func)}` may be wrapped: calling it is more than its body", node)
    if owner is not None and any(info.methods.keys() & _INTERCEPTS for info in owner.lineage()):
        raise Cannot(f"calling `{scope.program.segment(node.func)}` is more than its body", node)
    if owner is not None and any(True for _ in owner.overriding(function.name)):
        raise Cannot(f"a subclass has its own `{function.name}`", node)
    if scope.varies(node.func):
        raise Cannot("another function is called in each step", node)
    if any(isinstance(each, ast.Global | ast.Nonlocal | ast.Yield | ast.Lambda) for each in own_nodes(function)):
        raise Cannot(f"`{function.name}` does more than compute", node)


def _bind(scope: Scope, inner: Scope, node: ast.Call, function: ast.FunctionDef) -> None:
    """Give the parameters of `function` the values of the call's arguments."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg or any(isinstance(each, ast.Starred) for each in node.args):
        raise Cannot(f"`{function.name}` takes any number of arguments", node)
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    assert inner.texts is not None
    if scope.program.class_of(function) is not None:
        _share(scope, inner, names.pop(0), scope.text(_receiver(scope, node)))
    given = dict(zip(names, node.args, strict=False))
    given.update({keyword.arg: keyword.value for keyword in node.keywords if keyword.arg})
    defaults = dict(zip(names[::-1], arguments.defaults[::-1], strict=False))
    defaults.update(
        {each.arg: value for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    )
    for name in [*names, *(each.arg for each in arguments.kwonlyargs)]:
        if name in given:
            value = scope.lift(given[name])
        elif isinstance(defaults.get(name), ast.Constant):
            value = Same(ast.unparse(defaults[name]), 0)
        else:
            raise Cannot(f"`{function.name}` gets no `{name}`", node)
        reads = sum(isinstance(each, ast.Name) and each.id == name for each in ast.walk(function))
        if isinstance(value, Steps) and "(" in value.text and reads > 1:
            value = value.named(scope.bound(value.text))  # dropout draws once, and nothing is computed twice
        inner.values[name] = value
        if isinstance(value, Same):
            inner.texts[name] = atom(value.text)


def _share(scope: Scope, inner: Scope, name: str, receiver: str) -> None:
    """Let the attributes of `name`, in the function that is called, be those of `receiver`."""
    assert inner.texts is not None
    inner.texts[name] = atom(receiver)
    prefix = f"{receiver}."
    inner.values.update(
        {name + path[len(receiver) :]: value for path, value in scope.values.items() if path.startswith(prefix)}
    )
    shared = {name + path[len(receiver) :] for path in scope.assigned if path.startswith(prefix)}
    inner.assigned = frozenset(shared | {path for path in scope.assigned if not path.startswith(f"{name}.")})


def _receiver(scope: Scope, node: ast.Call) -> ast.expr:
    """What stands for self: the module that is called, or what its method is taken of."""
    if scope.program.value(node.func).kind is Kind.MODULE:
        return node.func
    if not isinstance(node.func, ast.Attribute):
        raise Cannot("it is not known what a method is called of", node)
    return node.func.value


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
