"""Tells how many items lists have that are made by counting: whether one loop walks all of another's."""

from __future__ import annotations

import ast

from perflint.syntax.walk import integer, path_of
from perflint.transforms.vectorize.module_lists import added
from perflint.transforms.vectorize.modules import construction, values_of
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.seen import starts_of

_DEPTH = 8


def count_of(scope: Scope, node: ast.expr | None, depth: int = _DEPTH) -> str:
    """How many items a list, or what a loop walks, has: equal where they are as many; empty where that is not plain."""
    if node is None or not depth:
        return ""
    if isinstance(node, ast.List | ast.Tuple):
        return "" if any(isinstance(each, ast.Starred) for each in node.elts) else str(len(node.elts))
    if isinstance(node, ast.ListComp):
        generator = node.generators[0]
        return "" if len(node.generators) > 1 or generator.ifs else count_of(scope, generator.iter, depth - 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and count_of(scope, node.left, depth - 1) == "1":
        return _number(scope, node.right, depth - 1)
    if isinstance(node, ast.Call):
        return _called(scope, node, depth - 1)
    built = construction(scope.program, node) if isinstance(node, ast.Attribute) else None
    if built is None or scope.program.qualified(built.func) != "torch.nn.ModuleList" or len(built.args) != 1:
        return ""
    is_whole = not any(True for _ in added(scope.program, node))
    return count_of(scope, built.args[0], depth - 1) if is_whole else ""


def is_last(scope: Scope, index: ast.expr, path: str) -> bool:
    """Is `index` that of the last item of the list that is called `path` in front of the loop?"""
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Sub) or integer(index.right) != 1:
        return False
    counts = {_number(scope, index.left, _DEPTH), *(count_of(scope, start) for start in starts_of(scope, path))}
    return len(counts) == 1 and "" not in counts


def _called(scope: Scope, node: ast.Call, depth: int) -> str:
    name = scope.program.qualified(node.func)
    if name == "builtins.range" and 1 <= len(node.args) <= 2:
        return _number(scope, node.args[-1], depth)
    return count_of(scope, node.args[0], depth) if name == "builtins.enumerate" and len(node.args) == 1 else ""


def _number(scope: Scope, node: ast.expr, depth: int) -> str:
    """A number: a constant, a parameter, or what an attribute is given once."""
    if not depth:
        return ""
    if (value := integer(node)) is not None:
        return str(value)
    if isinstance(node, ast.Call) and scope.program.qualified(node.func) == "builtins.len" and node.args:
        return count_of(scope, node.args[0], depth - 1)
    if isinstance(node, ast.Attribute):
        values = values_of(scope.program, node)
        given = values[0] if len(values) == 1 else None
        return _number(scope, given, depth - 1) if given is not None else "" if values else path_of(node)
    if not isinstance(node, ast.Name):
        return ""
    definitions = scope.facts.flow.definitions(node)
    made = next(iter(definitions)) if len(definitions) == 1 else None
    if isinstance(made, ast.arg):
        return f"{made.arg}:{made.lineno}"
    statement = scope.program.statement_of(made) if made is not None else None
    if isinstance(statement, ast.Assign) and statement.targets == [made]:
        return _number(scope, statement.value, depth - 1)
    return ""
