"""Draws in front of a loop over time which of its steps are forced, so that a CUDA graph can hold the loop."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import Kind, Program
from perflint.syntax.source import Fix
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, PlainLoop, integer, own_nodes, path_of, variables_in
from perflint.transforms.capture.calls import entry_of
from perflint.transforms.capture.candidate import graphed
from perflint.transforms.capture.host_part import draws, draws_on_device, is_unconditional
from perflint.transforms.capture.scope import is_of_step
from perflint.transforms.capture.step_obstacles import leaves
from perflint.transforms.operations import (
    FIT,
    InsertBefore,
    Operation,
    Replace,
    ReplaceStatements,
    assignment,
    expression,
    in_rows,
    located,
    plus,
    reference,
)
from perflint.transforms.rewrite import Blocked, check_alone, of_torch, rewrite, shown, taken_around

_PLAIN = (ast.Constant, ast.boolop, ast.unaryop, ast.cmpop, ast.operator, ast.expr_context)
_MADE_OF = (*_PLAIN, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.BinOp)
_ARGUMENTS = {"rand": 0, "random": 0, "random_sample": 0, "uniform": 2}  # of numpy's functions, for one number
_WRAPPERS = frozenset({"torch.autograd.Variable"})


def graphed_or_drawn(program: Program, loop: PlainLoop) -> Fix:
    """The fix that captures `loop`, or draws in front of it what keeps it from that; raises Blocked."""
    try:
        return graphed(program, loop)
    except Blocked as reason:
        try:
            made, (front, own), operations = _drawn(program, loop)
        except Blocked:
            raise reason from None
        try:
            fix = graphed(made, own)
        except Blocked as other:
            raise (reason if other.node in {*ast.walk(front)} else other) from None
    title = "draw in front of the loop which steps are forced, to capture it"
    return replace(fix, title=title, change=rewrite(program, *operations))


@dataclass(frozen=True)
class _Asked:
    """Where a step takes what is given, `forced`, or what it has put out, `own`; for a statement, to which variable."""

    place: ast.If | ast.IfExp
    forced: ast.expr
    own: ast.expr
    target: str = ""


@dataclass(frozen=True)
class _Choice:
    """What a step draws: its `test`, and the statement that gives the answer a name, if one does.

    `names` are those that nothing else has.
    """

    test: ast.expr
    made: ast.Assign | None
    asked: tuple[_Asked, ...]
    names: frozenset[str] = frozenset()


def _drawn(program: Program, loop: PlainLoop) -> tuple[Program, tuple[ast.stmt, PlainLoop], Sequence[Operation]]:
    """The program that draws the choices of all steps in front of the loop, in the same order; that and the loop there.

    With them go the changes that make it. Raises Blocked.
    """
    counter, first = _counter(program, loop)
    choice = _choice(program, loop)
    _check_test(program, loop, choice.test, counter)
    taken = taken_around(program, loop)
    taken.names.difference_update(choice.names)
    name, given = taken.fresh("forced"), _given(program, loop, choice)
    step = counter if counter in variables_in(choice.test) else "_"
    template = f"{{tensor}}([{{test}} for {step} in {{walked}}], dtype={{long}}, device={given}.device)"
    assert isinstance(loop, ast.For)
    parts_of = {"test": choice.test, "walked": loop.iter, "tensor": of_torch(program, "tensor", loop)}
    parts_of["long"] = of_torch(program, "long", loop)
    drawn = in_rows(expression(template, **parts_of), FIT)
    chosen = f"{{stack}}(({{own}}, {{forced}}))[{name}[{{step}}]]"
    index = plus(reference(counter), -first)
    parts: dict[ast.AST, ast.AST | None] = {choice.made: None} if choice.made is not None else {}
    operations: list[Operation] = [InsertBefore(loop, (assignment(name, drawn),))]
    for each in choice.asked:
        if any(isinstance(node, (*FUNCTIONS, *COMPREHENSIONS)) for node in _around(program, each.place, loop)):
            raise Blocked("what is chosen is chosen in a scope of its own", each.place)
        value = expression(chosen, stack=of_torch(program, "stack", loop), own=each.own, forced=each.forced, step=index)
        if isinstance(each.place, ast.IfExp):
            operations.append(Replace(each.place, value))
            parts[each.place] = located(value, each.place)
        else:
            check_alone(program, each.place)
            statement = assignment(each.target, value)
            operations.append(ReplaceStatements((each.place,), (statement,)))
            parts[each.place] = located(statement, each.place)
    if choice.made is not None:
        check_alone(program, choice.made)
        operations.append(ReplaceStatements((choice.made,), ()))
    own = _changed(loop, parts)
    assert isinstance(own, ast.For)
    front = located(assignment(name, drawn), loop)
    made = program.with_statements(loop, [front, own])
    _check_tensors(made, choice)
    _check_unwritten(program, loop, choice)
    return made, (front, own), operations


def _around(program: Program, node: ast.AST, loop: PlainLoop) -> Iterator[ast.AST]:
    return itertools.takewhile(lambda each: each is not loop, program.ancestors(node))


def _changed(node: ast.AST, parts: Mapping[ast.AST, ast.AST | None]) -> Any:
    if node in parts:
        return parts[node]
    found = copy.copy(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            kept = [each for each in value if each not in parts or parts[each] is not None]
            setattr(found, name, [_changed(each, parts) if isinstance(each, ast.AST) else each for each in kept])
        elif isinstance(value, ast.AST):
            setattr(found, name, _changed(value, parts))
    return found


def _counter(program: Program, loop: PlainLoop) -> tuple[str, int]:
    call = program.call_of(loop.iter, "builtins.range") if isinstance(loop, ast.For) else None
    first = 0 if call is not None and len(call.args) == 1 else integer(call.args[0]) if call is not None else None
    if call is None or not isinstance(loop, ast.For) or len(call.args) > 2 or call.keywords or first is None:
        raise Blocked("its steps are not counted one by one from a number", loop)
    if not isinstance(loop.target, ast.Name) or loop.orelse:
        raise Blocked("its steps are not counted in a variable alone", loop)
    for each in loop.body:
        for node in leaves(each):
            raise Blocked("a step may end the loop, and what the others draw", node)
    stored = [node for each in loop.body for node in own_nodes(each) if isinstance(node, ast.Name)]
    if any(each.id == loop.target.id and not isinstance(each.ctx, ast.Load) for each in stored):
        raise Blocked("the number of the step is changed", loop)
    return loop.target.id, first


def _draws(program: Program, node: ast.AST) -> bool:
    return any(draws(program, each) and not draws_on_device(program, each) for each in ast.walk(node))


def _draws_number(program: Program, call: ast.Call) -> bool:
    head, _, name = program.qualified(call.func).rpartition(".")
    is_one = head == "numpy.random" and len(call.args) <= _ARGUMENTS.get(name, -1) and not call.keywords
    return is_one or (_draws(program, call) and program.value(call).kind is Kind.NUMBER)


def _choice(program: Program, loop: PlainLoop) -> _Choice:
    found: list[_Choice] = []
    graph = program.get(Flow).graph(loop)
    for statement in loop.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and _is_test(program, statement.value):
            uses = graph.uses.get(target, ())
            if target.id in graph.live_out(loop) or target.id in graph.shared | graph.captured.keys():
                raise Blocked(f"`{target.id}` is read elsewhere", statement)
            if any([*graph.definitions(each)] != [graph.values[target]] for each in uses):
                raise Blocked(f"`{target.id}` may be another answer", statement)
            places = [program.parent(each) for each in uses]
            asked = (_asked(each, use) for each, use in zip(places, uses, strict=True))
            around = own_nodes(program.function_of(loop) or program.tree)
            named = [each for each in around if isinstance(each, ast.Name) and each.id == target.id]
            names = frozenset({target.id} if len(named) == len(uses) + 1 else ())
            found.append(_Choice(statement.value, statement, tuple(asked), names))
        for node in own_nodes(statement):
            is_asked = isinstance(node, ast.If | ast.IfExp) and _is_test(program, node.test)
            if isinstance(node, ast.If | ast.IfExp) and is_asked:
                if node is not statement and not is_unconditional(program, node, statement):
                    raise Blocked("not each step draws", node)
                found.append(_Choice(node.test, None, (_asked(node, node.test),)))
    if len(found) != 1 or not found[0].asked:
        raise Blocked("no step makes one choice by what it draws", loop)
    return found[0]


def _is_test(program: Program, node: ast.expr) -> bool:
    last = node.values[-1] if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else node
    return isinstance(last, ast.Compare) and _draws(program, node)


def _asked(place: ast.AST | None, test: ast.expr) -> _Asked:
    if isinstance(place, ast.IfExp) and place.test is test:
        return _Asked(place, place.body, place.orelse)
    if isinstance(place, ast.If) and place.test is test and len(place.body) == 1 and len(place.orelse) < 2:
        target, forced = _assigned(place.body[0])
        other, own = _assigned(place.orelse[0]) if place.orelse else (target, reference(target))
        if target and other == target and forced is not None and own is not None:
            return _Asked(place, forced, own, target)
    raise Blocked("what is chosen is no value", place)


def _assigned(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return (target.id, statement.value) if isinstance(target, ast.Name) else ("", None)
    return "", None


def _check_test(program: Program, loop: PlainLoop, test: ast.expr, counter: str) -> None:
    stored = {path_of(node) for node in own_nodes(loop) if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)}
    for part in ast.walk(test):
        is_call = isinstance(part, ast.Call) and _draws_number(program, part)
        is_name = isinstance(part, ast.Name | ast.Attribute) and path_of(part) not in stored - {counter, ""}
        if not (is_call or is_name or isinstance(part, _MADE_OF)):
            raise Blocked(f"{shown(program, test)} may be another answer in front of the loop", test)
    others = [node for each in loop.body for node in own_nodes(each) if node not in {*ast.walk(test)}]
    if drawn := [each for each in others if draws(program, each) and not draws_on_device(program, each)]:
        raise Blocked("each step draws something else, too", drawn[0])


def _given(program: Program, loop: PlainLoop, choice: _Choice) -> str:
    graph = program.get(Flow).graph(loop)
    for each in choice.asked:
        for name in (node for node in ast.walk(each.forced) if isinstance(node, ast.Name)):
            is_before = not any(graph.is_within(value, loop) for value in graph.reaching(name))
            if is_before and program.value(name).kind is Kind.TENSOR:
                return name.id
    raise Blocked("no given tensor tells the device", loop)


def _check_tensors(made: Program, choice: _Choice) -> None:
    for value in (value for each in choice.asked for value in (each.forced, each.own)):
        if made.value(value).kind is not Kind.TENSOR:
            raise Blocked(f"{shown(made, value)} is not known to be a tensor", value)
        for node in (node for node in ast.walk(value) if isinstance(node, ast.Call)):
            entry = entry_of(made, node)
            if made.qualified(node.func) not in _WRAPPERS and (entry is None or entry.writes or entry.does("random")):
                raise Blocked(f"{shown(made, node)} may do more than compute", node)


def _check_unwritten(program: Program, loop: PlainLoop, choice: _Choice) -> None:
    points = program.get(Memory).points_to(loop)
    for value in (value for each in choice.asked for value in (each.forced, each.own)):
        if any(write.reaches(points.of(value)) and is_of_step(program, write) for write in [*points.writes]):
            raise Blocked(f"{shown(program, value)} may be written to in place", value)
