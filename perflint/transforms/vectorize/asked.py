"""The text of a loop whose steps ask a test: as it is where the answer is known."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.text import atom, comments, indent_of

if TYPE_CHECKING:
    from perflint.analysis.program import Program

BLANK = None  # what a line becomes that goes
Lines = list[str | None]


@dataclass(frozen=True)
class Asked:
    """A loop that asks `test` in each step."""

    program: Program
    loop: PlainLoop
    test: ast.expr

    @property
    def indents(self) -> tuple[str, str]:
        """The blanks in front of the loop, and those by which its body is deeper."""
        indent, inner = indent_of(self.program, self.loop), self._indent(self.loop.body[0].lineno)
        return indent, inner[len(indent) :]

    @property
    def tests(self) -> list[ast.If | ast.IfExp]:
        """Where it is asked."""
        return [node for node in tests_of(self.loop) if is_same(node.test, self.test)]

    def replaced_by(self, lines: Lines, line: int) -> tuple[Program, PlainLoop]:
        """The program with other lines for those of the loop, and the loop that is on this line of it."""
        source = self.program.source
        start, end = source.line_start(self.loop.lineno), source.line_end(self.loop.end_lineno or self.loop.lineno)
        whole = self.program.text
        text = "".join((line or "") + "\n" for line in lines)
        program = self.program.changed(whole[:start] + text + whole[end:])
        return program, next(each for each in program.plain_loops() if each.lineno == line)

    def lines(self, answer: bool | None) -> Lines:
        """The lines of the loop, where the test has this answer; as they are where it has none."""
        source, first = self.program.source, self.loop.lineno
        start, end = source.line_start(first), source.line_end(self.loop.end_lineno or first)
        if answer is None:
            return [*self.program.text[start:end].splitlines()]
        lines: Lines = [*self._chosen(start, end, answer=answer).splitlines()]
        for node in self.tests:
            if isinstance(node, ast.If):
                self._choose(lines, node, answer=answer)
        body = lines[self.loop.body[0].lineno - first :]
        if all(not line or line.lstrip().startswith("#") for line in body):
            raise Blocked("one answer leaves a step nothing to do", self.test)
        return lines

    def bare(self, lines: Lines, *, drops: bool) -> Lines:
        """`lines` without the comments that the other answer's lines have, too, which `drops` those of the branches."""
        branches = [node for node in self.tests if isinstance(node, ast.If)]
        for at, comment in comments(self.program, self.loop):
            is_own = drops and any(node.lineno <= at <= (node.end_lineno or at) for node in branches)
            if not is_own and (line := lines[at - self.loop.lineno]):
                lines[at - self.loop.lineno] = line.removesuffix(comment).rstrip() or BLANK
        return lines

    def _chosen(self, start: int, end: int, *, answer: bool) -> str:
        """The text between two places, with one branch of each conditional expression for it."""
        parts: list[str] = []
        for node in self.tests:
            if isinstance(node, ast.IfExp):
                first, last = self.program.span(node)
                if first < start:
                    raise Blocked("tests stand in one another", node)
                taken = atom(self.program.segment(node.body if answer else node.orelse))
                breaks = self.program.text[first:last].count("\n") - taken.count("\n")
                parts += self.program.text[start:first], taken, "\n" * breaks
                start = last
        return "".join([*parts, self.program.text[start:end]])

    def _choose(self, lines: Lines, node: ast.If, *, answer: bool) -> None:
        """Leave one branch of `node` in the lines of the loop."""
        first, taken = self.loop.lineno, node.body if answer else node.orelse
        last = node.end_lineno or node.lineno
        old = lines[node.lineno - first : last + 1 - first]
        lines[node.lineno - first : last + 1 - first] = [BLANK] * len(old)
        if not taken:
            return
        indent, deeper = self._indent(node.lineno), self._indent(taken[0].lineno)
        above = node.lineno if answer else (node.body[-1].end_lineno or 0) + 1
        said = dict(comments(self.program, self.loop))
        for line in range(above, (taken[-1].end_lineno or last) + 1):
            if line >= taken[0].lineno:
                text = _moved(old[line - node.lineno] or "", deeper, indent)
                lines[line - first] = _begun(text) if line == taken[0].lineno else text
            elif line in said:
                lines[line - first] = indent + said[line]

    def _indent(self, line: int) -> str:
        return self.program.source.indentation(line)


def _moved(line: str, source: str, target: str) -> str:
    return target + line.removeprefix(source) if line.startswith(source) else line


def _begun(line: str) -> str:
    """The first line of a branch: an `elif` has nothing above it any more."""
    return line.replace("elif", "if", 1) if line.lstrip().startswith("elif ") else line


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


def deeper(lines: Lines, unit: str) -> list[str]:
    """The lines that are left, so much deeper."""
    return [unit + line if line else "" for line in lines if line is not BLANK]


def check_text(asked: Asked) -> None:
    """Raise Blocked where the lines of the loop may not be moved by themselves."""
    program, loop = asked.program, asked.loop
    for node in ast.walk(loop):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            raise Blocked("a text goes over several lines", node)
    for test in asked.tests:
        if isinstance(test, ast.If) and test.body[0].lineno == test.lineno:
            raise Blocked("a branch shares a line with its test", test)
    text, lines = program.segment(loop), (loop.end_lineno or loop.lineno) - loop.lineno + 1
    if "\\\n" in text or len(text.splitlines()) != lines:
        raise Blocked("its lines are broken or joined in an unusual way", loop)
