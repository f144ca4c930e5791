"""Tells whether a sum over all steps at once has the type of one that is made step by step."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.analysis.values.dtypes import FLOAT, INTEGER, assigned, is_wide_integer, number_kind
from perflint.analysis.values.values import Kind
from perflint.transforms.vectorize.seen import starts_of

if TYPE_CHECKING:
    from perflint.analysis.program import Program
    from perflint.transforms.vectorize.scope import Scope

_NARROW = frozenset("bool byte char short int uint8 int8 int16 int32 uint16 uint32".split())


def keeps_type(scope: Scope, path: str, addend: ast.expr) -> bool:
    """Is the sum `path` of the same type if `addend` is summed up first, where torch makes small integers 64 bits wide?

    What is not known to be small integers or truth values passes for something else.
    """
    if not _is_narrow(scope.program, addend):
        return True
    return all(start is not None and _absorbs(scope.program, start, addend) for start in starts_of(scope, path))


def _is_narrow(program: Program, node: ast.expr) -> bool:
    kind, dtype = number_kind(program, node), program.value(node).dtype
    if kind == FLOAT or is_wide_integer(program, node):
        return False
    values = (assigned(program, node) if isinstance(node, ast.Name) else None) or [node]
    is_cast = any(_makes_narrow(program, each) for value in values for each in ast.walk(value))
    return is_cast or (kind == INTEGER and dtype != "int")


def _makes_narrow(program: Program, node: ast.AST) -> bool:
    """Is it `.int()`, or a type such as `torch.uint8`?"""
    if isinstance(node, ast.Call):
        return not node.args and isinstance(node.func, ast.Attribute) and node.func.attr in _NARROW
    name = program.qualified(node) if isinstance(node, ast.Attribute | ast.Name) else ""
    return name.startswith("torch.") and name.removeprefix("torch.") in _NARROW


def _absorbs(program: Program, start: ast.expr, addend: ast.expr) -> bool:
    """Does adding to `start` give the same type, whether what is added is narrow or not?"""
    if program.value(start).kind is Kind.NUMBER:
        return number_kind(program, start) == FLOAT or program.value(addend).dtype == "bool"
    return not _is_narrow(program, start)
