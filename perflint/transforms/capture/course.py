"""How a loop that ends by a test goes: what ends it, how many steps it takes at most, and what only counts them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.shapes import axis_of
from perflint.syntax.walk import PlainLoop, integer, nodes_of_body, own_nodes, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.ownership import bound_to
from perflint.transforms.capture.reads import may_read
from perflint.transforms.capture.results import lengthened
from perflint.transforms.shown import shown
from perflint.transforms.template import expression, number

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_MIRRORED = {ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.LtE: ast.GtE}
_OPPOSITE = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}


@dataclass(frozen=True)
class Exit:
    """A condition under which a loop is over, or goes on where it `continues`, at `place`: its head if that is None."""

    test: ast.expr
    continues: bool
    place: ast.If | None


@dataclass(frozen=True)
class Course:
    """What ends a loop (`end`), and how many `steps` it takes if that doesn't.

    `index` is what a step calls its number, `first` the number that it counts from, None where that is unknown;
    `counter` is the name that the loop counts in by itself, by the statements `counting`. `entry` is the test by which
    it takes a step at all, None if it always does. `exits` are the statements that leave it. `once`: how many steps
    there are is to be asked once.
    """

    end: Exit
    steps: ast.expr
    index: str
    first: ast.expr | None
    counter: str
    counting: tuple[ast.stmt, ...]
    entry: ast.expr | None
    exits: tuple[ast.If, ...]
    once: bool = False

    def late(self, loop: PlainLoop) -> list[ast.stmt]:
        """The statements that the last step doesn't run, if the test ends it."""
        first = min((loop.body.index(each) for each in self.exits), default=len(loop.body))
        return [each for each in loop.body[first:] if each not in self.exits]


def end_of(program: Program, loop: PlainLoop) -> Exit | None:
    """The condition that ends the loop by what is on the device, if there is one, or several in one test."""
    found = [each for each in _exits(loop) if may_read(program, each.test)]
    places = {each.place for each in found}
    if len(found) < 2 or len(places) > 1:
        return found[0] if len(found) == 1 else None
    place = found[0].place
    return Exit(place.test, False, place) if place is not None else None


def course_of(program: Program, loop: PlainLoop, end: Exit) -> Course:
    """How the loop goes; raises Blocked where its steps can't be counted in front of it."""
    others = [each for each in _exits(loop) if each != end]
    places = tuple(dict.fromkeys(each.place for each in (end, *others) if each.place is not None))
    if isinstance(loop, ast.For):
        for each in others:
            if each.place is not end.place:
                raise Blocked("it is left, or goes on, at several places: end it by one test", each.place)
        whole = end if end.place is None else Exit(end.place.test, False, end.place)
        return _of_range(program, loop, whole, places)
    if len(others) != 1:
        reason = "nothing but what is on the device ends it: give it a bound, such as `for _ in range(n)`"
        raise Blocked(reason if not others else "more than one count ends it: compare with the smallest number", loop)
    return _of_while(program, loop, end, others[0], places)


def _exits(loop: PlainLoop) -> Iterator[Exit]:
    """What ends a loop, where that is a `break` of its own, or its head."""
    if isinstance(loop, ast.While) and not (isinstance(loop.test, ast.Constant) and loop.test.value):
        for part in _parts(loop.test, ast.And):
            yield Exit(part, True, None)
    for statement in loop.body:
        if isinstance(statement, ast.If) and _leaves(statement):
            for part in _parts(statement.test, ast.Or):
                yield Exit(part, False, statement)


def _parts(test: ast.expr, operator: type[ast.boolop]) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, operator) else [test]


def _leaves(node: ast.If) -> bool:
    return len(node.body) == 1 and isinstance(node.body[0], ast.Break) and not node.orelse


def _of_range(program: Program, loop: ast.For, end: Exit, places: tuple[ast.If, ...]) -> Course:
    call = loop.iter
    if not isinstance(call, ast.Call) or program.qualified(call.func) != "builtins.range" or call.keywords:
        raise Blocked(f"its steps are not counted by range(), but walk {shown(program, call)}: number them", loop)
    if not isinstance(loop.target, ast.Name) or len(call.args) > 2:
        raise Blocked(
            f"{shown(program, call)} doesn't count one by one, in one name: compute the other numbers in the step", loop
        )
    steps, first = call.args[-1], number(0)
    if len(call.args) == 2:
        if not _stays(program, loop, call.args[0]):
            raise Blocked(f"its steps count from {shown(program, call.args[0])}, which may change: count from 0", loop)
        first = call.args[0]
        steps = _less(call.args[-1], first)
    entry = None if (integer(steps) or 0) > 0 else expression("{steps} > 0", steps=steps)
    once = not _stays(program, loop, call.args[-1])
    return Course(end, steps, loop.target.id, first, "", (), entry, places, once)


def _less(bound: ast.expr, first: ast.expr) -> ast.expr:
    """How many steps there are up to a bound."""
    stop, start = integer(bound), integer(first)
    if start == 0:
        return bound
    if stop is not None and start is not None:
        return number(max(stop - start, 0))
    return expression("{bound} - {first}", bound=bound, first=first)


