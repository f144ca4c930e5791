"""Peels the first step off a loop whose body only asks whether it is the first."""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass

from perflint.analysis.program import Program
from perflint.syntax.walk import FUNCTIONS, PlainLoop, integer, path_of
from perflint.transforms.operations import derived, expression, located, number, standing_for

_COMPARED: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LEAVES = (ast.Break, ast.Continue, ast.Return)
_DEFERRING = (*FUNCTIONS, ast.GeneratorExp, ast.JoinedStr)  # they may read it later, or show its name


@dataclass(frozen=True)
class Peeled:
    """The first step's statements, the loop over the others, and tests of whether there is each.

    There are no tests for steps that surely exist.
    """

    first: list[ast.stmt]
    others: ast.For
    tests: tuple[ast.expr, ast.expr] | None


def peeled(program: Program, loop: PlainLoop) -> Peeled | None:
    branch = loop.body[0]
    if not isinstance(loop, ast.For) or not isinstance(branch, ast.If) or not branch.orelse or loop.body[1:]:
        return None
    walked, name = loop.iter, path_of(loop.target)
    is_range = isinstance(walked, ast.Call) and program.qualified(walked.func) == "builtins.range"
    if not isinstance(walked, ast.Call) or not is_range or len(walked.args) > 2 or walked.keywords:
        return None
    first = 0 if len(walked.args) == 1 else integer(walked.args[0])
    if first is None or any(isinstance(each, _LEAVES) or _is_stored(each, name) for each in ast.walk(branch)):
        return None
    answers = [_answer(branch.test, name, first + later) for later in range(3)]
    if answers not in ([True, False, False], [False, True, True]):  # and so it goes on
        return None
    once, others = (branch.body, branch.orelse) if answers[0] else (branch.orelse, branch.body)
    start = located(number(first + 1), walked)
    rest = ast.copy_location(ast.Call(walked.func, [start, walked.args[-1]], []), walked)
    own = ast.copy_location(ast.For(loop.target, rest, others, loop.orelse), loop)
    if any(isinstance(each, _DEFERRING) and _reads(each, name) for part in once for each in ast.walk(part)):
        return None
    statements = [standing_for(copy.copy(_with_number(each, name, first)), each) for each in once]
    stop, end = walked.args[-1], integer(walked.args[-1])
    tests = (_is_past(stop, first), _is_past(stop, first + 1)) if end is None else None
    return Peeled(statements, copy.deepcopy(own), tests) if end is None or end > first + 1 else None


def _is_past(stop: ast.expr, value: int) -> ast.expr:
    return expression("{stop} > {value}", stop=stop, value=number(value))


def _answer(test: ast.expr, name: str, value: int) -> bool | None:
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or path_of(test.left) != name:
        return None
    compare, other = _COMPARED.get(type(test.ops[0])), integer(test.comparators[0])
    return compare(value, other) if compare is not None and other is not None else None


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _is_stored(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)


def _with_number(statement: ast.stmt, name: str, value: int) -> ast.stmt:
    places: dict[ast.expr, ast.expr] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node.id == name:
            places[node] = number(value)
        elif isinstance(node, ast.BinOp) and path_of(node.left) == name and (more := _added(node)) is not None:
            places[node] = number(value + more)
    return derived(statement, places)


def _added(node: ast.BinOp) -> int | None:
    more = integer(node.right)
    if more is None or not isinstance(node.op, ast.Add | ast.Sub):
        return None
    return more if isinstance(node.op, ast.Add) else -more
