"""How a loop that ends by a test goes: how many steps it takes at most, and the test, as a tensor that isn't read."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.program import Program
from perflint.analysis.values.dtypes import INTEGER, number_kind
from perflint.analysis.values.shapes import axis_of
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, integer, operands, own_nodes, path_of, receiver_of
from perflint.transforms.blocked import Blocked, shown
from perflint.transforms.capture.calls import check_call
from perflint.transforms.capture.obstacles import VERDICTS, may_read
from perflint.transforms.capture.results import lengthened
from perflint.transforms.host_reads import item_of
from perflint.transforms.operations import derived
from perflint.transforms.template import expression, number

_SMALL = 128
_PLAIN = (ast.Compare, ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.cmpop, ast.expr_context)
_AS_TENSOR = "write it as one comparison of a tensor, or its `.all()` or `.any()`"
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # that are made on the device
_MIRRORED = {ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.LtE: ast.GtE}
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)
_PLAIN_CALLS = ("len", "size", "min", "max", "int")
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
    """How the loop goes; raises Blocked where its steps can't be counted before it."""
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
        for part in operands(loop.test, ast.And):
            yield Exit(part, True, None)
    for statement in loop.body:
        if isinstance(statement, ast.If) and _only_breaks(statement):
            for part in operands(statement.test, ast.Or):
                yield Exit(part, False, statement)


def _only_breaks(node: ast.If) -> bool:
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
            f"{shown(program, right)}, which bounds it, may change from step to step: name it before the loop",
            right,
        )
    return left, operator, right


def _stays(program: Program, loop: PlainLoop, node: ast.expr) -> bool:
    """Is it the same whenever the loop looks at it: a number, or what the loop neither sets nor lengthens?"""
    graph = program.get(Flow).graph(loop)
    values = (each for each in graph.values.values() if isinstance(each, Definition))
    changed = {each.name for each in values if graph.is_within(each.node, loop)} | set(map(_appends, loop.body))
    parts = list(own_nodes(node))
    calls = [each for each in parts if isinstance(each, ast.Call)]
    plain = all(path_of(each.func).rpartition(".")[2] in _PLAIN_CALLS for each in calls)
    return plain and not changed & {each.id for each in parts if isinstance(each, ast.Name)}


def _counter(program: Program, loop: ast.While, counted: ast.expr) -> tuple[str, ast.stmt, ast.expr | None]:
    """The name that grows by one in each step, the statement that does it, and what it starts from."""
    if isinstance(counted, ast.Name) and (induction := _induction(program, loop, counted.id)) is not None:
        return counted.id, *induction
    name, axis = "", ""
    if isinstance(counted, ast.Call) and program.qualified(counted.func) == "builtins.len" and counted.args:
        name = path_of(counted.args[0])
    elif (measured := axis_of(counted)) is not None:
        name, axis = path_of(measured[0]), str(measured[1])
    found = [each for each in loop.body if name and name in (_appends(each), lengthened(program, each, axis))]
    if len(found) == 1:
        return name, found[0], number(0)
    raise Blocked(f"{shown(program, counted)} is not known to grow by one in each step: count by `range`", counted)


def _induction(program: Program, loop: ast.While, name: str) -> tuple[ast.stmt, ast.expr | None] | None:
    """The statement that adds one to the variable in each step, and the number that it starts from, if one is known."""
    graph = program.get(Flow).graph(loop)
    phi = next((each for each in graph.phis.get(graph.regions[loop].header, []) if each.name == name), None)
    updates = graph.back_edge_values(loop, phi) if phi is not None else []
    made = updates[0] if len(updates) == 1 else None
    if phi is None or not isinstance(made, Definition) or made.updates is not phi:
        return None
    statement = program.statement_of(made.node)
    is_one = (
        isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and integer(statement.value) == 1
    )
    if not is_one or statement not in loop.body:
        return None
    initial = graph.initial_values(loop, phi)
    first = initial[0].given if len(initial) == 1 and isinstance(initial[0], Definition) else None
    return statement, first if isinstance(first, ast.Constant) and type(first.value) is int else None


def _appends(statement: ast.stmt) -> str:
    appending = receiver_of(statement.value, "append") if isinstance(statement, ast.Expr) else None
    return path_of(appending) if appending is not None else ""


def check_guarded(program: Program, loop: PlainLoop, course: Course) -> None:
    """Raise Blocked where a test may fail in a step in which the program doesn't get as far as to ask it.

    A step asks all tests, also those that others before them keep the program from.
    """
    for test in _guarded(loop, course):
        for node in own_nodes(test):
            if _is_perhaps_none(program, node) or any(_reads_number(program, each) for each in _picky(node)):
                reason = "may fail in steps that the tests before it keep it from: write it so that it can't"
                raise Blocked(f"{shown(program, test)} {reason}", test)


def _guarded(loop: PlainLoop, course: Course) -> Iterator[ast.expr]:
    end = course.end
    first = min(course.exits, key=lambda each: each.lineno, default=None)
    in_front = loop.test.values[0] if isinstance(loop, ast.While) and isinstance(loop.test, ast.BoolOp) else end.test
    if first is not end.place if end.place is not None else in_front is not end.test:
        yield end.test
    for node in ast.walk(end.test):
        if isinstance(node, ast.BoolOp):
            yield from node.values[1:]


