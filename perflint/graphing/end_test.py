"""The test of what is on the device by which a loop ends, and the tensor that tells the same without being read."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.fixes.blocked import Blocked
from perflint.fixes.shown import shown
from perflint.fixes.text import atom
from perflint.graphing.calls import check_call
from perflint.graphing.reads import check_test
from perflint.program.dtypes import INTEGER, number_kind
from perflint.program.walk import PlainLoop, own_nodes

if TYPE_CHECKING:
    from perflint.program import Program

_VERDICTS = frozenset({"all", "any"})
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # that are made on the device


def end_test(program: Program, loop: PlainLoop) -> ast.If | None:
    """The statement of the loop that leaves it by a test of a tensor, if there is one and no other."""
    found = [each for each in loop.body if isinstance(each, ast.If) and _leaves(each) and _reads(program, each.test)]
    return found[0] if len(found) == 1 else None


def _leaves(node: ast.If) -> bool:
    return len(node.body) == 1 and isinstance(node.body[0], ast.Break) and not node.orelse


def _reads(program: Program, test: ast.expr) -> bool:
    try:
        check_test(program, test)
    except Blocked:
        return True
    calls = (node.func for node in ast.walk(test) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr in {*_VERDICTS, "item"} for func in calls)


def tensor_test(program: Program, end: ast.If, loop: ast.For) -> str:
    """The test as a tensor of one truth value, with nothing read on the host."""
    test = end.test
    if _is_item(test):
        assert isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute)
        test = test.func.value
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _COMPARISONS):
        return _compared(program, test, loop)
    function = test.func if isinstance(test, ast.Call) else None
    is_verdict = isinstance(function, ast.Attribute) and function.attr in _VERDICTS
    if not is_verdict:
        raise Blocked(f"{shown(program, end.test)} is read on the host in each step", end)
    _check_parts(program, [test], loop)
    return program.segment(test)


def _compared(program: Program, test: ast.Compare, loop: ast.For) -> str:
    """The comparison, of the tensor where its number was read."""
    left, right = test.left, test.comparators[0]
    if not _is_item(left):
        _check_parts(program, [left, right], loop)
        return program.segment(test)
    assert isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute)
    tensor = left.func.value
    if number_kind(program, tensor) != INTEGER:
        raise Blocked(f"{shown(program, left)} may be compared otherwise on the device", left)
    _check_parts(program, [tensor, right], loop)
    (start, end), (first, last) = program.span(test), program.span(left)
    return program.text[start:first] + atom(program.segment(tensor)) + program.text[last:end]


def _is_item(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item"


def _check_parts(program: Program, parts: list[ast.expr], loop: ast.For) -> None:
    for part in parts:
        for node in own_nodes(part):
            if isinstance(node, ast.Call):
                check_call(program, node, loop, strict=True)
            if isinstance(node, ast.BoolOp | ast.Lambda | ast.NamedExpr) or isinstance(
                getattr(node, "op", None), ast.Not
            ):
                raise Blocked(f"{shown(program, part)} is read on the host in each step", part)
