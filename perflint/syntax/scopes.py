"""The names that a statement of a module binds, needs at once, or uses when its code runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import lru_cache

from perflint.syntax.arguments import parameters_of
from perflint.syntax.module import Module
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, Function, bindings_of, own_nodes

_DECLARING = frozenset({ast.Global, ast.Nonlocal})


def bound_names(*statements: ast.stmt) -> set[str]:
    """The names that running `statements` binds in their scope."""
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return set().union(
        *(_bound_by([each] if isinstance(each, definitions) else own_nodes(each)) for each in statements)
    )


def surely_bound_names(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that assignments among `statements` bind whichever branches are taken."""
    found = set[str]()
    for each in statements:
        if isinstance(each, ast.With):
            found |= surely_bound_names(each.body)
        elif isinstance(each, ast.If):
            found |= surely_bound_names(each.body) & surely_bound_names(each.orelse)
        elif isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign):
            names = (node for target, _ in bindings_of(each) for node in ast.walk(target) if isinstance(node, ast.Name))
            found |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return found


def _bound_by(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that `nodes` bind, or delete, where they stand."""
    names: set[str] = set()
    private: set[ast.AST] = set()  # the targets of comprehensions, which nobody else sees
    for node in nodes:
        cls = node.__class__
        if cls not in _BINDING:
            continue
        if cls is ast.Name:
            if node.ctx.__class__ is not ast.Load and node not in private:  # type: ignore[attr-defined]
                names.add(node.id)  # type: ignore[attr-defined]
        elif cls is ast.comprehension:  # which stands before its target
            private.update(ast.walk(node.target))  # type: ignore[attr-defined]
        elif cls is ast.Import or cls is ast.ImportFrom:
            names.update(each.asname or each.name.partition(".")[0] for each in node.names)  # type: ignore[attr-defined]
        elif name := getattr(node, _BINDING[cls]):
            names.add(name)
    return names


_BINDING: dict[type[ast.AST], str] = {
    ast.Name: "id",
    ast.comprehension: "target",
    **dict.fromkeys((ast.Import, ast.ImportFrom), "names"),
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


@lru_cache(maxsize=256)
def local_names(function: Function) -> frozenset[str]:
    """The names that belong to a function: its parameters and what it binds, unless it declares them global."""
    own = own_nodes(function)[1:]
    names = _bound_by(own).union(each.arg for each in parameters_of(function))
    foreign = (node.names for node in own if node.__class__ in _DECLARING)  # type: ignore[attr-defined]
    return frozenset(names.difference(*foreign))
