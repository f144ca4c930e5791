"""What a step puts out, how its end is told from that, and what is done with the results of all steps."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.syntax.walk import PlainLoop, integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.carried import Names, set_by
from perflint.transforms.capture.course import Course
from perflint.transforms.capture.end_test import tensor_test
from perflint.transforms.capture.reads import VERDICTS
from perflint.transforms.capture.results import Collected
from perflint.transforms.capture.stacks import Stacks, stacks_of
from perflint.transforms.template import assignment, expression, reference, statement
from perflint.transforms.vectorize.slices import shifted

if TYPE_CHECKING:
    from perflint.analysis.program import Program


@dataclass(frozen=True)
class Outputs:
    """A step puts out `values`, whose `results` are those of all steps, stacked along `dim`; `until` tells the end.

    `inside`: what stands in the step in the place of statements, if anything. `behind`: the statements that follow the
    call. `stacks`: the lists that the results stand for as a whole; without them, lists and tensors are added to.
    """

    values: tuple[ast.expr, ...]
    results: tuple[str, ...]
    until: ast.expr
    inside: dict[ast.stmt, tuple[ast.stmt, ...]]
    behind: tuple[ast.stmt, ...]
    stacks: Stacks | None

    @property
    def dim(self) -> str:
        """The dimension along which results are stacked."""
        return self.stacks.dim if self.stacks is not None else "0"


def outputs_of(program: Program, loop: PlainLoop, course: Course, found: Sequence[Collected], names: Names) -> Outputs:
    """The outputs of a step of `loop`."""
    return _Choice(program, loop, course, found, names).outputs()


class _Choice:
    def __init__(
        self, program: Program, loop: PlainLoop, course: Course, found: Sequence[Collected], names: Names
    ) -> None:
        self._program, self._loop, self._course, self._found, self._names = program, loop, course, found, names
        self._late = {each.name for each in found if self._is_late(each)}
        self._counts = {course.index, course.counter} & names.behind
        self._inside: dict[ast.stmt, tuple[ast.stmt, ...]] = dict.fromkeys(course.exits, ())

    def outputs(self) -> Outputs:
        names = [self._value(each) for each in self._found]
        values = [reference(name) for name in names]
        stacks = self._stacks()
        test, own = self._test()
        masked = bool(self._late)
        if len(values) == 1 and own <= {names[0]} and not masked:
            until, results = expression(f"lambda {names[0]}: {{test}}", test=test), self._results(stacks)
        elif not values:
            ended = self._names.taken.fresh("ended") if self._counts else "_"
            until, values, results = expression("lambda ended: ended"), [test], [ended]
        else:
            ended = self._names.taken.fresh("ended") if masked else "_"
            until, results = expression("lambda outputs: outputs[-1]"), [*self._results(stacks), ended]
            values.append(self._shaped(test, stacks, masked))
        behind = [] if stacks is not None else self._behind(results)
        return Outputs(tuple(values), tuple(results), until, self._inside, tuple(behind), stacks)

    def _is_late(self, each: Collected) -> bool:
        """Does a step that ends the loop add nothing?"""
        place = self._loop.body.index(each.statement)
        for other in self._course.exits:
            if other is not self._course.end.place and self._loop.body.index(other) < place:
                raise Blocked(
                    f"the last step that is counted adds nothing to `{each.name}`: count behind it", each.statement
                )
        end = self._course.end.place
        return end is not None and self._loop.body.index(end) < place

    def _value(self, each: Collected) -> str:
        """The name of what is put out: its own, if it stays what it is up to the end of the step."""
        rest = self._loop.body[self._loop.body.index(each.statement) + 1 :]
        bound = {node.id for part in rest for node in ast.walk(part) if isinstance(node, ast.Name) and _is_store(node)}
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
        read = {node.id for node in ast.walk(end.test) if isinstance(node, ast.Name)} & own
        late = {name for each in self._course.late(self._loop) for name in set_by(self._program, each)}
        if end.place is None or not read & late:
            return code, read
        name = self._names.taken.fresh("is_over")
        self._inside[end.place] = (assignment(name, code),)
        return reference(name), {name}

    def _stacks(self) -> Stacks | None:
        """Where all results are stacked in one way, the stack of the steps' values is what they are."""
        if not self._found or self._late or self._counts or self._course.end.place is None:
            return None
        stacks = stacks_of(self._program, self._loop, self._found)
        return stacks if stacks is not None and (len(self._found) == 1 or stacks.dim in ("0", "1", "-1")) else None

    def _shaped(self, test: ast.expr, stacks: Stacks | None, masked: bool) -> ast.expr:
        """The test so that it can be stacked as the other results are, or tells of each step as a mask."""
        if stacks is not None:
            return expression("{test}.reshape(1)", test=test)
        function = test.func if isinstance(test, ast.Call) and not test.args else None
        is_verdict = isinstance(function, ast.Attribute) and function.attr in VERDICTS
        return expression("{test}.reshape(())", test=test) if masked and not is_verdict else test

    def _results(self, stacks: Stacks | None) -> list[str]:
        if stacks is not None:
            return [each.name for each in self._found]
        return [self._names.taken.fresh(f"more_{each.name}") for each in self._found]

    def _behind(self, results: list[str]) -> list[ast.stmt]:
        ended = results[-1] if self._late else ""
        added = [
            each.behind(result, ended if each.name in self._late else "")
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
        return assignment(name, shifted(taken, (start or 0) - 1))


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
