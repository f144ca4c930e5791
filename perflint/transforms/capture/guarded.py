"""The tests of a loop that are only asked where those in front of them allow it: a step asks all, and none may fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, own_nodes, stores
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.course import Course
from perflint.transforms.capture.ownership import bound_to
from perflint.transforms.shown import shown

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)


def check_guarded(program: Program, loop: PlainLoop, course: Course) -> None:
    """Raise Blocked where a test may fail in a step in which the program doesn't get as far as to ask it."""
    for test in _guarded(loop, course):
        for node in own_nodes(test):
            if _is_perhaps_none(program, loop, node) or any(_reads_number(program, each) for each in _picky(node)):
                reason = "may fail in steps that the tests in front of it keep it from: write it so that it can't"
                raise Blocked(f"{shown(program, test)} {reason}", test)


def _guarded(loop: PlainLoop, course: Course) -> Iterator[ast.expr]:
    end = course.end
    first = min(course.exits, key=lambda each: each.lineno, default=None)
    in_front = loop.test.values[0] if isinstance(loop, ast.While) and isinstance(loop.test, ast.BoolOp) else end.test
    if first is not end.place if end.place is not None else in_front is not end.test:
        yield end.test
    for node in ast.walk(end.test):
        if isinstance(node, ast.BoolOp):
            yield from node.values[1:]


def _picky(node: ast.AST) -> list[ast.expr]:
    """The parts that a wrong number makes fail: an index, a divisor, an argument."""
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Call):
        return [*node.args, *(each.value for each in node.keywords)]
    return [node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, _DIVISIONS) else []


def _reads_number(program: Program, part: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and program.value(node).kind is Kind.NUMBER for node in own_nodes(part))


def _is_perhaps_none(program: Program, loop: PlainLoop, node: ast.AST) -> bool:
    function = program.function_of(loop)
    if not isinstance(node, ast.Name) or function is None:
        return False
    values = (bound_to(program, each) for each in stores(function, node.id))
    return any(isinstance(value, ast.Constant) and value.value is None for value in values)
