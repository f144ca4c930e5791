"""Where a variable or attribute occurs in a function, and whether other code may look at it meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.python import SEE_ALL
from perflint.analysis.memory.special_methods import SpecialMethods
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import FUNCTIONS, own_nodes, path_of

_SEES_ALL = SEE_ALL | {"builtins.vars"}  # which is locals() without an argument


def occurrences(scope: ast.AST, path: str) -> list[ast.Name | ast.Attribute]:
    """The places in the own code of `scope` that read, bind or delete `path`, in source order."""
    return [node for node in own_nodes(scope) if isinstance(node, ast.Name | ast.Attribute) and path_of(node) == path]


def is_rebound(program: Program, path: str, start: ast.AST, end: ast.AST) -> bool:
    """May the variable or attribute `path` be given something not made of itself after `start`, and before `end`?

    The statement around `start`, which may do so itself, doesn't count.
    """
    graph = program.get(Flow).graph(end)
    for target in occurrences(graph.scope, path):
        statement = program.statement_of(target)
        if isinstance(target.ctx, ast.Load) or statement is program.statement_of(start):
            continue
        is_between = graph.runs_after(target, start) and graph.runs_after(end, target)
        if is_between and not any(isinstance(each.ctx, ast.Load) for each in occurrences(statement, path)):
            return True
    return False


def start_region(
    program: Program, loop: ast.stmt, path: str, is_start: Callable[[Value], bool]
) -> list[ast.stmt] | None:
    """The statements from the one that certainly gives `path` its value before `loop`, to the one that holds `loop`.

    None where there is no such assignment, of a value for which `is_start` holds, in the same function.
    """
    here: ast.stmt = loop
    while True:
        block = program.block_of(here)
        index = next(position for position, each in enumerate(block) if each is here)
        for position in range(index - 1, -1, -1):
            if _starts(program, block[position], path, is_start):
                return block[position : index + 1]
        parent = program.parent(here)
        if isinstance(parent, ast.ExceptHandler | ast.match_case):
            parent = program.parent(parent)
        if not isinstance(parent, ast.stmt) or isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            return None
        here = parent


def is_empty_list(value: Value) -> bool:
    """Is it a list, or another sequence, of no items?"""
    return value.kind is Kind.SEQUENCE and value.items == ()


def _starts(program: Program, statement: ast.stmt, path: str, is_start: Callable[[Value], bool]) -> bool:
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    stores = [node for node in occurrences(statement, path) if isinstance(node.ctx, ast.Store)]
    return bool(stores) and all(is_start(program.value(node)) for node in stores)


def seen_elsewhere(program: Program, scope: ast.AST, path: str, within: ast.AST) -> str:
    """Who else may look at the variable while `within` runs; empty where nobody can."""
    root, _, attribute = path.partition(".")
    graph = program.get(Flow).graph(within)
    if root in graph.shared and not attribute:
        return f"`{path}` is a variable of an outer scope"
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and program.qualified(node) in _SEES_ALL:
            return f"`{node.id}` may look at `{path}`"
        if isinstance(node, ast.ClassDef) and node is not scope and occurrences(node, path):
            return f"a class defined here uses `{path}`"
    if any(_reads_attribute(each, attribute) for each in graph.inner) if attribute else root in graph.captured:
        return f"a function defined here uses `{path}`"
    if not attribute:
        return ""
    if watcher := _watcher(program, root, attribute, within):
        return f"`{watcher}` sees what `{path}` is given"
    return _seen_through_object(program, root, attribute, within)


def _watcher(program: Program, root: str, attribute: str, within: ast.AST) -> str:
    """The method, of a class that `root` may be of, that stands between the attribute and its value."""
    special = program.get(SpecialMethods)
    named = {name: special.methods[name] for name in ("__setattr__", "__getattribute__")}
    named[attribute] = special.getters[attribute] + special.setters[attribute]
    objects = [program.value(node) for node in occurrences(within, root)]
    found = (name for name, methods in named.items() for each in methods if special.is_of(objects[0], each))
    return attribute if attribute in special.described else next(found, "")


def _reads_attribute(function: ast.AST, attribute: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == attribute for node in ast.walk(function))


def _seen_through_object(program: Program, root: str, attribute: str, within: ast.AST) -> str:
    for node in own_nodes(within):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            return f"other code runs before the loop ends and may look at `{root}.{attribute}`"
        if isinstance(node, ast.Attribute) and _is_property_of(program, node, attribute, set()):
            return f"the property `{node.attr}` may look at `{root}.{attribute}`"
        if not isinstance(node, ast.Call):
            continue
        if any(path_of(argument) == root for argument in arguments_of(node)):
            return f"`{root}` is passed to a call that may look at `{root}.{attribute}`"
        if isinstance(node.func, ast.Attribute) and path_of(node.func.value) == root:
            if program.value(node.func).kind in (Kind.MODULE, Kind.OPTIMIZER, Kind.LIBRARY):
                continue
            callee = program.callee(node)
            if callee is None or _reaches(program, callee, attribute, {callee}):
                return f"`{root}.{node.func.attr}` may look at `{root}.{attribute}`"
    return ""


def _is_property_of(program: Program, node: ast.Attribute, attribute: str, seen: set[ast.AST]) -> bool:
    """Does reading `node` run a property, or a descriptor, that touches the attribute, or may it?"""
    special = program.get(SpecialMethods)
    getters = [
        *special.getters.get(node.attr, ()),
        *(special.methods["__get__"] if node.attr in special.described else ()),
    ]
    return any(each not in seen and _reaches(program, each, attribute, seen | {each}) for each in getters)


def _reaches(program: Program, function: ast.AST, attribute: str, seen: set[ast.AST]) -> bool:
    """Does `function`, or a method it calls, touch the attribute, or may it?"""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == attribute:
            return True
        if isinstance(node, ast.Attribute) and _is_property_of(program, node, attribute, seen):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) == "self":
            callee = program.callee(node)
            if program.value(node.func).kind is Kind.MODULE:
                continue
            if callee is None or (callee not in seen and _reaches(program, callee, attribute, seen | {callee})):
                return True
    return False
