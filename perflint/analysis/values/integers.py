"""Proves that an expression is an integer of Python: a size, a count, or arithmetic on them."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.shapes import Shapes, axis_of
from perflint.syntax.walk import integer

_COUNTS = frozenset({"builtins.len", "builtins.int"})
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_DEPTH = 4


def is_integer(program: Program, shapes: Shapes, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Is `node` certainly an integer?"""
    if integer(node) is not None or axis_of(node) is not None:
        return True
    if isinstance(node, ast.Call):
        return program.qualified(node.func) in _COUNTS or _is_count_of_tensor(node)
    if isinstance(node, ast.BinOp):
        parts = (node.left, node.right)
        return isinstance(node.op, _ARITHMETIC) and all(is_integer(program, shapes, each, depth) for each in parts)
    if not isinstance(node, ast.Name) or not depth:
        return False
    definitions = shapes.flow.definitions(node)
    return bool(definitions) and all(_defines_integer(program, shapes, each, depth) for each in definitions)


def _is_count_of_tensor(node: ast.Call) -> bool:
    operation = torch_ops.of_method(node.func.attr) if isinstance(node.func, ast.Attribute) else None
    return operation is not None and operation.name in ("numel", "dim")


def _defines_integer(program: Program, shapes: Shapes, definition: ast.AST, depth: int) -> bool:
    if isinstance(definition, ast.arg):
        return isinstance(definition.annotation, ast.Name) and definition.annotation.id == "int"
    around = program.parent(definition)
    if isinstance(around, ast.For) and around.target is definition and isinstance(around.iter, ast.Call):
        return program.qualified(around.iter.func) == "builtins.range"
    value = shapes.assigned(definition)
    return isinstance(value, tuple) or (value is not None and is_integer(program, shapes, value, depth - 1))
