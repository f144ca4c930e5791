"""Tells whether code of the host may raise for some numbers and not for others: what is read of a step, say."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterable
from functools import lru_cache

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import INTEGER, is_integer, number_kind
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import own_nodes

_ODD = (math.nan, math.inf, -math.inf, 0.0, -2.5, 1e308)  # numbers that functions of math raise for, if for any
_WHOLE = re.compile(r"%[-+ #0-9.*]*[diouxXc]")  # which takes no NaN
_DIVIDING = (ast.Div, ast.FloorDiv, ast.Mod)


def raising(program: Program, nodes: Iterable[ast.AST]) -> ast.AST | None:
    """The first of `nodes` that raises for some values; what raises for all of a type doesn't count."""
    return next((each for each in nodes if _raises(program, each)), None)


def _raises(program: Program, node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    if isinstance(node, ast.BinOp):
        return _computes(program, node, node.left, node.op, node.right)
    if isinstance(node, ast.AugAssign):
        return _computes(program, node, node.target, node.op, node.value)
    if isinstance(node, ast.Subscript):
        is_plain = isinstance(node.slice, ast.Constant | ast.Slice) or program.value(node.value).kind is Kind.TENSOR
        return isinstance(node.ctx, ast.Load) and not is_plain
    return isinstance(node, ast.Call) and _fails(program, node)


def _computes(program: Program, node: ast.AST, left: ast.expr, op: ast.operator, right: ast.expr) -> bool:
    """Does it divide by a possible zero, raise to a power, or format numbers as whole ones?"""
    values = [program.value(each) for each in (left, right)]
    if any(each.kind is Kind.TENSOR for each in values):
        return False
    if isinstance(op, ast.Mod) and values[0].kind is Kind.STRING:
        given = right.elts if isinstance(right, ast.Tuple) else [right]
        is_whole = not isinstance(left, ast.Constant) or bool(_WHOLE.search(str(left.value)))
        return is_whole and not all(_is_whole(program, each) for each in given)
    if isinstance(op, ast.Pow):
        return not all(each.is_literal for each in values)
    return isinstance(op, _DIVIDING) and not _is_positive(program, right)


def _is_positive(program: Program, node: ast.expr) -> bool:
    """Is it surely not zero: a written number, a count plus one, or the size of a batch?"""
    literal = program.value(node).literal
    if isinstance(literal, int | float):
        return literal != 0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = (program.value(each).literal for each in (node.left, node.right))
        return _counts(program, node) and any(isinstance(each, int) and each > 0 for each in parts)
    is_length = isinstance(node, ast.Call) and program.qualified(node.func) == "builtins.len"
    return is_length or is_metadata(node) or (isinstance(node, ast.Subscript) and is_metadata(node.value))


def _counts(program: Program, node: ast.BinOp) -> bool:
    for each in (node.left, node.right):
        values = program.get(Flow).graph(each).definitions(each) if isinstance(each, ast.Name) else ()
        sources = [value.source for value in values if isinstance(value, Definition) and value.steps == ("each", 0)]
        is_place = bool(values) and len(sources) == len(values) and all(_enumerates(program, one) for one in sources)
        if not (is_place or is_integer(program, each)):
            return False
    return True


def _enumerates(program: Program, node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and program.qualified(node.func) == "builtins.enumerate" and len(node.args) == 1


def _is_whole(program: Program, node: ast.expr) -> bool:
    return number_kind(program, node) == INTEGER or program.value(node).kind is Kind.STRING


@lru_cache
def _is_total(name: str, arguments: int) -> bool:
    try:
        for numbers in itertools.product(_ODD, repeat=arguments):
            getattr(math, name)(*numbers)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return False
    return True


def _fails(program: Program, call: ast.Call) -> bool:
    """Does a function of Python's raise for NaN, a number out of its range, or nothing?"""
    head, _, name = program.qualified(call.func).rpartition(".")
    if head == "math":
        is_known = all(program.value(each).is_literal for each in call.args)
        return not (is_known or _is_total(name, len(call.args)))
    if head == "builtins" and name in ("int", "round"):
        return len(call.args) == 1 and not _is_whole(program, call.args[0])
    if head == "builtins" and name in ("max", "min"):
        return len(call.args) == 1
    callee = program.callee(call)
    return callee is not None and raising(program, own_nodes(callee)) is not None
