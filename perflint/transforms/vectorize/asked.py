"""A loop whose steps ask a test, as it is where the answer is known."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import derived, forget_comments, located, new, standing_for, without_comments
from perflint.transforms.template import expression

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_OPPOSITES |= {opposite: each for each, opposite in _OPPOSITES.items()}


@dataclass(frozen=True)
class Asked:
    """A loop that asks `test` in each step."""

    program: Program
    loop: PlainLoop
    test: ast.expr

    @property
    def tests(self) -> list[ast.If | ast.IfExp]:
        """Where it is asked."""
        return [node for node in tests_of(self.loop) if is_same(node.test, self.test)]

    def among(self, statements: Sequence[ast.stmt]) -> Program:
        """The program with these statements in the place of the loop."""
        return self.program.with_statements(self.loop, statements)

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
        if isinstance(node, ast.If) and is_same(node.test, self.test):
            taken = node.body if answer else node.orelse
            first = taken[0] if taken else None
            if not answer and isinstance(first, ast.If) and first.col_offset == node.col_offset:
                _begin(first)
            return [each for part in taken for each in ([part] if part is first else self._statements_of(part, answer))]
        return self._statements_of(node, answer)

    def _statements_of(self, node: ast.stmt, answer: bool) -> list[ast.stmt]:
        old = copy.deepcopy(node)
        if self._choose(node, answer=answer):
            standing_for(node, old)
        return [node]

    def _choose(self, node: ast.AST, *, answer: bool) -> bool:
        """Choose one part of each conditional expression in the statement `node`; whether there was one."""
        changed = False
        for name, value in ast.iter_fields(node):
            parts: list[Any] = value if isinstance(value, list) else [value]
            for position, part in enumerate(parts):
                if isinstance(part, ast.expr):
                    made = self._chosen(part, answer=answer)
                    if made is not part:
                        changed = True
                        if isinstance(value, list):
                            value[position] = made
                        else:
                            setattr(node, name, made)
                elif isinstance(part, ast.AST):
                    changed |= self._choose(part, answer=answer)
        if changed and isinstance(node, ast.stmt):
            new(node)
        return changed

    def _chosen(self, node: ast.expr, *, answer: bool) -> ast.expr:
        found = [each for each in ast.walk(node) if isinstance(each, ast.IfExp) and is_same(each.test, self.test)]
        if any(each is not other and each in ast.walk(other) for each in found for other in found):
            raise Blocked("tests stand in one another", node)
        return derived(node, {each: each.body if answer else each.orelse for each in found})


def negated(test: ast.expr) -> ast.expr:
    """The opposite of a test."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        opposite = _OPPOSITES[type(test.ops[0])]()
        return located(new(ast.Compare(test.left, [opposite], test.comparators)), test)
    return located(expression("not {test}", test=test), test)


def bare(statements: Sequence[ast.stmt], lines: set[int]) -> None:
    """Let the statements leave their comments to others, but for those on these lines."""
    for statement in statements:
        forget_comments([statement], lines if statement.lineno in lines else set())
        if statement.lineno not in lines:
            without_comments(statement)


def _begin(node: ast.If) -> None:
    """Let an `elif`, and those behind it, be new code: an `if`."""
    standing_for(new(node), node, head=True)
    rest = node.orelse
    if len(rest) == 1 and isinstance(rest[0], ast.If) and rest[0].col_offset == node.col_offset:
        _begin(rest[0])


def tests_of(loop: PlainLoop) -> Iterator[ast.If | ast.IfExp]:
    """The tests of a step, from its beginning to its end."""
    for statement in loop.body:
        if isinstance(statement, ast.If):
            yield statement
        found = [node for node in own_nodes(statement) if isinstance(node, ast.IfExp)]
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def is_same(one: ast.expr, other: ast.expr) -> bool:
    """Are both written alike?"""
    return ast.dump(one) == ast.dump(other)


def check_layout(asked: Asked) -> None:
    """Raise Blocked where a branch cannot be taken out of its test."""
    for test in asked.tests:
        if isinstance(test, ast.If) and test.body[0].lineno == test.lineno:
            raise Blocked("a branch shares a line with its test", test)