def _of_while(program: Program, loop: ast.While, end: Exit, count: Exit, places: tuple[ast.If, ...]) -> Course:
    """A loop of which a comparison of what it counts tells how many steps are left."""
    counted, operator, bound = _comparison(program, loop, count)
    counter, statement, first = _counter(program, loop, counted)
    more = 1 if operator is ast.LtE else 0
    if count.place is not None and loop.body.index(statement) > loop.body.index(count.place):
        more += 1  # what is compared was counted by the steps before
    steps = expression("{bound} - {counted}", bound=bound, counted=counted)
    steps = expression("{steps} + {more}", steps=steps, more=more) if more else steps
    steps = steps if count.place is None else expression("max({steps}, 1)", steps=steps)
    is_always = isinstance(loop.test, ast.Constant) or (end.place is not None and count.place is not None)
    counting = (statement,) if isinstance(statement, ast.AugAssign) else ()
    index = counter if counting else "_"
    entry = None if is_always else loop.test
    return Course(end, steps, index, first, counter if counting else "", counting, entry, places)


def _comparison(program: Program, loop: ast.While, count: Exit) -> tuple[ast.expr, type[ast.cmpop], ast.expr]:
    """What is counted, `<` or `<=`, and the bound, of the comparison by which the loop goes on."""
    test = count.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _OPPOSITE:
        raise Blocked(
            f"how many steps {shown(program, test)} leaves is not known: compare a count with a number, as in `t < n`",
            test,
        )
    operator: type[ast.cmpop] = type(test.ops[0])
    if not count.continues:
        operator = _OPPOSITE[operator]
    left, right = test.left, test.comparators[0]
    if operator in (ast.Gt, ast.GtE):
        left, operator, right = right, _MIRRORED[operator], left
    if not _stays(program, loop, right):
        raise Blocked(
            f"{shown(program, right)}, which bounds it, may change from step to step: name it in front of the loop",
            right,
        )
    return left, operator, right


def _stays(program: Program, loop: PlainLoop, node: ast.expr) -> bool:
    """Is it the same whenever the loop looks at it: a number, or what the loop neither sets nor lengthens?"""
    names = (each for each in nodes_of_body(loop) if isinstance(each, ast.Name))
    changed = {each.id for each in names if not isinstance(each.ctx, ast.Load)} | {_appends(each) for each in loop.body}
    parts = list(own_nodes(node))
    calls = [each for each in parts if isinstance(each, ast.Call)]
    plain = all(path_of(each.func).rpartition(".")[2] in ("len", "size", "min", "max", "int") for each in calls)
    return plain and not changed & {each.id for each in parts if isinstance(each, ast.Name)}


def _counter(program: Program, loop: ast.While, counted: ast.expr) -> tuple[str, ast.stmt, ast.expr | None]:
    """The name that grows by one in each step, the statement that does it, and what it starts from."""
    if isinstance(counted, ast.Name):
        found = [each for each in loop.body if _adds_one(each, counted.id)]
        stores = [each for each in nodes_of_body(loop) if isinstance(each, ast.Name) and each.id == counted.id]
        if len(found) == 1 and sum(not isinstance(each.ctx, ast.Load) for each in stores) == 1:
            return counted.id, found[0], _start(program, loop, counted.id)
    elif isinstance(counted, ast.Call) and program.qualified(counted.func) == "builtins.len" and counted.args:
        name = path_of(counted.args[0])
        found = [each for each in loop.body if name and _appends(each) == name]
        if len(found) == 1:
            return name, found[0], number(0)
    elif (measured := axis_of(counted)) is not None:
        name, axis = path_of(measured[0]), str(measured[1])
        found = [each for each in loop.body if lengthened(program, each) == (name, axis)]
        if len(found) == 1:
            return name, found[0], number(0)
    raise Blocked(f"{shown(program, counted)} is not known to grow by one in each step: count by `range`", counted)


def _adds_one(statement: ast.stmt, name: str) -> bool:
    return (
        isinstance(statement, ast.AugAssign)
        and isinstance(statement.op, ast.Add)
        and path_of(statement.target) == name
        and isinstance(statement.value, ast.Constant)
        and statement.value.value == 1
    )


def _appends(statement: ast.stmt) -> str:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
        return path_of(call.func.value)
    return ""


def _start(program: Program, loop: ast.While, name: str) -> ast.expr | None:
    """The number that a counter is set to in front of the loop; None where that isn't known."""
    inside = set(own_nodes(loop))
    uses = (each for each in inside if isinstance(each, ast.Name) and each.id == name)
    starts = {made for use in uses for made in program.get(Flow).definitions(use)} - inside
    made = next(iter(starts)) if len(starts) == 1 else None
    value = bound_to(program, made) if isinstance(made, ast.Name) else None
    if made is None or not isinstance(value, ast.Constant) or type(value.value) is not int:
        return None
    return value if _loops(program, made) == _loops(program, loop) else None


def _loops(program: Program, node: ast.AST) -> list[ast.AST]:
    return [each for each in program.ancestors(node) if isinstance(each, PlainLoop)]
