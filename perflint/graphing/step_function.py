"""Makes a loop that ends by a test a function of one step, so that the test is read once in several steps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.fixes.blocked import Blocked
from perflint.fixes.shown import shown
from perflint.fixes.text import atom, on_one_line, whole_lines
from perflint.graphing.carried import Names, carried
from perflint.graphing.end_test import tensor_test
from perflint.graphing.lists import StackedLists, stacked_lists
from perflint.graphing.obstacles import Obstacles
from perflint.program.walk import PlainLoop, own_nodes
from perflint.rule import Edit

if TYPE_CHECKING:
    from perflint.program import Program

_WIDTH = 88  # of a line, from which on it is broken


def stepped(program: Program, loop: PlainLoop, end: ast.If, name: str) -> tuple[Edit, ...]:
    """The edits that make the loop a call of the function `name`, graphed_loop; raises Blocked."""
    if not isinstance(loop, ast.For) or loop.orelse:
        raise Blocked(f"{shown(program, end.test)} is read on the host in each step", end)
    if not program.without_gradients(loop):
        raise Blocked("the test is read on the host, and gradients may be recorded", end)
    for node in own_nodes(loop):
        is_super = isinstance(node, ast.Name) and node.id == "super"
        if is_super or (isinstance(node, ast.Break | ast.Continue | ast.Return) and node is not end.body[0]):
            raise Blocked("it is left, or goes on, at several places", node)
    lists = stacked_lists(program, loop, end)
    kept = [each for each in loop.body if each is not end and each not in lists.appends]
    Obstacles(program, quiet=True, strict=True).check(kept, loop)
    return _Rewriting(program, loop, end, lists, name).edits()


class _Rewriting:
    """The loop's body becomes a function of one step, at the same place and as deep as it was."""

    def __init__(self, program: Program, loop: ast.For, end: ast.If, lists: StackedLists, name: str) -> None:
        self._program, self._loop, self._end, self._lists, self._name = program, loop, end, lists, name
        self._names = Names(program, loop)
        self._state = carried(program, loop, end, lists, self._names)
        self._carried = self._names.taken.fresh("carried")
        self._inner = program.source.indentation(loop.body[0].lineno)
        self._indent = program.source.indentation(loop.lineno)

    def edits(self) -> tuple[Edit, ...]:
        """All edits, in order."""
        until, outputs, results = self._outputs()
        step = self._names.taken.fresh("step")
        gone = [*self._lists.empty, *self._lists.appends, self._end]
        edits = [*self._lists.stacks, *(whole_lines(self._program, each) for each in gone)]
        edits += [self._head(step), *self._unpacking(), self._call(step, until, outputs, results)]
        return tuple(sorted(edits))

    def _head(self, step: str) -> Edit:
        source, loop = self._program.source, self._loop
        end = self._program.span(loop.iter)[1]
        first = source.line_start(loop.body[0].lineno)
        if first < end or self._program.text[end:first].lstrip()[:1] != ":":
            raise Blocked("its head is written in another way", loop)
        index = self._program.segment(loop.target)
        text = f"{self._blank()}{self._indent}def {step}({index}, {self._given()})"
        return Edit(source.line_start(loop.lineno), end, text)

    def _blank(self) -> str:
        """A line between what precedes the loop and the function, unless there is one or nothing precedes it."""
        block = self._program.block_of(self._loop)
        before = [each for each in block[: block.index(self._loop)] if each not in self._lists.empty]
        is_parted = not self._program.source.line_text(self._loop.lineno - 1).strip()
        return "" if is_parted or not before else "\n"

    def _given(self) -> str:
        return self._state[0] if len(self._state) == 1 else self._carried

    def _unpacking(self) -> list[Edit]:
        if len(self._state) == 1:
            return []
        head = self._program.source.position(self._program.span(self._loop.iter)[1])[0]
        start = self._program.source.line_end(head)
        return [Edit(start, start, f"{self._inner}{', '.join(self._state)} = {self._carried}\n")]

    def _outputs(self) -> tuple[str, list[str], list[str]]:
        """The test as an argument, what a step puts out, and what the results are called."""
        text = tensor_test(self._program, self._end, self._loop)
        values, results = list(self._lists.values), list(self._lists.names)
        read = {node.id for node in ast.walk(self._end.test) if isinstance(node, ast.Name)}
        own = read & self._names.stored
        if len(values) == 1 and own <= {values[0]}:
            return f"lambda {values[0]}: {text}", values, results
        if self._lists.dim not in ("0", "1", "-1"):
            raise Blocked("what the test needs can't be stacked as the results are", self._end)
        if not values:
            return "lambda ended: ended", [on_one_line(text)], ["_"]
        return "lambda outputs: outputs[-1]", [*values, f"{atom(text)}.reshape(1)"], [*results, "_"]

    def _call(self, step: str, until: str, outputs: list[str], results: list[str]) -> Edit:
        state = _tuple(self._state)
        place = self._program.source.line_end(self._last_line())
        broken = "" if self._program.text[:place].endswith(("\n", "\r")) else "\n"
        given = [step, state, self._lists.steps, f"until={until}"]
        given += [f"dim={self._lists.dim}"] if self._lists.dim != "0" else []
        if self._names.behind & set(self._state):
            targets = f"{state}, {_tuple(results)}"
        else:
            targets = ", ".join(results)
            given.append("last_state=False")
        call = self._broken(f"{self._indent}{targets} = {self._name}(", given)
        return Edit(place, place, f"{broken}{self._inner}return {state}, {_tuple(outputs)}\n\n{call})\n")

    def _last_line(self) -> int:
        """The loop's last line, which may hold a comment."""
        source, line = self._program.source, self._loop.body[-1].end_lineno or self._loop.lineno
        while line < source.line_count and source.line_text(line + 1).startswith(f"{self._inner}#"):
            line += 1
        return line

    def _broken(self, head: str, arguments: list[str]) -> str:
        """The start of a call and its arguments: on one line, on one of their own, or each on one, as they fit."""
        text = ", ".join(arguments)
        if len(head) + len(text) < _WIDTH:
            return head + text
        if len(self._inner) + len(text) > _WIDTH:
            text = f",\n{self._inner}".join(arguments) + ","
        return f"{head}\n{self._inner}{text}\n{self._indent}"


def _tuple(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
