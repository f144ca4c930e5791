"""Keeps results as one tensor where a list of them would only be stacked behind the loop."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from perflint.analysis.ir.occurrences import is_empty_list, occurrences, start_region
from perflint.syntax.walk import FUNCTIONS, LOOPS, PlainLoop
from perflint.transforms.operations import Operation, Replace, ReplaceStatements
from perflint.transforms.template import assignment, expression, reference
from perflint.transforms.vectorize.axes import joined_axis
from perflint.transforms.vectorize.lines import Line
from perflint.transforms.vectorize.results import Appended
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.seen import STACKS
from perflint.transforms.vectorize.steps import Steps

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_REPEATS = (*LOOPS, *FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def stacked(
    scope: Scope, loop: PlainLoop, lines: list[Line], lists: list[Appended]
) -> tuple[list[Line], list[Operation]]:
    """`lines` without the lists that are only stacked, and what takes the stacking away."""
    operations: list[Operation] = []
    for appended in lists:
        found = _only_stacked(scope, loop, appended)
        if found is None:
            continue
        start, call, code = found
        lines = [_kept_as(line, appended, code) for line in lines]
        operations.append(Replace(call, reference(appended.path)))
        if _is_alone(scope, start):
            operations.append(ReplaceStatements((start,), ()))
    return lines, operations


def _kept_as(line: Line, appended: Appended, code: ast.expr) -> Line:
    """`line` with the last of its statements keeping `code`, where it is the one that fills the list."""
    if line.statement is not appended.statement:
        return line
    return replace(line, new=(*line.new[:-1], assignment(appended.path, code)))


def _only_stacked(scope: Scope, loop: PlainLoop, appended: Appended) -> tuple[ast.stmt, ast.Call, ast.expr] | None:
    """Where the list starts empty, the one call that reads it, and what that gives."""
    region = start_region(scope.program, loop, appended.path, is_empty_list)
    if region is None or region[-1] is not loop or any(occurrences(each, appended.path) for each in region[1:-1]):
        return None
    around = scope.program.function_of(loop) or scope.program.tree
    uses = [
        node
        for node in occurrences(around, appended.path)
        if node not in scope.facts.inside and not any(part is node for part in ast.walk(region[0]))
    ]
    call = scope.program.parent(uses[0]) if len(uses) == 1 else None
    if not isinstance(call, ast.Call) or not call.args or call.args[0] is not uses[0] or "." in appended.path:
        return None
    if scope.program.qualified(call.func) not in STACKS or call.lineno <= (loop.end_lineno or 0):
        return None
    axis = joined_axis(call)
    if (
        axis is None
        or axis < 0
        or len(call.args) + len(call.keywords) > 2
        or scope.facts.flow.bindings(loop).shared & {appended.path}
    ):
        return None
    if _repeats(scope.program, call) is not _repeats(scope.program, loop):
        return None
    code = _joined(scope, appended.value, axis, is_cat=scope.program.qualified(call.func) == "torch.cat")
    return (region[0], call, code) if code is not None else None


def _repeats(program: Program, node: ast.AST) -> ast.AST | None:
    """What runs `node` again and again, or later."""
    return next((each for each in program.ancestors(node) if isinstance(each, _REPEATS)), None)


def _joined(scope: Scope, value: Steps, axis: int, *, is_cat: bool) -> ast.expr | None:
    """What stacking, or joining, the steps along `axis` gives; None where no rule makes that of them."""
    if value.kept:
        return _apart(scope, value) if is_cat and value.axis == axis else None
    if value.least < axis + is_cat:
        return None
    whole = _apart(scope, value.at(axis))
    if not is_cat or whole is None:
        return whole
    return expression("{x}.flatten({first}, {last})", x=whole, first=axis, last=axis + 1)


def _apart(scope: Scope, value: Steps) -> ast.expr | None:
    """The steps in memory of their own, as stacking leaves them; None where the program has no name for torch."""
    if value.fresh:
        return value.code if value.dense else expression("{x}.contiguous()", x=value.code)
    if value.dense:
        return expression("{x}.clone()", x=value.code)
    torch = scope.facts.torch
    template = "{x}.clone(memory_format={torch}.contiguous_format)"
    return expression(template, x=value.code, torch=torch) if torch else None


def _is_alone(scope: Scope, start: ast.stmt) -> bool:
    """Does the statement only make the empty list, on a line that holds nothing else, in a block that has more?"""
    line = scope.program.source.line_text(start.lineno).strip()
    several = isinstance(start, ast.Assign) and (len(start.targets) > 1 or not isinstance(start.targets[0], ast.Name))
    return line == scope.program.segment(start) and not several and len(scope.program.block_of(start)) > 1
