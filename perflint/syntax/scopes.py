"""The names that a statement of a module binds, needs at once, or uses when its code runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.syntax.module import Module
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, own_nodes


def bound_names(*statements: ast.stmt) -> set[str]:
    """The names that running `statements` binds in their scope."""
    names: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(statement.name)
        else:
            names.update(name for node in own_nodes(statement) if (name := _bound_by(node)))
    return names


def _bound_by(node: ast.AST) -> str | None:
    """The name that `node` itself binds, or deletes, where it stands."""
    cls = node.__class__
    if cls is ast.Name:
        return None if node.ctx.__class__ is ast.Load else node.id  # type: ignore[attr-defined]
    if cls is ast.alias:
        return node.asname or node.name.partition(".")[0]  # type: ignore[attr-defined]
    return getattr(node, _BINDING[cls]) if cls in _BINDING else None


_BINDING = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler), "name"),
    **dict.fromkeys((ast.MatchAs, ast.MatchStar), "name"),
    ast.MatchMapping: "rest",
}


def definition_names(program: Module, statement: ast.stmt) -> set[str]:
    """The names read when `statement` runs: of a definition in decorators, defaults, bases and the class body."""
    deferred = any(
        isinstance(each, ast.ImportFrom)
        and each.module == "__future__"
        and any(a.name == "annotations" for a in each.names)
        for each in program.tree.body[:3]
    )
    names: set[str] = set()
    for part in _read_at_once(statement, deferred):
        names.update(
            node.id for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )
    return names


def _read_at_once(node: ast.AST, deferred: bool) -> Iterable[ast.AST]:
    if isinstance(node, ast.Lambda):
        yield from _defaults(node.args)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from node.decorator_list
        yield from _defaults(node.args)
        if not deferred:
            yield from (
                each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg) and each.annotation
            )
            if node.returns is not None:
                yield node.returns
    elif isinstance(node, ast.ClassDef):
        yield from (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords))
        for each in node.body:
            yield from _read_at_once(each, deferred)
    else:
        yield node


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]


def used_names(definitions: Iterable[ast.stmt]) -> set[str]:
    """The names of the module that `definitions` read, when they run or when they are called."""
    return {name for each in definitions for name in _free_names(each)}


def _free_names(node: ast.AST) -> set[str]:
    """The names that `node` reads and does not bind itself."""
    if isinstance(node, COMPREHENSIONS):
        bound = {
            name.id
            for generator in node.generators
            for name in ast.walk(generator.target)
            if isinstance(name, ast.Name)
        }
        return _in_children(node) - bound
    if isinstance(node, ast.ClassDef):
        return _in_children(node)  # what the body binds is not seen by its methods
    if isinstance(node, FUNCTIONS):
        return _in_children(node) - local_names(node)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return {node.id}
    return _in_children(node)


def _in_children(node: ast.AST) -> set[str]:
    return {name for child in ast.iter_child_nodes(node) for name in _free_names(child)}


def local_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """The names that belong to a function: its parameters and what it binds, unless it declares them global."""
    names = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    foreign: set[str] = set()
    for node in own_nodes(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            foreign.update(node.names)
        elif node is not function and (name := _bound_by(node)):
            names.add(name)
    return names - foreign
