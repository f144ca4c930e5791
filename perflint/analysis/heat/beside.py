"""Tells whether code runs beside steps of training: as often as an optimizer steps, in whatever loop that does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.autograd.effects import trains
from perflint.analysis.facts import Program
from perflint.analysis.heat.rarity import makes_rare
from perflint.syntax.walk import FUNCTIONS, LOOPS, children

_DEPTH = 4  # of calls


def steps_beside(program: Program, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Does a statement train once in each run of `node`: in one of its blocks, or in one around a call of its function?

    Unlike the heat of a place, this does not ask what the loops around it walk.
    """
    child = node
    for parent in program.ancestors(node):
        others = [each for each in program.block_of(child) if each is not child] if isinstance(child, ast.stmt) else []
        if any(_trains(program, each) for each in others):
            return True
        if isinstance(parent, FUNCTIONS):
            return depth > 0 and any(steps_beside(program, site, depth - 1) for site in program.call_sites(parent))
        if makes_rare(program, parent, child) or isinstance(parent, ast.ClassDef):
            return False
        child = parent
    return False


def _trains(program: Program, statement: ast.stmt) -> bool:
    """Does it train, once?"""
    for each in _once(statement):
        if isinstance(each, ast.Call):
            callee = program.callee(each)
            if trains(program, each) or (callee is not None and program.trains_once(callee)):
                return True
    return False


def _once(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that don't run in a loop of its own, nor under a condition."""
    yield node
    if not isinstance(node, (*LOOPS, *FUNCTIONS, ast.If, ast.ClassDef)):
        for each in children(node):
            yield from _once(each)
