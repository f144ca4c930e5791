"""Divides a loop by a test whose answer is the same in every step, and computes all steps at once for one answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.fixes.accumulator import indent_of
from perflint.lift.facts import bound_names
from perflint.lift.rewrite import comments, lifted
from perflint.lift.steps import Cannot, atom
from perflint.program.walk import own_nodes, path_of
from perflint.rule import Edit, Fix

if TYPE_CHECKING:
    from perflint.program import Program

_BLANK = None  # what a line becomes that goes


def lifted_or_divided(program: Program, loop: ast.For | ast.While) -> Fix:
    """The fix that computes all steps of `loop` at once, or does so for one answer to a test; raises Cannot."""
    try:
        return lifted(program, loop)
    except Cannot:
        if not (tests := list(_tests(loop))):
            raise
    test = _decided(loop, tests)
    if _is_asked(program, loop, test):
        raise Cannot("each step asks again what was asked in front of the loop", test)
    _check_text(program, loop)
    reasons = []
    for answer in (True, False):
        division = Division(program, loop, test, answer)
        try:
            lifted(*division.alone())
            return division.fix()
        except Cannot as cannot:
            reasons.append(cannot)
    whether = f"where not {atom(program.segment(test))}, {reasons[1]}"
    raise Cannot(f"{reasons[0].reason}; {whether}", reasons[0].node)


@dataclass(frozen=True)
class Division:
    """One loop for where `test` is `answer`, and one for all else."""

    program: Program
    loop: ast.For | ast.While
    test: ast.expr
    answer: bool

    def alone(self) -> tuple[Program, ast.For | ast.While]:
        """A program which has the loop for this answer alone, on the lines on which it is."""
        return self._with("\n".join(line or "" for line in self._lines(self.answer)) + "\n", self.loop.lineno)

    def fix(self) -> Fix:
        """The fix that lifts the loop for this answer, and keeps the other one."""
        indent, unit = self._indents()
        test = self.program.segment(self.test)
        condition = test if self.answer else f"not {atom(test)}"
        drops = self._may_drop()
        own, other = self._bare(self._lines(self.answer), drops=drops), self._lines(not self.answer if drops else None)
        lines = [f"{indent}if {condition}:", *_deeper(own, unit), f"{indent}else:", *_deeper(other, unit)]
        divided, loop = self._with("\n".join(lines) + "\n", self.loop.lineno + 1)
        fix = lifted(divided, loop)
        text = divided.text
        for edit in sorted(fix.edits, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return Fix(f"where `{condition}`, {fix.title}", fix.safety, (_difference(self.program.text, text),))

    def _with(self, text: str, line: int) -> tuple[Program, ast.For | ast.While]:
        """The program with `text` for the lines of the loop, and the loop that is on this line of it."""
        source = self.program.source
        start, end = source.line_start(self.loop.lineno), source.line_end(self.loop.end_lineno or self.loop.lineno)
        whole = self.program.text
        program = type(self.program)(whole[:start] + text + whole[end:])
        loops: list[ast.For | ast.While] = [*program.of_type(ast.For), *program.of_type(ast.While)]
        return program, next(each for each in loops if each.lineno == line)

    def _indents(self) -> tuple[str, str]:
        indent, inner = indent_of(self.program, self.loop), self._indent(self.loop.body[0].lineno)
        return indent, inner[len(indent) :]

    def _indent(self, line: int) -> str:
        return self.program.source.indentation(line)

    def _may_drop(self) -> bool:
        """Does nothing that a step does change the answer: is it told by local variables that are read for it alone?"""
        around = self.program.function_of(self.loop)
        names = {path_of(part) for part in ast.walk(self.test) if isinstance(part, ast.Name | ast.Attribute)}
        if around is None or not names <= bound_names(self.program, self.loop) or _is_set_elsewhere(around, names):
            return False
        tests = {part for node in _tests(self.loop) if _is_same(node.test, self.test) for part in ast.walk(node.test)}
        reads = {node for node in own_nodes(self.loop) if isinstance(node, ast.Name) and node.id in names}
        return reads <= tests

    def _lines(self, answer: bool | None) -> list[str | None]:
        """The lines of the loop, where the test has this answer; as they are where it has none."""
        source, first = self.program.source, self.loop.lineno
        start, end = source.line_start(first), source.line_end(self.loop.end_lineno or first)
        if answer is None:
            return [*self.program.text[start:end].splitlines()]
        lines: list[str | None] = [*self._chosen(start, end, answer=answer).splitlines()]
        for node in self.loop.body:
            if isinstance(node, ast.If) and _is_same(node.test, self.test):
                self._choose(lines, node, answer=answer)
        return lines

    def _chosen(self, start: int, end: int, *, answer: bool) -> str:
        """The text between two places, with one branch of each conditional expression for it."""
        parts: list[str] = []
        for node in _tests(self.loop):
            if isinstance(node, ast.IfExp) and _is_same(node.test, self.test):
                first, last = self.program.span(node)
                if first < start:
                    raise Cannot("tests stand in one another", node)
                taken = atom(self.program.segment(node.body if answer else node.orelse))
                breaks = self.program.text[first:last].count("\n") - taken.count("\n")
                parts += self.program.text[start:first], taken, "\n" * breaks
                start = last
        return "".join([*parts, self.program.text[start:end]])

    def _choose(self, lines: list[str | None], node: ast.If, *, answer: bool) -> None:
        """Leave one branch of `node` in the lines of the loop."""
        first, taken = self.loop.lineno, node.body if answer else node.orelse
        last = node.end_lineno or node.lineno
        old = lines[node.lineno - first : last + 1 - first]
        lines[node.lineno - first : last + 1 - first] = [_BLANK] * len(old)
        if not taken:
            return
        indent, deeper = self._indent(node.lineno), self._indent(taken[0].lineno)
        above, comments = node.lineno if answer else (node.body[-1].end_lineno or 0) + 1, dict(self._comments())
        for line in range(above, (taken[-1].end_lineno or last) + 1):
            if line >= taken[0].lineno:
                lines[line - first] = (old[line - node.lineno] or "").replace(deeper, indent, 1)
            elif line in comments:
                lines[line - first] = indent + comments[line]

    def _comments(self) -> list[tuple[int, str]]:
        return comments(self.program, self.loop)

    def _bare(self, lines: list[str | None], *, drops: bool) -> list[str | None]:
        """`lines` without the comments that the other loop has, too."""
        branches = [node for node in self.loop.body if isinstance(node, ast.If) and _is_same(node.test, self.test)]
        for at, comment in self._comments():
            is_own = drops and any(node.lineno <= at <= (node.end_lineno or at) for node in branches)
            if not is_own and (line := lines[at - self.loop.lineno]):
                lines[at - self.loop.lineno] = line.removesuffix(comment).rstrip() or _BLANK
        return lines


def _deeper(lines: list[str | None], unit: str) -> list[str]:
    return [unit + line if line else "" for line in lines if line is not _BLANK]


def _decided(loop: ast.For | ast.While, tests: list[ast.If | ast.IfExp]) -> ast.expr:
    """The first of the tests whose answer is the same in all steps; raises Cannot."""
    stored = {
        path_of(node)
        for node in own_nodes(loop)
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load)
    }
    for node in tests:
        if all(_is_plain(part, stored) for part in ast.walk(node.test)):
            return node.test
    raise Cannot("what a step does is decided anew in each step", tests[0])


_PLAIN = (ast.Constant, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Compare, ast.cmpop, ast.expr_context)


def _is_asked(program: Program, loop: ast.For | ast.While, test: ast.expr) -> bool:
    """Does the loop stand in a branch of the same test?"""
    around = [each.test for each in program.ancestors(loop) if isinstance(each, ast.If)]
    around += [each.operand for each in around if isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not)]
    return any(_is_same(each, test) for each in around)


def _is_plain(part: ast.AST, stored: set[str]) -> bool:
    """Is this part of a test the same in every step, and without effect?"""
    if isinstance(part, ast.Name | ast.Attribute):
        return bool(path_of(part)) and path_of(part) not in stored
    return isinstance(part, _PLAIN)


def _tests(loop: ast.For | ast.While) -> Iterator[ast.If | ast.IfExp]:
    """The tests of a step, from its beginning to its end."""
    for statement in loop.body:
        if isinstance(statement, ast.If):
            yield statement
        found = [node for node in own_nodes(statement) if isinstance(node, ast.IfExp)]
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _is_set_elsewhere(function: ast.AST, names: set[str]) -> bool:
    """May a function inside this one, or outside of it, give one of the variables a value?"""
    shared = (node for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal))
    return any(names & {*node.names} for node in shared)


def _is_same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)


def _check_text(program: Program, loop: ast.For | ast.While) -> None:
    """Raise Cannot where the lines of the loop may not be moved by themselves."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            raise Cannot("a text goes over several lines", node)
        if isinstance(node, ast.If) and any(program.segment(each).startswith("elif") for each in node.orelse[:1]):
            raise Cannot("a step has more than two ways to go", node)
        if isinstance(node, ast.If) and node.body[0].lineno == node.lineno:
            raise Cannot("a branch shares a line with its test", node)
    if "\\\n" in program.segment(loop):
        raise Cannot("a line goes on behind a backslash", loop)


def _difference(old: str, new: str) -> Edit:
    """The edit that makes `new` of `old`: whole lines."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    front = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    most = min(len(before), len(after)) - front
    back = next((i for i in range(most) if before[-1 - i] != after[-1 - i]), most)
    start, end = sum(map(len, before[:front])), sum(map(len, before[: len(before) - back]))
    return Edit(start, end, "".join(after[front : len(after) - back]))
