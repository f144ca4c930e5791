"""Draws before a loop over time which of its steps are forced, so that a CUDA graph can hold the loop."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Mapping, Sequence
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
from perflint.transforms.rewrite import Blocked, check_alone, of_torch, rewrite, taken_around

_PLAIN = (ast.Constant, ast.boolop, ast.unaryop, ast.cmpop, ast.operator, ast.expr_context)
_MADE_OF = (*_PLAIN, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.BinOp)
_ARGUMENTS = {"rand": 0, "random": 0, "random_sample": 0, "uniform": 2}  # of numpy's functions, for one number
_WRAPPERS = frozenset({"torch.autograd.Variable"})


def graphed_or_drawn(program: Program, loop: PlainLoop) -> Fix:
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
    """Where a step takes what is given, `forced`, or its own output, `own`; for a statement, to which variable."""

    place: ast.If | ast.IfExp
    forced: ast.expr
    own: ast.expr
    target: str = ""


@dataclass(frozen=True)
class _Choice:
    """What a step draws: its `test`, and the statement that names the answer, if one does; `names` are its alone."""

    test: ast.expr
    made: ast.Assign | None
    asked: tuple[_Asked, ...]
    names: frozenset[str] = frozenset()


def _drawn(program: Program, loop: PlainLoop) -> tuple[Program, tuple[ast.stmt, PlainLoop], Sequence[Operation]]:
    """The program with all steps' choices drawn before the loop, in order; where that is, and the changes.

    Raises Blocked without a reason: what keeps a graph from the loop as it stands is told instead.
    """
    counter, walked, first = _counter(program, loop)
    choice = _choice(program, loop)
    _check_test(program, loop, choice.test, counter)
    taken = taken_around(program, loop)
    taken.names.difference_update(choice.names)
    name, given = taken.fresh("forced"), _given(program, loop, choice)
    step = counter if counter in variables_in(choice.test) else "_"
    template = f"{{tensor}}([{{test}} for {step} in {{walked}}], dtype={{long}}, device={given}.device)"
    tensor, long = (of_torch(program, each, loop) for each in ("tensor", "long"))
    drawn = in_rows(expression(template, test=choice.test, walked=walked, tensor=tensor, long=long), FIT)
    chosen = f"{{stack}}(({{own}}, {{forced}}))[{name}[{{step}}]]"
    index = plus(reference(counter), -first)
    parts: dict[ast.AST, ast.AST | None] = {}
    operations: list[Operation] = [InsertBefore(loop, (assignment(name, drawn),))]
    for each in choice.asked:
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
        parts[choice.made] = None
    own = _changed(loop, parts)
    front = located(assignment(name, drawn), loop)
    made = program.with_statements(loop, [front, own])
    _check_tensors(program, made, loop, choice)
    return made, (front, own), operations


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


def _counter(program: Program, loop: PlainLoop) -> tuple[str, ast.expr, int]:
    call = program.call_of(loop.iter, "builtins.range") if isinstance(loop, ast.For) and not loop.orelse else None
    target = loop.target if isinstance(loop, ast.For) else None
    first = integer(call.args[0]) if call is not None and len(call.args) == 2 else 0
    is_plain = call is not None and len(call.args) < 3 and not call.keywords and first is not None
    if call is None or first is None or not is_plain or not isinstance(target, ast.Name):
        raise Blocked("")
    stored = (node for each in loop.body for node in own_nodes(each) if isinstance(node, ast.Name))
    is_changed = any(each.id == target.id and not isinstance(each.ctx, ast.Load) for each in stored)
    if is_changed or any(True for each in loop.body for _ in leaves(each)):
        raise Blocked("")
    return target.id, call, first


def _draws(program: Program, node: ast.AST) -> bool:
    return any(draws(program, each) and not draws_on_device(program, each) for each in ast.walk(node))


def _draws_number(program: Program, call: ast.Call) -> bool:
    head, _, name = program.qualified(call.func).rpartition(".")
    is_one = head == "numpy.random" and len(call.args) <= _ARGUMENTS.get(name, -1) and not call.keywords
    return is_one or (_draws(program, call) and program.value(call).kind is Kind.NUMBER)


def _choice(program: Program, loop: PlainLoop) -> _Choice:
    found: list[_Choice] = []
    for statement in loop.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and _is_test(program, statement.value):
            found.append(_named(program, loop, statement, target))
        for node in own_nodes(statement):
            if isinstance(node, ast.If | ast.IfExp) and _is_test(program, node.test):
                if node is not statement and not is_unconditional(program, node, statement):
                    raise Blocked("")
                found.append(_Choice(node.test, None, (_asked(program, loop, node, node.test),)))
    if len(found) != 1 or not found[0].asked:
        raise Blocked("")
    return found[0]


def _named(program: Program, loop: PlainLoop, made: ast.Assign, target: ast.Name) -> _Choice:
    graph = program.get(Flow).graph(loop)
    uses = graph.uses.get(target, ())
    is_read_elsewhere = target.id in graph.live_out(loop) | graph.shared | graph.captured.keys()
    if is_read_elsewhere or any([*graph.definitions(each)] != [graph.values[target]] for each in uses):
        raise Blocked("")
    asked = tuple(_asked(program, loop, program.parent(each), each) for each in uses)
    around = own_nodes(program.function_of(loop) or program.tree)
    named = [each for each in around if isinstance(each, ast.Name) and each.id == target.id]
    return _Choice(made.value, made, asked, frozenset({target.id} if len(named) == len(uses) + 1 else ()))


def _is_test(program: Program, node: ast.expr) -> bool:
    last = node.values[-1] if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else node
    return isinstance(last, ast.Compare) and _draws(program, node)


def _asked(program: Program, loop: PlainLoop, place: ast.AST | None, test: ast.expr) -> _Asked:
    around = itertools.takewhile(lambda each: each is not loop, program.ancestors(test))
    is_of_scope = any(isinstance(each, (*FUNCTIONS, *COMPREHENSIONS)) for each in around)
    if isinstance(place, ast.IfExp) and place.test is test and not is_of_scope:
        return _Asked(place, place.body, place.orelse)
    if isinstance(place, ast.If) and place.test is test and len(place.body) == 1 and len(place.orelse) < 2:
        target, forced = _assigned(place.body[0])
        other, own = _assigned(place.orelse[0]) if place.orelse else (target, reference(target))
        if target and other == target and forced is not None and own is not None and not is_of_scope:
            return _Asked(place, forced, own, target)
    raise Blocked("")


def _assigned(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return (target.id, statement.value) if isinstance(target, ast.Name) else ("", None)
    return "", None


def _check_test(program: Program, loop: PlainLoop, test: ast.expr, counter: str) -> None:
    """Raise Blocked unless it has the same answers, from the same random numbers, before the loop."""
    stored = {path_of(node) for node in own_nodes(loop) if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)}
    for part in ast.walk(test):
        is_call = isinstance(part, ast.Call) and _draws_number(program, part)
        is_name = isinstance(part, ast.Name | ast.Attribute) and path_of(part) not in stored - {counter, ""}
        if not (is_call or is_name or isinstance(part, _MADE_OF)):
            raise Blocked("")
    others = (node for each in loop.body for node in own_nodes(each) if node not in {*ast.walk(test)})
    if any(draws(program, each) and not draws_on_device(program, each) for each in others):
        raise Blocked("")


def _given(program: Program, loop: PlainLoop, choice: _Choice) -> str:
    graph = program.get(Flow).graph(loop)
    for name in (node for each in choice.asked for node in ast.walk(each.forced) if isinstance(node, ast.Name)):
        is_before = not any(graph.is_within(value, loop) for value in graph.reaching(name))
        if is_before and program.value(name).kind is Kind.TENSOR:
            return name.id
    raise Blocked("")


def _check_tensors(program: Program, made: Program, loop: PlainLoop, choice: _Choice) -> None:
    points = program.get(Memory).points_to(loop)
    for value in (value for each in choice.asked for value in (each.forced, each.own)):
        is_written = any(write.reaches(points.of(value)) and is_of_step(program, write) for write in [*points.writes])
        if made.value(value).kind is not Kind.TENSOR or is_written:
            raise Blocked("")
        for node in (node for node in ast.walk(value) if isinstance(node, ast.Call)):
            entry = entry_of(made, node)
            if made.qualified(node.func) not in _WRAPPERS and (entry is None or entry.writes or entry.does("random")):
                raise Blocked("")
