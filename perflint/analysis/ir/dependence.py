"""Which variables of a piece of code depend on others, whatever the order of its statements."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.syntax.walk import bindings_of, own_nodes


def reads(node: ast.AST, names: Iterable[str]) -> bool:
    """Does `node` name one of these variables?"""
    known = frozenset(names)
    return any(isinstance(each, ast.Name) and each.id in known for each in ast.walk(node))


def dependents(scope: ast.AST, names: Iterable[str]) -> frozenset[str]:
    """These variables, and those that the own code of `scope` computes of them, or hands them to by a method."""
    bound = [pair for node in own_nodes(scope) for pair in _bound(node)]
    found, size = set(names), -1
    while size != len(found):
        size = len(found)
        for target, given in bound:
            if reads(given, found):
                found |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
    return frozenset(found)


def _bound(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """What `node` gives a value, and of what that is made."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        owner = node.value.func.value
        return [(owner, node.value)] if isinstance(owner, ast.Name) and owner.id != "self" else []
    return bindings_of(node)
