"""Rewrites a loop that ends by a test of what is on the device, so that the test is read once in several steps."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.fixes.blocked import Blocked
from perflint.fixes.shown import shown
from perflint.fixes.text import atom, on_one_line, whole_lines
from perflint.graphing.calls import check_call
from perflint.graphing.lists import Collected, collected
from perflint.graphing.obstacles import Obstacles
from perflint.graphing.reads import check_test
from perflint.graphing.steps import Names, carried
from perflint.program.dtypes import INTEGER, number_kind
from perflint.program.walk import own_nodes
from perflint.rule import Edit

if TYPE_CHECKING:
    from perflint.program import Program

_WIDTH = 88  # of a line, from which on it is broken
_VERDICTS = frozenset({"all", "any"})
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # that are made on the device


def end_test(program: Program, loop: ast.For | ast.While) -> ast.If | None:
    """The statement of the loop that leaves it by a test of a tensor, if there is one and no other."""
    found = [each for each in loop.body if isinstance(each, ast.If) and _leaves(each) and _reads(program, each.test)]
    return found[0] if len(found) == 1 else None


def _leaves(node: ast.If) -> bool:
    return len(node.body) == 1 and isinstance(node.body[0], ast.Break) and not node.orelse


def _reads(program: Program, test: ast.expr) -> bool:
    try:
        check_test(program, test)
    except Blocked:
        return True
    calls = (node.func for node in ast.walk(test) if isinstance(node, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr in {*_VERDICTS, "item"} for func in calls)


def chunked(program: Program, loop: ast.For | ast.While, end: ast.If, name: str) -> tuple[Edit, ...]:
    """The edits that make the loop a call of the function `name`, graphed_loop; raises Blocked."""
    if not isinstance(loop, ast.For) or loop.orelse:
        raise Blocked(f"{shown(program, end.test)} is read on the host in each step", end)
    if not program.without_gradients(loop):
        raise Blocked("the test is read on the host, and gradients may be recorded", end)
    for node in own_nodes(loop):
        is_super = isinstance(node, ast.Name) and node.id == "super"
        if is_super or (isinstance(node, ast.Break | ast.Continue | ast.Return) and node is not end.body[0]):
            raise Blocked("it is left, or goes on, at several places", node)
    lists = collected(program, loop, end)
    kept = [each for each in loop.body if each is not end and each not in lists.appends]
    Obstacles(program, quiet=True, strict=True).check(kept, loop)
    return _Rewriting(program, loop, end, lists, name).edits()


class _Rewriting:
    """The loop's body becomes a function of one step, at the same place and as deep as it was."""

    def __init__(self, program: Program, loop: ast.For, end: ast.If, lists: Collected, name: str) -> None:
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
        text = _tensor_test(self._program, self._end, self._loop)
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
        last = self._loop.body[-1].end_lineno or self._loop.lineno
        place = self._program.source.line_end(last)
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


def _tensor_test(program: Program, end: ast.If, loop: ast.For) -> str:
    """The test as a tensor of one truth value, with nothing read on the host."""
    test = end.test
    if _is_item(test):
        assert isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute)
        test = test.func.value
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _COMPARISONS):
        return _compared(program, test, loop)
    function = test.func if isinstance(test, ast.Call) else None
    is_verdict = isinstance(function, ast.Attribute) and function.attr in _VERDICTS
    if not is_verdict:
        raise Blocked(f"{shown(program, end.test)} is read on the host in each step", end)
    _check_parts(program, [test], loop)
    return program.segment(test)


def _compared(program: Program, test: ast.Compare, loop: ast.For) -> str:
    """The comparison, of the tensor where its number was read."""
    left, right = test.left, test.comparators[0]
    if not _is_item(left):
        _check_parts(program, [left, right], loop)
        return program.segment(test)
    assert isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute)
    tensor = left.func.value
    if number_kind(program, tensor) != INTEGER:
        raise Blocked(f"{shown(program, left)} may be compared otherwise on the device", left)
    _check_parts(program, [tensor, right], loop)
    (start, end), (first, last) = program.span(test), program.span(left)
    return program.text[start:first] + atom(program.segment(tensor)) + program.text[last:end]


def _is_item(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item"


def _check_parts(program: Program, parts: list[ast.expr], loop: ast.For) -> None:
    for part in parts:
        for node in own_nodes(part):
            if isinstance(node, ast.Call):
                check_call(program, node, loop, strict=True)
            if isinstance(node, ast.BoolOp | ast.Lambda | ast.NamedExpr) or isinstance(
                getattr(node, "op", None), ast.Not
            ):
                raise Blocked(f"{shown(program, part)} is read on the host in each step", part)
