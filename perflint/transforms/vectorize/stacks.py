"""Keeps results as one tensor where a list of them would only be stacked behind the loop."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from perflint.analysis.ir.occurrences import is_empty_list, occurrences, start_region
from perflint.syntax.edits import Edit
from perflint.syntax.walk import FUNCTIONS, LOOPS, PlainLoop
from perflint.transforms.text import atom
from perflint.transforms.vectorize.axes import joined_axis
from perflint.transforms.vectorize.lines import Line
from perflint.transforms.vectorize.results import Appended
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.seen import STACKS
from perflint.transforms.vectorize.steps import Steps

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_REPEATS = (*LOOPS, *FUNCTIONS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def stacked(scope: Scope, loop: PlainLoop, lines: list[Line], lists: list[Appended]) -> tuple[list[Line], list[Edit]]:
    """`lines` without the lists that are only stacked, and the edits that take the stacking away."""
    edits: list[Edit] = []
    starts: list[ast.stmt] = []
    for appended in lists:
        found = _only_stacked(scope, loop, appended)
        if found is None:
            continue
        start, call, text = found
        lines = [_kept_as(line, appended, text) for line in lines]
        edits.append(Edit(*scope.program.span(call), appended.path))
        starts.append(start)
    return lines, [*edits, *(edit for start in starts for edit in _removed(scope, start))]


def _kept_as(line: Line, appended: Appended, text: str) -> Line:
    """`line` with the last of its statements keeping `text`, where it is the one that fills the list."""
    if line.statement is not appended.statement:
        return line
    return replace(line, texts=(*line.texts[:-1], f"{appended.path} = {text}"))


def _only_stacked(scope: Scope, loop: PlainLoop, appended: Appended) -> tuple[ast.stmt, ast.Call, str] | None:
    """Where the list starts empty, the one call that reads it, and the text of what that gives."""
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
    text = _joined(scope, appended.value, axis, is_cat=scope.program.qualified(call.func) == "torch.cat")
    return (region[0], call, text) if text else None


def _repeats(program: Program, node: ast.AST) -> ast.AST | None:
    """What runs `node` again and again, or later."""
    return next((each for each in program.ancestors(node) if isinstance(each, _REPEATS)), None)


def _joined(scope: Scope, value: Steps, axis: int, *, is_cat: bool) -> str:
    """What stacking, or joining, the steps along `axis` gives; empty where no rule makes that of them."""
    if value.kept:
        return _apart(scope, value) if is_cat and value.axis == axis else ""
    if value.least < axis + is_cat:
        return ""
    whole = _apart(scope, value.at(axis))
    return f"{atom(whole)}.flatten({axis}, {axis + 1})" if is_cat and whole else whole


def _apart(scope: Scope, value: Steps) -> str:
    """The steps in memory of their own, as stacking leaves them; empty where the program has no name for torch."""
    if value.fresh:
        return value.text if value.dense else f"{atom(value.text)}.contiguous()"
    if value.dense:
        return f"{atom(value.text)}.clone()"
    torch = scope.facts.torch
    return f"{atom(value.text)}.clone(memory_format={torch}.contiguous_format)" if torch else ""


def _removed(scope: Scope, start: ast.stmt) -> list[Edit]:
    """The edit that takes the line of the empty list away, where it holds nothing else."""
    source = scope.program.source
    first, last = source.line_start(start.lineno), source.line_end(start.end_lineno or start.lineno)
    alone = scope.program.text[first:last].strip() == scope.program.segment(start)
    several = isinstance(start, ast.Assign) and (len(start.targets) > 1 or not isinstance(start.targets[0], ast.Name))
    block = scope.program.block_of(start)
    return [Edit(first, last, "")] if alone and not several and len(block) > 1 else []