def _picky(node: ast.AST) -> list[ast.expr]:
    """The parts that a wrong number makes fail: an index, a divisor, an argument."""
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Call):
        return [*node.args, *(each.value for each in node.keywords)]
    return [node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, _DIVISIONS) else []


def _reads_number(program: Program, part: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and program.value(node).kind is Kind.NUMBER for node in own_nodes(part))


def _is_perhaps_none(program: Program, node: ast.AST) -> bool:
    values = program.get(Flow).graph(node).definitions(node)
    sources = (each.source for each in values if isinstance(each, Definition) and not each.steps)
    return any(isinstance(each, ast.Constant) and each.value is None for each in sources)


def tensor_test(program: Program, end: Exit, loop: PlainLoop) -> ast.expr:
    """The test as a tensor of one truth value, true where the loop is over, with nothing read on the host."""
    test, is_over = end.test, not end.continues
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, is_over = test.operand, not is_over
    code = _as_tensor(program, _unread(program, test), end, loop)
    return code if is_over else expression("{test}.logical_not()", test=code)


def _as_tensor(program: Program, test: ast.expr, end: Exit, loop: PlainLoop) -> ast.expr:
    if isinstance(test, ast.BoolOp):
        both = "{one} & {other}" if isinstance(test.op, ast.And) else "{one} | {other}"
        parts = (_checked_operand(program, each, end, loop) for each in test.values)
        return functools.reduce(lambda one, other: expression(both, one=one, other=other), parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _COMPARISONS):
        return _tensor_comparison(program, test, loop)
    function = test.func if isinstance(test, ast.Call) else None
    is_verdict = isinstance(function, ast.Attribute) and function.attr in VERDICTS
    if not is_verdict and not (program.value(test).kind is Kind.TENSOR and program.value(test).dtype == "bool"):
        raise Blocked(f"{shown(program, end.test)} is read on the host in each step: {_AS_TENSOR}", end.test)
    _check_parts(program, [test], loop)
    return test


def _checked_operand(program: Program, test: ast.expr, end: Exit, loop: PlainLoop) -> ast.expr:
    """One of several tests: of a tensor, or of numbers that the host knows, such as which step it is."""
    if may_read(program, test):
        return tensor_test(program, Exit(test, False, end.place), loop)
    if not isinstance(test, ast.Compare) or not all(_is_arithmetic(each) for each in ast.walk(test)):
        raise Blocked(
            f"{shown(program, test)} may be no truth value: write it as a comparison, or test it before the loop",
            test,
        )
    return test


def _is_arithmetic(node: ast.AST) -> bool:
    return isinstance(node, _PLAIN) and not isinstance(node, ast.Is | ast.IsNot | ast.In | ast.NotIn)


def _unread(program: Program, node: ast.expr) -> ast.expr:
    """What is read, where a test only reads one tensor: `x` of `x.item()` and `bool(x)`."""
    if isinstance(node, ast.Call) and program.qualified(node.func) == "builtins.bool" and len(node.args) == 1:
        return _unread(program, node.args[0])
    return item_of(node) or node


def _tensor_comparison(program: Program, test: ast.Compare, loop: PlainLoop) -> ast.expr:
    """The comparison, of the tensor where its number was read."""
    left, right = test.left, test.comparators[0]
    tensor = _number_of(program, left)
    if tensor is left:
        _check_parts(program, [left, right], loop)
        return test
    if number_kind(program, tensor) != INTEGER and not _is_exact(program, right):
        raise Blocked(
            f"{shown(program, left)} may be compared otherwise on the device, if it is a float:"
            f" compare {shown(program, tensor)}",
            left,
        )
    _check_parts(program, [tensor, right], loop)
    return derived(test, {left: tensor})


def _is_exact(program: Program, number: ast.expr) -> bool:
    """Is it a number that tensors of all types hold as it is, so that each compares with it as its own number would?"""
    value = program.value(number)
    return value.is_literal and (
        (type(value.literal) is int and 0 <= value.literal < _SMALL) or value.literal in (0.0, 0.5, 1.0)
    )


def _number_of(program: Program, node: ast.expr) -> ast.expr:
    """The tensor whose number is read by `.item()` or `int()`, else the node."""
    is_int = isinstance(node, ast.Call) and program.qualified(node.func) == "builtins.int" and len(node.args) == 1
    if is_int and isinstance(node, ast.Call):
        return _unread(program, node.args[0])
    return item_of(node) or node


def _check_parts(program: Program, parts: list[ast.expr], loop: PlainLoop) -> None:
    for part in parts:
        for node in own_nodes(part):
            if isinstance(node, ast.Call):
                check_call(program, node, loop, strict=True)
            is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
            if isinstance(node, ast.BoolOp | ast.Lambda | ast.NamedExpr) or is_not:
                raise Blocked(f"{shown(program, part)} is read on the host in each step: {_AS_TENSOR}", part)
