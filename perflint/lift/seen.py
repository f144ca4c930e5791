"""Tells what the function of a loop does with its variables around the loop."""

from __future__ import annotations

import ast

from perflint.lift.scope import Scope, given_by
from perflint.program.occurrences import occurrences

STACKS = frozenset({"torch.stack", "torch.cat"})


def starts_of(scope: Scope, name: str) -> list[ast.expr | None]:
    """What the variable is given in front of the loop; None for what is not in sight."""
    values: list[ast.expr | None] = []
    for definition in scope.starts(name):
        statement = scope.program.statement_of(definition) if isinstance(definition, ast.Name) else None
        values.append(given_by(statement, definition) if isinstance(statement, ast.Assign) else None)
    return values or [None]


def is_only_joined(scope: Scope, path: str) -> bool:
    """Is it a new list, of which nothing takes a tensor out, but all of them are joined to others?"""
    if path in scope.facts.flow.bindings(scope.facts.loop).shared:
        return False
    starts = scope.starts(path)
    uses = [use for use in _names(scope, path) if scope.facts.flow.definitions(use) & starts]
    is_new = all(isinstance(value, ast.List | ast.ListComp) for value in starts_of(scope, path))
    return is_new and all(_is_joined(scope, use) for use in uses)


def _is_joined(scope: Scope, use: ast.Name) -> bool:
    """Is a list joined, measured, or filled here?"""
    parent = scope.program.parent(use)
    if isinstance(parent, ast.Attribute | ast.AugAssign):
        return isinstance(use.ctx, ast.Store) or getattr(parent, "attr", "") in ("append", "extend")
    return isinstance(parent, ast.Call) and scope.program.qualified(parent.func) in (*STACKS, "builtins.len")


def is_written(scope: Scope, name: str) -> bool:
    """Does the function write to the tensor in place outside of the loop, where that is in sight?"""
    for node in _names(scope, name):
        if node in scope.facts.inside:
            continue
        above = scope.program.parent(node)
        if isinstance(above, ast.AugAssign) and above.target is node:
            return True
        if isinstance(above, ast.Subscript) and above.value is node and not isinstance(above.ctx, ast.Load):
            return True
        if isinstance(above, ast.Attribute) and above.attr.endswith("_"):
            return True
    return False


def is_read_once(scope: Scope, name: str) -> bool:
    """Is the variable given a value in one place, and read in one other?"""
    return [isinstance(node.ctx, ast.Load) for node in _names(scope, name)] in ([False, True], [True, False])


def _names(scope: Scope, name: str) -> list[ast.Name]:
    """Where the function of the loop has the variable."""
    around = scope.program.function_of(scope.facts.loop) or scope.program.tree
    return [node for node in occurrences(around, name) if isinstance(node, ast.Name)]
