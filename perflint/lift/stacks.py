"""Keeps results as one tensor where a list of them would only be stacked behind the loop."""

from __future__ import annotations

import ast

from perflint.fixes.text import atom
from perflint.lift.axes import joined_axis
from perflint.lift.body import Line
from perflint.lift.results import Appended
from perflint.lift.scope import Scope
from perflint.lift.steps import Steps
from perflint.program.occurrences import is_empty_list, occurrences, start_region
from perflint.program.walk import PlainLoop
from perflint.rule import Edit

_STACKS = frozenset({"torch.stack", "torch.cat"})


def stacked(scope: Scope, loop: PlainLoop, lines: list[Line], lists: list[Appended]) -> tuple[list[Line], list[Edit]]:
    """`lines` without the lists that are only stacked, and the edits that take the stacking away."""
    edits: list[Edit] = []
    starts: list[ast.stmt] = []
    for appended in lists:
        found = _only_stacked(scope, loop, appended)
        shared = [other for other in lists if other is not appended and other.value.text == appended.value.text]
        if found is None or shared or appended.value.text in scope.facts.read_behind:
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
    return Line(line.statement, (*line.texts[:-1], f"{appended.path} = {text}"))


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
    if scope.program.qualified(call.func) not in _STACKS or call.lineno <= (loop.end_lineno or 0):
        return None
    axis = joined_axis(call)
    if (
        axis is None
        or axis < 0
        or len(call.args) + len(call.keywords) > 2
        or scope.facts.flow.bindings(loop).shared & {appended.path}
    ):
        return None
    if _is_written(scope, call):
        return None
    text = _joined(appended.value, axis, is_cat=scope.program.qualified(call.func) == "torch.cat")
    return (region[0], call, text) if text else None


def _is_written(scope: Scope, call: ast.Call) -> bool:
    """Is what the steps are stacked to changed in place, where autograd may need it as it is?"""
    parent = scope.program.parent(call)
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return isinstance(parent, ast.Attribute) and parent.attr.endswith("_")
    around = scope.program.function_of(call) or scope.program.tree
    for node in occurrences(around, parent.targets[0].id):
        above = scope.program.parent(node)
        if isinstance(above, ast.AugAssign) and above.target is node:
            return True
        if isinstance(above, ast.Subscript) and above.value is node and not isinstance(above.ctx, ast.Load):
            return True
        if isinstance(above, ast.Attribute) and above.attr.endswith("_"):
            return True
    return False


def _joined(value: Steps, axis: int, *, is_cat: bool) -> str:
    """What stacking, or joining, the steps along `axis` gives; empty where that takes more than a view."""
    if is_cat:
        if value.kept:
            return _dense(value) if value.axis == axis else ""
        if value.least <= axis or not value.own:
            return ""
        return f"{atom(value.at(axis).text)}.flatten({axis}, {axis + 1})"
    if value.kept or value.least < axis:
        return ""
    return _dense(value.at(axis))


def _dense(value: Steps) -> str:
    """The steps in memory of their own, as stacking leaves them."""
    if value.dense:
        return value.text
    return f"{atom(value.text)}.contiguous()" if value.own else ""


def _removed(scope: Scope, start: ast.stmt) -> list[Edit]:
    """The edit that takes the line of the empty list away, where it holds nothing else."""
    source = scope.program.source
    first, last = source.line_start(start.lineno), source.line_end(start.end_lineno or start.lineno)
    alone = scope.program.text[first:last].strip() == scope.program.segment(start)
    several = isinstance(start, ast.Assign) and (len(start.targets) > 1 or not isinstance(start.targets[0], ast.Name))
    block = scope.program.block_of(start)
    return [Edit(first, last, "")] if alone and not several and len(block) > 1 else []
