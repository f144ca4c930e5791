"""Tells what the function of a loop does with its variables around the loop."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.analysis.ir.occurrences import occurrences
from perflint.syntax.walk import FUNCTIONS, LOOPS, PlainLoop
from perflint.transforms.vectorize.scope import Scope, given_by, root_of
from perflint.transforms.vectorize.steps import Layers

if TYPE_CHECKING:
    from perflint.analysis.program import Program

STACKS = frozenset({"torch.stack", "torch.cat"})


def starts_of(scope: Scope, name: str) -> list[ast.expr | None]:
    """What the variable is given in front of the loop; None for what is not in sight."""
    values: list[ast.expr | None] = []
    for definition in scope.starts(name):
        statement = scope.program.statement_of(definition) if isinstance(definition, ast.Name) else None
        values.append(given_by(statement, definition) if isinstance(statement, ast.Assign) else None)
    return values or [None]


def is_only_joined(scope: Scope, path: str) -> bool:
    """Is it a new list, of which nothing takes a tensor out, but all of them are joined to others?"""
    if path in scope.facts.flow.bindings(scope.facts.loop).shared:
        return False
    starts = scope.starts(path)
    uses = [use for use in _names(scope, path) if scope.facts.flow.definitions(use) & starts]
    is_new = all(isinstance(value, ast.List | ast.ListComp) for value in starts_of(scope, path))
    return is_new and all(_is_joined(scope, use) for use in uses)


def _is_joined(scope: Scope, use: ast.Name) -> bool:
    """Is a list joined, measured, or filled here?"""
    parent = scope.program.parent(use)
    if isinstance(parent, ast.Attribute | ast.AugAssign):
        return isinstance(use.ctx, ast.Store) or getattr(parent, "attr", "") in ("append", "extend")
    return isinstance(parent, ast.Call) and scope.program.qualified(parent.func) in (*STACKS, "builtins.len")


def is_written(scope: Scope, name: str) -> bool:
    """Does the function write to the tensor in place outside of the loop, where that is in sight?"""
    uses = (node for node in _names(scope, name) if node not in scope.facts.inside)
    return any(_writes(scope.program, part) for use in uses for part in _parts(scope.program, use))


def _parts(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """The tensor and what is taken of it: `h`, `h.data` and `h.data[0]` of `h.data[0].zero_()`."""
    yield node
    above = program.parent(node)
    taken = above.value if isinstance(above, ast.Attribute | ast.Subscript) else getattr(above, "func", None)
    if taken is node and isinstance(above, ast.expr):
        yield from _parts(program, above)


def _writes(program: Program, node: ast.expr) -> bool:
    """Is the tensor changed here by what stands right around it?"""
    above = program.parent(node)
    if isinstance(above, ast.AugAssign):
        return above.target is node
    if isinstance(above, ast.Subscript):
        return above.value is node and not isinstance(above.ctx, ast.Load)
    return isinstance(above, ast.Attribute) and above.attr.endswith("_")


def is_rebound(scope: Scope, path: str) -> bool:
    """Does the loop give the variable that `path` begins with another value as a whole?"""
    inside = (node for node in _names(scope, root_of(path)) if node in scope.facts.inside)
    return any(not isinstance(node.ctx, ast.Load) for node in inside)


def is_own_list(scope: Scope, name: str) -> bool:
    """Is it a list made in front of the loop, of which nothing but this variable knows?"""
    starts = starts_of(scope, name)
    if len(starts) != 1 or not _is_display(starts[0]) or name in scope.facts.flow.bindings(scope.facts.loop).shared:
        return False
    others = [use for use in _names(scope, name) if use not in scope.facts.inside and isinstance(use.ctx, ast.Load)]
    return all(_shows_items(scope, use) or not scope.program.stands_before(use, scope.facts.loop) for use in others)


def _is_display(value: ast.expr | None) -> bool:
    is_repeated = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)
    return isinstance(value.left if is_repeated and isinstance(value, ast.BinOp) else value, ast.List | ast.ListComp)


def _shows_items(scope: Scope, use: ast.Name) -> bool:
    """Are only items of the list read or added here, or counted?"""
    parent = scope.program.parent(use)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load) and not isinstance(parent.slice, ast.Slice)
    if isinstance(parent, ast.comprehension | ast.For):
        return parent.iter is use
    return _is_joined(scope, use)


def is_kept(scope: Scope, path: str) -> bool:
    """Does code behind the loop read the variable, or the list that `path` is an item of?"""
    root = root_of(path)
    if path == root or is_rebound(scope, path):
        lists = [value for value in scope.values.values() if isinstance(value, Layers)]
        return root in scope.facts.read_behind or any(each.is_kept for each in lists)
    if is_repeated(scope.program, scope.facts.loop):
        return True
    return any(scope.program.stands_before(scope.facts.loop, use) for use in _names(scope, root))


def is_handed_behind(scope: Scope, name: str) -> bool:
    """Does code behind the loop read the variable, or one that the loop gives its value?"""
    behind = scope.facts.read_behind
    uses = (use for use in _names(scope, name) if use in scope.facts.inside and isinstance(use.ctx, ast.Load))
    statements = [scope.program.statement_of(use) for use in uses]
    given = {part.id for each in statements if isinstance(each, ast.Assign) for target in each.targets
             for part in ast.walk(target) if isinstance(part, ast.Name)}  # fmt: skip
    return bool(behind & {name, *given})


def is_repeated(program: Program, loop: PlainLoop) -> bool:
    """Does the loop stand in another one of the same function?"""
    outer = itertools.takewhile(lambda each: not isinstance(each, FUNCTIONS), program.ancestors(loop))
    return any(isinstance(each, LOOPS) for each in outer)


def is_read_once(scope: Scope, name: str) -> bool:
    """Is the variable given a value in one place, and read in one other?"""
    return [isinstance(node.ctx, ast.Load) for node in _names(scope, name)] in ([False, True], [True, False])


def _names(scope: Scope, name: str) -> list[ast.Name]:
    """Where the function of the loop has the variable."""
    around = scope.program.function_of(scope.facts.loop) or scope.program.tree
    return [node for node in occurrences(around, name) if isinstance(node, ast.Name)]
