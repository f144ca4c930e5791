"""Tells which loop carries what a variable, an attribute or a slot of a container is given, and what else reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.occurrences import occurrences, variable_of
from perflint.syntax.walk import FUNCTIONS, LOOPS, Loop, path_of, root_of, variables_in


def carrying_loop(program: Program, use: ast.expr, definition: ast.expr) -> Loop | None:
    """The innermost loop around both that carries what `definition` is given to `use`, an iteration later, if any.

    Of a slot, `kept[key]`, it is a loop around those that walk the keys, unless it makes the container anew.
    """
    if not (isinstance(use, ast.Name) and isinstance(definition, ast.Name)):
        return _carrying_slots(program, definition)
    if definition not in program.get(Flow).definitions(use):
        return None
    around = [each for each in program.ancestors(definition) if isinstance(each, LOOPS)]
    return next((each for each in program.ancestors(use) if isinstance(each, LOOPS) and each in around), None)


def _carrying_slots(program: Program, target: ast.expr) -> Loop | None:
    keys = _keys(target)
    for parent in program.ancestors(target):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(parent, LOOPS) and keys.isdisjoint(_walked(parent)):
            names = dict.fromkeys((_holder(target), path_of(root_of(target))))
            stores = (each for name in names for each in occurrences(parent, name) if isinstance(each.ctx, ast.Store))
            is_carried = all(each is target or (keys and _is_instead(program, each, target)) for each in stores)
            return parent if is_carried and _holder(target) else None
    return None


def _walked(loop: Loop) -> set[str]:
    """The variables that are others in each iteration: targets and counters."""
    counters = {path_of(each.target) for each in loop.body if isinstance(each, ast.AugAssign)}
    return counters if isinstance(loop, ast.While) else counters | variables_in(loop.target)


def other_reads(program: Program, loop: Loop, own: ast.expr) -> list[ast.expr]:
    """What `loop` reads of what holds `own`, but for that itself.

    Of slots, these are neither those that become more of what they hold, nor what runs in the other branch.
    """
    found = [each for each in occurrences(loop, _holder(own)) if isinstance(each.ctx, ast.Load) and each is not own]
    return [
        each for each in found if not (_keys(own) and (_is_grown(program, each) or _is_instead(program, each, own)))
    ]


def _holder(node: ast.expr) -> str:
    """The path of a variable or an item by a key that is written out, or else of the container."""
    while isinstance(node, ast.Subscript) and not variable_of(node):
        node = node.value
    return variable_of(node)


def _keys(node: ast.expr) -> frozenset[str]:
    """The variables that say which slot it is."""
    found: set[str] = set()
    while isinstance(node, ast.Subscript):
        found |= {each.id for each in ast.walk(node.slice) if isinstance(each, ast.Name)}
        node = node.value
    return frozenset(found)


def _is_grown(program: Program, read: ast.expr) -> bool:
    """Does it ask for the keys, or stand in `kept[key] = f([kept[key], part])`?"""
    node, around = read, program.parent(read)
    while isinstance(around, ast.Subscript) and around.value is node:
        node, around = around, program.parent(around)
    if isinstance(around, ast.Call) and path_of(around.func) == "len":
        return True
    if isinstance(around, ast.Attribute) and around.attr == "keys":
        return True
    targets = getattr(program.statement_of(read), "targets", [])
    is_part = isinstance(around, ast.List | ast.Tuple) and ast.unparse(node) in map(ast.unparse, targets)
    return node in targets or is_part


def _is_instead(program: Program, node: ast.AST, other: ast.AST) -> bool:
    """Does it run where `other` doesn't: in the other branch of one `if`?"""
    branches = dict(_branches(program, other))
    return any(branches.get(guard, is_true) is not is_true for guard, is_true in _branches(program, node))


def _branches(program: Program, node: ast.AST) -> Iterator[tuple[ast.If, bool]]:
    child = node
    for parent in program.ancestors(node):
        if isinstance(parent, ast.If) and child is not parent.test:
            yield parent, child in parent.body
        child = parent
