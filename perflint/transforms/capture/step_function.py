"""Makes a loop that ends by a test a function of one step, so that the test is read once in several steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.program import GradMode, Program
from perflint.syntax.walk import PlainLoop, integer, own_nodes, variables_in
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.course import Course, Exit, check_guarded, course_of, tensor_test
from perflint.transforms.capture.obstacles import VERDICTS, Obstacles
from perflint.transforms.capture.results import Collected, Stacks, collected, stacks_of
from perflint.transforms.capture.state import State
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
from perflint.transforms.template import assignment, expression, plus, reference, statement, tuple_of


def stepped(program: Program, loop: PlainLoop, end: Exit, name: str) -> tuple[Operation, ...]:
    """What makes the loop a call of the function `name`, graphed_loop; raises Blocked."""
    if loop.orelse:
        raise Blocked("the loop's `else` runs only if no `break` does: test after the loop instead", loop.orelse[0])
    if program.grad_mode(loop) is not GradMode.OFF:
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
    state = State(program, loop, course, found)
    state.check_collected()
    state.check_skipped()
    gone = {each.statement: each.value for each in found}
    kept = [each for each in loop.body if each not in (*course.exits, *course.counting)]
    obstacles = Obstacles(program, quiet=True, strict=True, owned=state.memory_of(state.copied))
    obstacles.check([gone.get(each, each) for each in kept], loop)
    return tuple(_Rewriting(program, loop, course, found, state, name).operations())


class _Rewriting:
    """The loop's body becomes a function of one step, at the same place and as deep as it was."""

    def __init__(
        self, program: Program, loop: PlainLoop, course: Course, found: list[Collected], names: State, name: str
    ) -> None:
        self._program, self._loop, self._course, self._found = program, loop, course, found
        self._names, self._name = names, name
        self._state = names.carried
        names.check_later_writes()
        self._carried = names.taken.fresh("carried")
        self._late = {each.name for each in found if self._is_late(each)}
        self._counts = {course.index, course.counter} & names.live_out
        self._inside: dict[ast.stmt, tuple[ast.stmt, ...]] = dict.fromkeys(course.exits, ())  # in place of statements
        self._stacks = self._stacked()
        self._values, self._results, self._until = self._outputs()

    def operations(self) -> Iterator[Operation]:
        """All that changes."""
        check_alone(self._program, self._loop)
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
        yield from self._stacks.undone if self._stacks else ()

    def _body(self) -> Iterator[ast.stmt]:
        """What a step does: the statements of the loop, others in the place of those that look at its end."""
        gone = {*self._counting()}
        for each in self._loop.body:
            if each in self._inside or each in gone:
                check_alone(self._program, each)
                yield from (standing_for(new, each) for new in self._inside.get(each, ()))
            else:
                yield each

    def _return(self) -> ast.stmt:
        parts = [tuple_of(self._state), tuple_of(self._values)]
        made = statement("return {*parts},", parts=parts)
        return standing_for(made, self._loop.body[-1], last=_ALL, alone=False)

    def _empty(self) -> tuple[ast.stmt, ...]:
        return self._stacks.empty if self._stacks else ()

    def _counting(self) -> Iterator[ast.stmt]:
        """The lines that only count: those after which a step doesn't look at the count."""
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
                f"what `{index}` counts from is not known: set it to a number right before the loop", self._loop
            )
        number = self._names.taken.fresh("index")
        return number, [assignment(index, expression("{number} + {first}", number=number, first=first))]

    def _is_close(self) -> bool:
        """Does the loop stand right after something, so that the function needs a blank line before it?"""
        block = self._program.block_of(self._loop)
        before = [each for each in block[: block.index(self._loop)] if each not in self._empty()]
        return bool(before) and bool(self._program.source.line_text(self._loop.lineno - 1).strip())

    def _first_statements(self, first: list[ast.stmt]) -> Iterator[ast.stmt]:
        """A step takes its state apart, and makes copies of what it writes to in place."""
        if len(self._state) > 1:
            yield statement("{*state}, = {carried}", state=list(map(reference, self._state)), carried=self._carried)
        yield from first
        yield from (assignment(each, expression("{x}.clone()", x=each)) for each in self._names.copied)

    def _call(self, step: str) -> Iterator[ast.stmt]:
        """The call, and what is done with the results."""
        entry, steps = self._course.entry if not self._stacks else None, self._course.steps
        asked: list[ast.stmt] = []
        if entry is not None and self._course.once:
            most = self._names.taken.fresh("most")
            asked = [assignment(most, steps)]
            entry, steps = expression("{most} > 0", most=most), reference(most)
        made = [self._assignment(step, steps), *self._results_used()]
        made = [*asked, statement("if {entry}:\n    {*made}", entry=entry, made=made)] if entry is not None else made
        yield apart(made[0])
        yield from made[1:]

    def _assignment(self, step: str, steps: ast.expr) -> ast.stmt:
        state, words = tuple_of(self._state), {"until": self._until}
        if self._stacks is not None and self._stacks.dim != "0":
            words["dim"] = expression(self._stacks.dim)
        targets = [reference(each) for each in self._results]
        if self._names.live_out & set(self._state):
            targets = [state, tuple_of(self._results)]
        else:
            words["last_state"] = expression("False")
        keywords = [ast.keyword(name, value) for name, value in words.items()]
        call = ast.Call(reference(self._name), [reference(step), state, steps], keywords)
        target = targets[0] if len(targets) == 1 else ast.Tuple(targets, ast.Store())
        return new(ast.Assign([target], in_rows(new(call), FIT)))

    # -- what a step puts out, and how its end is told from that

    def _outputs(self) -> tuple[list[ast.expr], list[str], ast.expr]:
        """What a step puts out, what the results of all steps are called, and what tells the end."""
        names = [self._output_name(each) for each in self._found]
        values = [reference(name) for name in names]
        test, own = self._test()
        fresh, masked = self._names.taken.fresh, bool(self._late)
        results = [each.name if self._stacks is not None else fresh(f"more_{each.name}") for each in self._found]
        if len(values) == 1 and own <= {names[0]} and not masked:
            return values, results, expression(f"lambda {names[0]}: {{test}}", test=test)
        if not values:
            return [test], [fresh("ended") if self._counts else "_"], expression("lambda ended: ended")
        results.append(fresh("ended") if masked else "_")
        return [*values, self._shaped(test)], results, expression("lambda outputs: outputs[-1]")

    def _is_late(self, each: Collected) -> bool:
        """Does a step that ends the loop add nothing?"""
        place = self._loop.body.index(each.statement)
        for other in self._course.exits:
            if other is not self._course.end.place and self._loop.body.index(other) < place:
                raise Blocked(
                    f"the last step that is counted adds nothing to `{each.name}`: count after it", each.statement
                )
        end = self._course.end.place
        return end is not None and self._loop.body.index(end) < place

    def _output_name(self, each: Collected) -> str:
        """The name of what is put out: its own, if it stays what it is up to the end of the step."""
        rest = self._loop.body[self._loop.body.index(each.statement) + 1 :]
        bound = {
            node.id
            for part in rest
            for node in ast.walk(part)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if isinstance(each.value, ast.Name) and each.value.id not in bound:
            self._inside[each.statement] = ()
            return each.value.id
        name = self._names.taken.fresh(f"new_{each.name}")
        self._inside[each.statement] = (assignment(name, each.value),)
        return name

    def _test(self) -> tuple[ast.expr, set[str]]:
        """The test as it stands at the end of a step, and those names of the step that it reads."""
        end = self._course.end
        code = tensor_test(self._program, end, self._loop)
        own = self._names.stored | {self._course.index}
        read = variables_in(end.test) & own
        late = {name for each in self._course.late(self._loop) for name in self._names.set_by(each)}
        if end.place is None or not read & late:
            return code, read
        name = self._names.taken.fresh("is_over")
        self._inside[end.place] = (assignment(name, code),)
        return reference(name), {name}

    def _stacked(self) -> Stacks | None:
        """Where all results are stacked in one way, the stack of the steps' values is what they are."""
        if not self._found or self._late or self._counts or self._course.end.place is None:
            return None
        stacks = stacks_of(self._program, self._loop, self._found)
        return stacks if stacks is not None and (len(self._found) == 1 or stacks.dim in ("0", "1", "-1")) else None

    def _shaped(self, test: ast.expr) -> ast.expr:
        """The test so that it can be stacked as the other results are, or tells of each step as a mask."""
        if self._stacks is not None:
            return expression("{test}.reshape(1)", test=test)
        function = test.func if isinstance(test, ast.Call) and not test.args else None
        is_verdict = isinstance(function, ast.Attribute) and function.attr in VERDICTS
        return expression("{test}.reshape(())", test=test) if self._late and not is_verdict else test

    def _results_used(self) -> list[ast.stmt]:
        """What is done with the results, where they are not stacked already."""
        if self._stacks is not None:
            return []
        results, ended = self._results, self._results[-1]
        added = [
            each.after_loop(result, ended if each.name in self._late else "")
            for each, result in zip(self._found, results, strict=False)
        ]
        return added + [self._counted(name, results[0]) for name in sorted(self._counts)]

    def _counted(self, name: str, result: str) -> ast.stmt:
        """What the loop counted up to, by how many results there are."""
        if name == self._course.counter:
            return statement(f"{name} += len({result})")
        first, taken = self._course.first, expression(f"len({result})")
        start = integer(first) if first is not None else None
        if first is not None and start is None:
            return assignment(name, expression("{first} + {taken} - 1", first=first, taken=taken))
        return assignment(name, plus(taken, (start or 0) - 1))


_ALL = 1 << 30  # lines
