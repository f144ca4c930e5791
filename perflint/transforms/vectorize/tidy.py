"""Takes away what the statements on all steps don't need, copies and what nobody reads, and tells what is intricate."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint import torch_ops
from perflint.transforms.operations import derived, is_new, new, reference
from perflint.transforms.vectorize.scope import Line, Scope


def tidied(scope: Scope, lines: list[Line]) -> list[Line]:
    """`lines` without what nobody reads, and without copies: `frame = x`, or `out = f(x)` that becomes `outs = out`."""
    around = scope.program.function_of(scope.facts.loop)
    kept: list[ast.stmt | None] = [each for line in lines for each in line.new]
    at = 0
    while around is not None and at < len(code := [each for each in kept if each is not None]):
        changed = _without(scope, code, at)
        at = at + 1 if changed is None else 0
        kept = [(changed or {}).get(each, each) if each is not None else None for each in kept]
    rest = iter(kept)
    return [replace(line, new=tuple(each for _ in line.new if (each := next(rest)) is not None)) for line in lines]


def _without(scope: Scope, code: list[ast.stmt], at: int) -> dict[ast.stmt, ast.stmt | None] | None:
    """What the new statements become without the one at this place; None where they need it."""
    made, rest = code[at], code[at + 1 :]
    if not isinstance(made, ast.Assign) or not (name := _only_target(made)):
        return None
    again = next((place for place, each in enumerate(rest) if _only_target(each) == name), None)
    is_read_behind = name in scope.facts.live_out | scope.draft.final or any(
        each.path == name for each in scope.draft.lists
    )
    if again is None and is_read_behind:
        return None
    rest = rest if again is None else rest[: again + 1]
    reads = [each for other in rest for each in _names(other, ast.Load) if each.id == name]
    if not reads:
        return {made: None}
    is_first = not any(each.id == name for other in [*code[:at], made.value] for each in _names(other))
    copy = next((each for each in rest if isinstance(each, ast.Assign) and [each.value] == reads), None)
    if copy is not None and (is_first or name not in scope.program.names) and not _is_changed(made, rest, copy):
        return {made: None, copy: new(ast.Assign(copy.targets, made.value))}
    stored = {each.id for other in rest[:again] for each in _names(other, ast.Store)}
    stored |= {each.arg for other in rest for each in ast.walk(other) if isinstance(each, ast.arg)}
    if not isinstance(made.value, ast.Name) or not is_first or {name, made.value.id} & stored:
        return None
    parts: dict[ast.expr, ast.expr] = dict.fromkeys(reads, reference(made.value.id))
    return {made: None, **{each: derived(each, parts) for each in rest}}


def _only_target(statement: ast.stmt) -> str:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""


def _is_changed(made: ast.Assign, rest: list[ast.stmt], copy: ast.Assign) -> bool:
    """Does a statement between them give another value to what the first one reads, or makes?"""
    between = {each.id for other in rest[: rest.index(copy)] for each in _names(other, ast.Store)}
    return any(each.id in between for each in _names(made))


def _names(node: ast.AST, kind: type[ast.expr_context] = ast.expr_context) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, kind))


_REARRANGED = 2  # calls in a statement


def is_intricate(made: ast.stmt) -> bool:
    """Does it rearrange tensors more often than anybody likes to read?"""
    calls = (each.func for each in ast.walk(made) if isinstance(each, ast.Call) and is_new(each))
    found = (torch_ops.of_method(each.attr) for each in calls if isinstance(each, ast.Attribute))
    return sum(each is not None and each.does("keeping") for each in found) > _REARRANGED
