"""Makes a loop that ends by a test a function of one step, so that the test is read once in several steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perflint.syntax.walk import PlainLoop, integer, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.carried import Names, carried
from perflint.transforms.capture.course import Course, Exit, course_of
from perflint.transforms.capture.guarded import check_guarded
from perflint.transforms.capture.obstacles import Obstacles
from perflint.transforms.capture.outputs import outputs_of
from perflint.transforms.capture.results import Collected, collected
from perflint.transforms.capture.skipped import check_skipped
from perflint.transforms.capture.written import carried_and_written, check_written_behind
from perflint.transforms.names import check_alone
from perflint.transforms.operations import (
    FIT,
    Operation,
    ReplaceStatements,
    apart,
    in_rows,
    new,
    standing_for,
)
from perflint.transforms.template import assignment, expression, reference, statement

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def stepped(program: Program, loop: PlainLoop, end: Exit, name: str) -> tuple[Operation, ...]:
    """What makes the loop a call of the function `name`, graphed_loop; raises Blocked."""
    if loop.orelse:
        raise Blocked("the loop's `else` runs only if no `break` does: test behind the loop instead", loop.orelse[0])
    if not _is_quiet(program, loop, set()):
        raise Blocked(
            "the test is read on the host, and gradients may be recorded: put the loop under `torch.no_grad()`",
            end.test,
        )
    course = course_of(program, loop, end)
    check_guarded(program, loop, course)
    for node in own_nodes(loop):
        if isinstance(node, ast.Break) and program.parent(node) in course.exits:
            continue
        is_super = isinstance(node, ast.Name) and node.id == "super"
        if is_super or isinstance(node, ast.Break | ast.Continue | ast.Return):
            raise Blocked("it is left, or goes on, at several places: end it by one test", node)
    found = collected(program, loop, course.exits)
    check_skipped(program, loop, course, found)
    gone = {each.statement: each.value for each in found}
    copied = carried_and_written(program, loop, gone)
    kept = [each for each in loop.body if each not in (*course.exits, *course.counting)]
    obstacles = Obstacles(program, quiet=True, strict=True, owned=frozenset(copied))
    obstacles.check([gone.get(each, each) for each in kept], loop)
    return tuple(_Rewriting(program, loop, course, found, copied, name).operations())


def _is_quiet(program: Program, node: ast.AST, seen: set[ast.AST]) -> bool:
    """Are no gradients recorded there, or wherever this file calls the function around it?"""
    function = program.function_of(node)
    if program.without_gradients(node):
        return True
    sites = program.call_sites(function) if function is not None and function not in seen else []
    seen.add(function or node)
    return bool(sites) and all(_is_quiet(program, site, seen) for site in sites)


class _Rewriting:
    """The loop's body becomes a function of one step, at the same place and as deep as it was."""

    def __init__(
        self, program: Program, loop: PlainLoop, course: Course, found: list[Collected], copied: list[str], name: str
    ) -> None:
        self._program, self._loop, self._course, self._name = program, loop, course, name
        self._names = Names(program, loop)
        self._state = carried(program, loop, course, found, self._names)
        self._copied = copied
        collected_names = {each.name for each in found}
        check_written_behind(program, loop, self._names.stored | collected_names, self._names.behind)
        self._carried = self._names.taken.fresh("carried")
        self._outputs = outputs_of(program, loop, course, found, self._names)

    def operations(self) -> Iterator[Operation]:
        """All that changes."""
        _check_layout(self._program, self._loop)
        step = self._names.taken.fresh("step")
        number, first = self._number()
        body = [*self._first_statements(first), *self._body(), self._return()]
        given = self._state[0] if len(self._state) == 1 else self._carried
        function = statement(
            "def {step}({number}, {given}):\n    {*body}", step=step, number=number, given=given, body=body
        )
        standing_for(function, self._loop, head=True)
        new = (apart(function) if self._is_close() else function, *self._call(step))
        yield ReplaceStatements((self._loop,), new)
        for each in self._empty():
            check_alone(self._program, each)
            yield ReplaceStatements((each,), ())
        yield from self._outputs.stacks.undone if self._outputs.stacks else ()

    def _body(self) -> Iterator[ast.stmt]:
        """What a step does: the statements of the loop, others in the place of those that look at its end."""
        gone = {*self._counting()}
        for each in self._loop.body:
            if each in self._outputs.inside or each in gone:
                check_alone(self._program, each)
                yield from (standing_for(new, each) for new in self._outputs.inside.get(each, ()))
            else:
                yield each

    def _return(self) -> ast.stmt:
        parts = [_tuple(self._state), _tuple(self._outputs.values)]
        made = statement("return {*parts},", parts=parts)
        return standing_for(made, self._loop.body[-1], last=_ALL, alone=False)

    def _empty(self) -> tuple[ast.stmt, ...]:
        return self._outputs.stacks.empty if self._outputs.stacks else ()

    def _counting(self) -> Iterator[ast.stmt]:
        """The lines that only count: those behind which a step doesn't look at the count."""
        for each in self._course.counting:
            if not self._reads(self._loop.body[self._loop.body.index(each) + 1 :]):
                yield each

    def _reads(self, statements: list[ast.stmt]) -> bool:
        """Does a step look at its number there?"""
        kept = [each for each in statements if each not in (*self._course.exits, *self._course.counting)]
        nodes = (node for each in [*kept, self._course.end.test] for node in own_nodes(each))
        return any(isinstance(node, ast.Name) and node.id == self._course.index for node in nodes)

    def _number(self) -> tuple[str, list[ast.stmt]]:
        """What the function calls the number of the step, and the line that makes it what the loop counts."""
        index, first = self._course.index, self._course.first
        if not self._reads(self._loop.body) or (first is not None and integer(first) == 0):
            return index, []
        if first is None:
            raise Blocked(
                f"what `{index}` counts from is not known: set it to a number right in front of the loop", self._loop
            )
        number = self._names.taken.fresh("index")
        return number, [assignment(index, expression("{number} + {first}", number=number, first=first))]

    def _is_close(self) -> bool:
        """Does the loop stand right behind something, so that the function needs a blank line in front of it?"""
        block = self._program.block_of(self._loop)
        before = [each for each in block[: block.index(self._loop)] if each not in self._empty()]
        return bool(before) and bool(self._program.source.line_text(self._loop.lineno - 1).strip())

    def _first_statements(self, first: list[ast.stmt]) -> Iterator[ast.stmt]:
        """A step takes its state apart, and makes copies of what it writes to in place."""
        if len(self._state) > 1:
            yield statement("{*state}, = {carried}", state=list(map(reference, self._state)), carried=self._carried)
        yield from first
        yield from (assignment(each, expression("{x}.clone()", x=each)) for each in self._copied)

    def _call(self, step: str) -> Iterator[ast.stmt]:
        """The call, and what is done with the results."""
        entry, steps = self._course.entry if not self._outputs.stacks else None, self._course.steps
        asked: list[ast.stmt] = []
        if entry is not None and self._course.once:
            most = self._names.taken.fresh("most")
            asked = [assignment(most, steps)]
            entry, steps = expression("{most} > 0", most=most), reference(most)
        made = [self._assignment(step, steps), *self._outputs.behind]
        made = [*asked, statement("if {entry}:\n    {*made}", entry=entry, made=made)] if entry is not None else made
        yield apart(made[0])
        yield from made[1:]

    def _assignment(self, step: str, steps: ast.expr) -> ast.stmt:
        outputs, state = self._outputs, _tuple(self._state)
        words = {"until": outputs.until}
        if outputs.dim != "0":
            words["dim"] = expression(outputs.dim)
        targets = [reference(each) for each in outputs.results]
        if self._names.behind & set(self._state):
            targets = [state, _tuple(outputs.results)]
        else:
            words["last_state"] = expression("False")
        keywords = [ast.keyword(name, value) for name, value in words.items()]
        call = ast.Call(reference(self._name), [reference(step), state, steps], keywords)
        target = targets[0] if len(targets) == 1 else ast.Tuple(targets, ast.Store())
        return new(ast.Assign([target], in_rows(new(call), FIT)))


_ALL = 1 << 30  # lines


def _check_layout(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked where the loop shares lines with something else."""
    before = program.text[program.source.line_start(loop.lineno) : program.span(loop)[0]]
    if before.strip() or loop.body[0].lineno == loop.lineno:
        raise Blocked("it shares a line with something else: put its body on lines of its own", loop)


def _tuple(parts: Sequence[str | ast.expr]) -> ast.expr:
    items = [reference(each) if isinstance(each, str) else each for each in parts]
    return items[0] if len(items) == 1 else new(ast.Tuple(items, ast.Load()))
