"""Tells what a decorator does with the function that it decorates: nothing, but to keep it, call it and return it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.syntax.arguments import parameters_of
from perflint.syntax.walk import FUNCTIONS, own_nodes

_DESCRIBES = frozenset({"__name__", "__qualname__", "__doc__", "__module__"})
_LOOKS = frozenset(  # what is told of a function through `__wrapped__`, too
    ("functools.wraps", "functools.update_wrapper", "inspect.signature", "builtins.callable", "builtins.id")
)
_DEPTH = 3  # of decorators that are made by calls


def may_do_more(program: Program, decorator: ast.expr) -> bool:
    """May a decorator do something else with a function than keep, call and return it: compile its code, say?

    One of another file is looked up there.
    """
    calls = 0
    while isinstance(decorator, ast.Call):
        decorator, calls = decorator.func, calls + 1
    value = program.value(decorator)
    if isinstance(value.node, ast.FunctionDef):
        return not only_calls(program, value.node, calls)
    return not program.only_calls_elsewhere(value, calls)


def only_calls(program: Program, decorator: ast.AST | None, calls: int = 0) -> bool:
    """Does a function of this file, as a decorator, do nothing with what it decorates but keep, call and return it?

    As in `@cached(size=3)`, it may take so many `calls` to have the decorator.
    """
    if not isinstance(decorator, ast.FunctionDef) or decorator.decorator_list or calls > _DEPTH:
        return False
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Global) for node in own_nodes(decorator)):
        return False
    if calls:
        made = [*_returned(decorator)]
        return bool(made) and all(only_calls(program, each, calls - 1) for each in made)
    taken = [*decorator.args.posonlyargs, *decorator.args.args]
    return len(taken) == 1 and _is_kept(program, decorator, {taken[0].arg})


def exported(program: Program, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, ...]:
    """After how many calls a function of the module is such a decorator for others; none where its name may change."""
    bindings = program.get(Flow).graph_of(program.tree).bindings.get(function.name, [])
    is_plain = [each.node for each in bindings] == [function]
    return tuple(calls for calls in (0, 1) if is_plain and only_calls(program, function, calls))


def _returned(function: ast.FunctionDef) -> Iterator[ast.FunctionDef | None]:
    """The functions defined in `function` that it returns; None for all else."""
    own = {each.name: each for each in ast.walk(function) if isinstance(each, ast.FunctionDef) and each is not function}
    for node in own_nodes(function):
        if isinstance(node, ast.Return):
            yield own.get(node.value.id) if isinstance(node.value, ast.Name) else None


def _is_kept(program: Program, function: ast.FunctionDef, names: set[str]) -> bool:
    """Is what has one of these names in a function only called, kept under another name, looked at and returned?"""
    inner = [each for each in ast.walk(function) if isinstance(each, FUNCTIONS) and each is not function]
    if any(names & {parameter.arg for parameter in parameters_of(each)} for each in inner):
        return False
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id not in names:
            continue
        if not isinstance(node.ctx, ast.Load):
            continue
        alias = _use(program, node)
        if alias is None or (alias and alias not in names and not _is_kept(program, function, names | {alias})):
            return False
    return True


def _use(program: Program, node: ast.expr) -> str | None:
    """The name under which a use of a function keeps it, empty where it needs none; None for a use that isn't known."""
    parent = program.parent(node)
    if isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.IfExp) and node is not parent.test):
        return _use(program, parent)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0].id
    is_read = isinstance(parent, ast.Attribute) and parent.attr in _DESCRIBES and isinstance(parent.ctx, ast.Load)
    if is_read or isinstance(parent, ast.Return | ast.If | ast.IfExp | ast.UnaryOp):
        return ""
    if isinstance(parent, ast.Compare) and all(isinstance(each, ast.Is | ast.IsNot) for each in parent.ops):
        return ""
    if isinstance(parent, ast.Call) and (parent.func is node or program.qualified(parent.func) in _LOOKS):
        return ""
    return None
