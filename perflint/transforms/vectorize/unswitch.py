"""Loop unswitching by a test whose answer is loop-invariant."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perflint import torch_ops
from perflint.analysis.ir.flow import Flow
from perflint.analysis.program import Kind, Program
from perflint.syntax.edits import Fix
from perflint.syntax.scopes import local_names
from perflint.syntax.walk import PlainLoop, own_nodes, path_of, variables_in
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import (
    ReplaceStatements,
    derived,
    forget_comments,
    located,
    new,
    same_code,
    standing_for,
)
from perflint.transforms.rewrite import rewrite
from perflint.transforms.shown import shown
from perflint.transforms.template import expression
from perflint.transforms.vectorize.paths import written_paths
from perflint.transforms.vectorize.rewrite import vectorize, vectorized

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
    return _unswitched(Conditional(program, loop, _invariant_test(program, loop, tests)))


@dataclass(frozen=True)
class Conditional:
    """A loop that asks `test` in each step."""

    program: Program
    loop: PlainLoop
    test: ast.expr

    @property
    def tests(self) -> list[ast.If | ast.IfExp]:
        """Where it is asked."""
        return [node for node in _tests_of(self.loop) if same_code(node.test, self.test)]

    def among(self, statements: Sequence[ast.stmt]) -> Program:
        """The program with these statements in the place of the loop."""
        return self.program.with_statements(self.loop, statements)

    def check_layout(self) -> None:
        """Raise Blocked where a branch cannot be taken out of its test."""
        for test in self.tests:
            if isinstance(test, ast.If) and test.body[0].lineno == test.lineno:
                raise Blocked("a branch shares a line with its test", test)

    def answered(self, answer: bool | None) -> PlainLoop:
        """A copy of the loop, for this answer to the test; as it is where there is none. Raises Blocked."""
        loop = copy.deepcopy(self.loop)
        if answer is None:
            return loop
        body = [each for node in loop.body for each in self._statements(node, answer=answer)]
        if all(isinstance(each, ast.Pass) for each in body):
            raise Blocked("one answer leaves a step nothing to do", self.test)
        loop.body = body
        return standing_for(new(loop), self.loop, head=True)

    def branch(self, *, answer: bool) -> set[int]:
        """The lines of the program that are about this answer alone."""
        found: set[int] = set()
        for node in self.tests:
            if isinstance(node, ast.If):
                middle = (node.body[-1].end_lineno or 0) + 1
                found.update(range(node.lineno, middle) if answer else range(middle, (node.end_lineno or 0) + 1))
        return found

    def _statements(self, node: ast.stmt, *, answer: bool) -> list[ast.stmt]:
        """What is left of a statement of the body."""
        if not isinstance(node, ast.If) or not same_code(node.test, self.test):
            return [self._decided(node, answer=answer)]
        taken = node.body if answer else node.orelse
        is_elif = not answer and bool(taken) and isinstance(taken[0], ast.If) and taken[0].col_offset == node.col_offset
        if is_elif and isinstance(taken[0], ast.If):
            _begin(taken[0])
        return [part if part is taken[0] else self._decided(part, answer=answer) for part in taken]

    def _decided(self, node: ast.stmt, *, answer: bool) -> ast.stmt:
        """The statement with one part of each conditional expression by the test."""
        found = [each for each in ast.walk(node) if isinstance(each, ast.IfExp) and same_code(each.test, self.test)]
        if any(each is not other and each in ast.walk(other) for each in found for other in found):
            raise Blocked("tests stand in one another", node)
        chosen: dict[ast.expr, ast.expr] = {each: each.body if answer else each.orelse for each in found}
        old = copy.deepcopy(node)
        changed = [each for each in ast.walk(node) if not isinstance(each, ast.expr) and {*ast.walk(each)} & {*found}]
        for around in changed:
            for name, value in ast.iter_fields(around):
                parts: list[Any] = value if isinstance(value, list) else [value]
                parts = [derived(part, chosen) if isinstance(part, ast.expr) else part for part in parts]
                setattr(around, name, parts if isinstance(value, list) else parts[0])
            new(around)
        return standing_for(node, old) if found else node


def _begin(node: ast.If) -> None:
    """Let an `elif`, and those after it, be new code: an `if`."""
    standing_for(new(node), node, head=True)
    rest = node.orelse
    if len(rest) == 1 and isinstance(rest[0], ast.If) and rest[0].col_offset == node.col_offset:
        _begin(rest[0])


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


def _unswitched(conditional: Conditional) -> Fix:
    """The fix that asks before the loop, and computes all steps at once for one answer."""
    conditional.check_layout()
    one = _blocked_because(conditional, answer=True)
    other = _blocked_because(conditional, answer=False) if one is not None else None
    if one is None or other is None:
        return _with_answer(conditional, answer=one is None)
    raise Blocked(f"{one.reason}; where `{ast.unparse(_negated(conditional.test))}`, {other}", one.node)


def _blocked_because(conditional: Conditional, *, answer: bool) -> Blocked | None:
    """What stands in the way of the loop as it is for this answer; None where it can be vectorized."""
    try:
        loop = conditional.answered(answer)
        vectorize(conditional.among([loop]), loop)
    except Blocked as blocked:
        return blocked
    return None


def _with_answer(conditional: Conditional, *, answer: bool) -> Fix:
    """One loop for this answer, which is vectorized, and one for all else."""
    drops = _may_drop(conditional)
    own, other = conditional.answered(answer), conditional.answered(not answer if drops else None)
    condition = conditional.test if answer else _negated(conditional.test)
    both = ast.copy_location(ast.If(condition, [own], [other]), conditional.loop)
    made = vectorize(conditional.among([both]), own)
    forget_comments(made.statements, conditional.branch(answer=answer) if drops else set())
    chosen = new(ast.If(condition, list(made.statements), [other]))
    replaced = ReplaceStatements((conditional.loop,), (chosen,))
    title = f"where `{ast.unparse(condition)}`, {made.title}"
    return Fix(title, made.safety, rewrite(conditional.program, replaced, *made.others))


def _may_drop(conditional: Conditional) -> bool:
    """Does nothing that a step does change the answer: is it told by local variables that are read for it alone?"""
    names = {path_of(part) for part in ast.walk(conditional.test) if isinstance(part, ast.Name | ast.Attribute)}
    around = conditional.program.function_of(conditional.loop)
    graph = conditional.program.get(Flow).graph(conditional.loop)
    if around is None or not names <= local_names(around) or any(map(graph.is_shared, names)):
        return False
    tests = {part for node in conditional.tests for part in ast.walk(node.test)}
    return all(node in tests for node in own_nodes(conditional.loop) if isinstance(node, ast.Name) and node.id in names)


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
