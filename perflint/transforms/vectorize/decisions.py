"""Tells by which test of a step a loop may be divided: one whose answer is the same in all steps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.syntax.walk import PlainLoop, own_nodes, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.vectorize.asked import is_same, negated
from perflint.transforms.vectorize.results import collected_paths

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_BY_HAND = (
    "drawn once a sequence, in front of the loop (a change of training that is yours to make),"
    " each answer is tried by itself"
)
_PLAIN = (ast.Constant, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Compare, ast.cmpop, ast.expr_context)


def decided(program: Program, loop: PlainLoop, tests: list[ast.If | ast.IfExp]) -> ast.expr:
    """The first of the tests whose answer is the same in all steps; raises Blocked."""
    written = _written(loop)
    for node in tests:
        if all(_is_plain(part, written) for part in ast.walk(node.test)):
            if _is_asked(program, loop, node.test):
                raise Blocked("each step asks again what was asked in front of the loop", node)
            return node.test
    for node in tests:
        if _is_drawn(program, loop, node.test):
            raise Blocked(f"{shown(program, node.test)} is drawn anew in each step; {_BY_HAND}", node)
    raise Blocked(f"{shown(program, tests[0].test)} may have another answer in each step", tests[0])


def _written(loop: PlainLoop) -> set[str]:
    """The paths to which a step may give a value."""
    nodes = [*own_nodes(loop)]
    stored = (node for node in nodes if isinstance(node, ast.Name | ast.Attribute))
    written = {path_of(node) for node in stored if not isinstance(node.ctx, ast.Load)}
    return written | collected_paths([node for node in nodes if isinstance(node, ast.stmt)])


def _is_asked(program: Program, loop: PlainLoop, test: ast.expr) -> bool:
    """Does the loop stand in a branch of the same test?"""
    around = [each.test for each in program.ancestors(loop) if isinstance(each, ast.If)]
    return any(is_same(each, test) or is_same(each, negated(test)) for each in around)


def _is_plain(part: ast.AST, written: set[str]) -> bool:
    """Is this part of a test the same in every step, and without effect?"""
    if isinstance(part, ast.Name | ast.Attribute):
        return bool(path_of(part)) and path_of(part) not in written
    return isinstance(part, _PLAIN)


def _is_drawn(program: Program, loop: PlainLoop, test: ast.expr) -> bool:
    """Does the test tell by a random number, which it draws or a name stands for?"""
    names = {part.id for part in ast.walk(test) if isinstance(part, ast.Name)}
    given = [node for node in own_nodes(loop) if isinstance(node, ast.Assign)]
    parts = [test, *(node.value for node in given if any(path_of(target) in names for target in node.targets))]
    return any(_draws(program, part) for each in parts for part in ast.walk(each))


def _draws(program: Program, node: ast.AST) -> bool:
    name = program.qualified(node.func) if isinstance(node, ast.Call) else ""
    entry = torch_ops.of_function(name) if name else None
    return name.startswith(("random.", "numpy.random.")) or (entry is not None and "random" in entry.traits)
