"""Loop unswitching by a test whose answer is loop-invariant."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

from perflint import torch_ops
from perflint.analysis.program import Kind, Program
from perflint.syntax.edits import Fix
from perflint.syntax.walk import PlainLoop, own_nodes, path_of, variables_in
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import (
    ReplaceStatements,
    derived,
    located,
    new,
    same_code,
)
from perflint.transforms.rewrite import rewrite
from perflint.transforms.shown import shown
from perflint.transforms.template import expression
from perflint.transforms.vectorize.paths import written_paths
from perflint.transforms.vectorize.rewrite import vectorize_where, vectorized

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_OPPOSITES |= {opposite: each for each, opposite in _OPPOSITES.items()}
_PLAIN = (ast.Constant, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Compare, ast.cmpop, ast.expr_context)
_BY_HAND = (
    "drawn once a sequence, before the loop (a change of training that is yours to make),"
    " each answer is tried by itself"
)


def vectorized_or_unswitched(program: Program, loop: PlainLoop) -> Fix:
    """The fix that computes all steps of `loop` at once, or does so for one answer to a test; raises Blocked."""
    try:
        return vectorized(program, loop)
    except Blocked:
        if not (tests := list(_tests_of(loop))):
            raise
    test = _invariant_test(program, loop, tests)
    try:
        return _where(program, loop, test, answer=True)
    except Blocked as one:
        try:
            return _where(program, loop, test, answer=False)
        except Blocked as other:
            raise Blocked(f"{one.reason}; where `{ast.unparse(_negated(test))}`, {other}", one.node) from None


def _where(program: Program, loop: PlainLoop, test: ast.expr, *, answer: bool) -> Fix:
    """The fix that asks before the loop, and computes all steps at once for this answer; raises Blocked."""
    own = _Answered(test, answer=answer).visit(copy.deepcopy(loop))
    if all(isinstance(each, ast.Pass) for each in own.body):
        raise Blocked("one answer leaves a step nothing to do", test)
    condition = test if answer else _negated(test)
    made = vectorize_where(program, loop, condition, own)
    change = rewrite(program, ReplaceStatements((loop,), made.statements), *made.others)
    return Fix(f"where `{ast.unparse(condition)}`, {made.title}", made.safety, change)


class _Answered(ast.NodeTransformer):
    """Makes of a loop what it is for one answer to a test."""

    def __init__(self, test: ast.expr, *, answer: bool) -> None:
        self._test, self._answer = test, answer

    def visit(self, node: ast.AST) -> Any:
        """The statement, or what is left of it; the expression with one part of each conditional one by the test."""
        if isinstance(node, ast.expr):
            asked = (
                each for each in ast.walk(node) if isinstance(each, ast.IfExp) and same_code(each.test, self._test)
            )
            return derived(node, {each: each.body if self._answer else each.orelse for each in asked})
        return super().visit(node)

    def visit_If(self, node: ast.If) -> Any:
        """The branch that is taken, where it is the test that is asked."""
        if not same_code(node.test, self._test):
            return self.generic_visit(node)
        taken = ast.Module(node.body if self._answer else node.orelse, [])
        self.generic_visit(taken)
        return taken.body or ast.copy_location(ast.Pass(), node)


def _tests_of(loop: PlainLoop) -> Iterator[ast.If | ast.IfExp]:
    """The tests of a step, from its beginning to its end."""
    for each in loop.body:
        if isinstance(each, ast.If):
            yield each
        found = [node for node in own_nodes(each) if isinstance(node, ast.IfExp)]
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _negated(test: ast.expr) -> ast.expr:
    """The opposite of a test."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        opposite = _OPPOSITES[type(test.ops[0])]()
        return located(new(ast.Compare(test.left, [opposite], test.comparators)), test)
    return located(expression("not {test}", test=test), test)


def _invariant_test(program: Program, loop: PlainLoop, tests: list[ast.If | ast.IfExp]) -> ast.expr:
    """The first of the tests whose answer is the same in all steps; raises Blocked."""
    written = {*written_paths(loop)}
    around = [each.test for each in program.ancestors(loop) if isinstance(each, ast.If)]
    for node in tests:
        if _is_invariant_test(program, node.test, written):
            if any(same_code(each, node.test) or same_code(each, _negated(node.test)) for each in around):
                raise Blocked("each step asks again what was asked before the loop", node)
            return node.test
    for node in tests:
        if _is_drawn(program, loop, node.test):
            raise Blocked(f"{shown(program, node.test)} is drawn anew in each step; {_BY_HAND}", node)
    raise Blocked(f"{shown(program, tests[0].test)} may have another answer in each step", tests[0])


def _is_invariant_test(program: Program, test: ast.expr, written: set[str]) -> bool:
    """Is a test the same in every step, and without effect, as that of an object need not be?"""
    for part in ast.walk(test):
        if isinstance(part, ast.Name | ast.Attribute):
            is_object = program.value(part).kind is Kind.INSTANCE and not isinstance(
                program.parent(part), ast.Attribute
            )
            if is_object or not path_of(part) or path_of(part) in written:
                return False
        elif not isinstance(part, _PLAIN):
            return False
    return True


def _is_drawn(program: Program, loop: PlainLoop, test: ast.expr) -> bool:
    """Does the test tell by a random number, which it draws or a name stands for?"""
    names = variables_in(test)
    given = [node for node in own_nodes(loop) if isinstance(node, ast.Assign)]
    parts = [test, *(node.value for node in given if any(path_of(target) in names for target in node.targets))]
    return any(_draws(program, part) for each in parts for part in ast.walk(each))


def _draws(program: Program, node: ast.AST) -> bool:
    name = program.qualified(node.func) if isinstance(node, ast.Call) else ""
    entry = torch_ops.of_function(name) if name else None
    return name.startswith(("random.", "numpy.random.")) or (entry is not None and entry.does("random"))
