"""The test of what is on the device by which a loop ends, as a tensor that tells the same without being read."""

from __future__ import annotations

import ast
import functools

from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import INTEGER, number_kind
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.calls import check_call
from perflint.transforms.capture.course import Exit
from perflint.transforms.capture.obstacles import VERDICTS, may_read
from perflint.transforms.operations import derived
from perflint.transforms.shown import shown
from perflint.transforms.template import expression

_SMALL = 128
_PLAIN = (ast.Compare, ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.cmpop, ast.expr_context)
_AS_TENSOR = "write it as one comparison of a tensor, or its `.all()` or `.any()`"
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # that are made on the device


def tensor_test(program: Program, end: Exit, loop: PlainLoop) -> ast.expr:
    """The test as a tensor of one truth value, true where the loop is over, with nothing read on the host."""
    test, is_over = end.test, not end.continues
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, is_over = test.operand, not is_over
    code = _as_tensor(program, _unread(program, test), end, loop)
    return code if is_over else expression("{test}.logical_not()", test=code)


def _as_tensor(program: Program, test: ast.expr, end: Exit, loop: PlainLoop) -> ast.expr:
    if isinstance(test, ast.BoolOp):
        both = "{one} & {other}" if isinstance(test.op, ast.And) else "{one} | {other}"
        parts = (_part(program, each, end, loop) for each in test.values)
        return functools.reduce(lambda one, other: expression(both, one=one, other=other), parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _COMPARISONS):
        return _compared(program, test, loop)
    function = test.func if isinstance(test, ast.Call) else None
    is_verdict = isinstance(function, ast.Attribute) and function.attr in VERDICTS
    if not is_verdict and not (program.value(test).kind is Kind.TENSOR and program.value(test).dtype == "bool"):
        raise Blocked(f"{shown(program, end.test)} is read on the host in each step: {_AS_TENSOR}", end.test)
    _check_parts(program, [test], loop)
    return test


def _part(program: Program, test: ast.expr, end: Exit, loop: PlainLoop) -> ast.expr:
    """One of several tests: of a tensor, or of numbers that the host knows, such as which step it is."""
    if may_read(program, test):
        return tensor_test(program, Exit(test, False, end.place), loop)
    if not isinstance(test, ast.Compare) or not all(_is_plain(each) for each in ast.walk(test)):
        raise Blocked(
            f"{shown(program, test)} may be no truth value: write it as a comparison, or test it in front of the loop",
            test,
        )
    return test


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, _PLAIN) and not isinstance(node, ast.Is | ast.IsNot | ast.In | ast.NotIn)


def _unread(program: Program, node: ast.expr) -> ast.expr:
    """What is read, where a test only reads one tensor: `x` of `x.item()` and `bool(x)`."""
    if _is_item(node):
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        return node.func.value
    if isinstance(node, ast.Call) and program.qualified(node.func) == "builtins.bool" and len(node.args) == 1:
        return _unread(program, node.args[0])
    return node


def _compared(program: Program, test: ast.Compare, loop: PlainLoop) -> ast.expr:
    """The comparison, of the tensor where its number was read."""
    left, right = test.left, test.comparators[0]
    tensor = _number_of(program, left)
    if tensor is left:
        _check_parts(program, [left, right], loop)
        return test
    if number_kind(program, tensor) != INTEGER and not _is_exact(program, right):
        raise Blocked(
            f"{shown(program, left)} may be compared otherwise on the device, if it is a float:"
            f" compare {shown(program, tensor)}",
            left,
        )
    _check_parts(program, [tensor, right], loop)
    return derived(test, {left: tensor})


def _is_exact(program: Program, number: ast.expr) -> bool:
    """Is it a number that tensors of all types hold as it is, so that each compares with it as its own number would?"""
    value = program.value(number)
    return value.is_literal and (
        (type(value.literal) is int and 0 <= value.literal < _SMALL) or value.literal in (0.0, 0.5, 1.0)
    )


def _number_of(program: Program, node: ast.expr) -> ast.expr:
    """The tensor whose number is read by `.item()` or `int()`, else the node."""
    is_int = isinstance(node, ast.Call) and program.qualified(node.func) == "builtins.int" and len(node.args) == 1
    if is_int and isinstance(node, ast.Call):
        return _unread(program, node.args[0])
    return _unread(program, node) if _is_item(node) else node


def _is_item(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item"


def _check_parts(program: Program, parts: list[ast.expr], loop: PlainLoop) -> None:
    for part in parts:
        for node in own_nodes(part):
            if isinstance(node, ast.Call):
                check_call(program, node, loop, strict=True)
            is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
            if isinstance(node, ast.BoolOp | ast.Lambda | ast.NamedExpr) or is_not:
                raise Blocked(f"{shown(program, part)} is read on the host in each step: {_AS_TENSOR}", part)
