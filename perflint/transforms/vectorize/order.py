"""Puts the statements that read a Cell's state as the step before left it behind the call of the Cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.syntax.walk import own_nodes
from perflint.transforms.vectorize.recurrent import is_recurrent, state_argument
from perflint.transforms.vectorize.results import appended
from perflint.transforms.vectorize.scope import Scope, root_of

Order = tuple[list[ast.stmt], frozenset[ast.AST]]


def in_order(scope: Scope, body: list[ast.stmt]) -> Order:
    """The statements of a step, and the names in them that stand for what the step before left.

    A Cell whose input depends on such a name stays where it is: no order tells its state in time.
    """
    late: frozenset[ast.AST] = frozenset()
    for place, statement in enumerate(body):
        for name in _states(scope, statement):
            given = [each for each in body if name in _stored([each])]
            if len(given) == 1 and given[0] not in body[:place]:
                body, found = _behind(body, statement, name)
                late |= found
    return body, late


def _states(scope: Scope, node: ast.stmt) -> list[str]:
    """The variables that a Cell called here finds its state in."""
    if not isinstance(node, ast.Assign) or not is_recurrent(scope, node.value):
        return []
    assert isinstance(node.value, ast.Call)
    state = state_argument(node.value)
    return [part.id for part in getattr(state, "elts", [state]) if isinstance(part, ast.Name)]


def _behind(body: list[ast.stmt], update: ast.stmt, name: str) -> Order:
    """The statements with those that read `name` behind the Cell, `update`, where this changes nothing else."""
    place = body.index(update)
    stay: list[ast.stmt] = []
    moved: list[ast.stmt] = []
    for each in [*body[:place], update]:
        is_late = each is not update and (name in _read([each]) or _read([each]) & _written(moved))
        others = {name} if each is update else set()
        clashes = (_written([each]) - others) & (_read(moved) | _written(moved)) or _read([each]) & _written(moved)
        if clashes and not is_late:
            return body, frozenset()
        (moved if is_late else stay).append(each)
    late = frozenset(node for node in _names(moved) if node.id == name)
    return [*stay, *moved, *body[place + 1 :]], late


def _names(statements: list[ast.stmt]) -> Iterator[ast.Name]:
    return (node for each in statements for node in own_nodes(each) if isinstance(node, ast.Name))


def _stored(statements: list[ast.stmt]) -> set[str]:
    return {node.id for node in _names(statements) if isinstance(node.ctx, ast.Store)}


def _read(statements: list[ast.stmt]) -> set[str]:
    return {node.id for node in _names(statements) if isinstance(node.ctx, ast.Load)}


def _written(statements: list[ast.stmt]) -> set[str]:
    """The variables that get another value, or whose value may be changed."""
    found = _stored(statements)
    for each in statements:
        kept = appended(each)
        if kept is not None:
            found.add(root_of(kept[0]))
        elif isinstance(each, ast.Expr):
            found |= _read([each])
        parts = (node for node in own_nodes(each) if isinstance(node, ast.Subscript | ast.Attribute))
        found |= {root_of(ast.unparse(part)) for part in parts if isinstance(part.ctx, ast.Store)}
    return found
