"""Lifts what a step chooses by a test whose answer is the same in all steps: the choice stays, of all steps at once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import new, same_code
from perflint.transforms.template import assignment, expression, statements
from perflint.transforms.vectorize.lines import Line, placed
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.steps import Lifted, Parts, State, Steps, alike

Lines = Callable[[Scope, list[ast.stmt]], Iterator[Line]]


def lift_choice(scope: Scope, node: ast.If, lines: Lines) -> Iterator[Line]:
    """`if i > 0: ...` in a loop over layers; raises Blocked."""
    if scope.layer is None or scope.varies(node.test):
        raise Blocked("a test is made in each step", node)
    test, above = invariant(scope, node.test).code, _above(scope, node.test)
    branches = {True: node.body, False: node.orelse}
    before, axis = dict(scope.values), scope.layer.axis
    written: dict[bool, list[Line]] = {}
    values: dict[bool, dict[str, Lifted]] = {}
    for answer in (True, False) if above is not True else (False, True):  # the first layer, which tells the axis
        _set(scope, before)
        written[answer] = [*lines(_inner(scope, axis, is_above=answer is above), branches[answer])]
        values[answer] = dict(scope.values)
        axis = axis if axis is not None else _axis(before, values[answer])
    for answer in (True, False):
        named = [*_named(values[answer], values[not answer])]
        last = branches[answer][-1].end_lineno if branches[answer] else node.lineno
        written[answer] += [Line(node, (each,), last=last or node.lineno) for each in named]
    _set(scope, _merged(values[True], values[False]))
    body, orelse = placed(written[True]) or statements("pass"), placed(written[False])
    chosen = new(ast.If(test, body, orelse))
    yield Line(node, (chosen,), last=node.test.end_lineno or node.lineno)


def chosen(scope: Scope, node: ast.IfExp) -> Steps:
    """`x[:, t] if i == 0 else h[i - 1]`; raises Blocked."""
    if scope.varies(node.test):
        raise Blocked("a test is made in each step", node)
    hoisted = len(scope.draft.before)
    test, above = invariant(scope, node.test).code, _above(scope, node.test)
    found: dict[bool, Steps] = {}
    axis = None
    for answer in (True, False) if above is not True else (False, True):
        part = node.body if answer else node.orelse
        value = tensor(_inner(scope, axis, is_above=answer is above).lift(part), part)
        if not isinstance(value, Steps):
            raise Blocked("one of the choices is no step of a sequence", node)
        found[answer], axis = value, axis if axis is not None else value.axis
    if len(scope.draft.before) > hoisted or found[True].kept is not found[False].kept:
        raise Blocked("the choices are not of one form", node)
    yes = found[True]
    no = found[False] if yes.kept and yes.axis == found[False].axis else found[False].at(yes.axis)
    either = _either(yes, replace(no, code=yes.code))
    assert either is not None
    return replace(either, code=expression("{yes} if {test} else {no}", yes=yes.code, test=test, no=no.code))


def _set(scope: Scope, values: dict[str, Lifted]) -> None:
    scope.values.clear()
    scope.values.update(values)


def _inner(scope: Scope, axis: int | None, *, is_above: bool) -> Scope:
    """The scope of one answer, by which the layer may be known not to be the first."""
    layer = scope.layer
    if layer is None:
        return scope
    known = layer.axis if layer.axis is not None else axis
    return replace(scope, layer=replace(layer, is_above=layer.is_above or is_above, axis=known))


def _above(scope: Scope, test: ast.expr) -> bool | None:
    """The answer that tells that the layer is not the first; None where none does."""
    index = scope.layer.index if scope.layer is not None else ""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _above(scope, test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Name):
        return True if test.id == index and index else None
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or getattr(test.left, "id", "") != (index or None):
        return None
    operator, other = test.ops[0], integer(test.comparators[0])
    if other == 0 and isinstance(operator, ast.Eq | ast.NotEq | ast.Gt):
        return not isinstance(operator, ast.Eq)
    return True if other == 1 and isinstance(operator, ast.GtE) else None


def _axis(before: dict[str, Lifted], values: dict[str, Lifted]) -> int | None:
    """The axis of the steps that a branch computed."""
    changed = (value for path, value in values.items() if before.get(path) != value)
    found = (value.outputs if isinstance(value, State) else value for value in changed)
    return next((value.axis for value in found if isinstance(value, Steps)), None)


def _named(values: dict[str, Lifted], others: dict[str, Lifted]) -> Iterator[ast.stmt]:
    """What gives a variable the state that it stands for, where it is no state in the other branch."""
    for path, value in values.items():
        if isinstance(value, State) and value.outputs and value.is_output and isinstance(others.get(path), Steps):
            values[path] = replace(value.outputs, code=expression(path))
            yield assignment(path, value.outputs.code)


def _merged(yes: dict[str, Lifted], no: dict[str, Lifted]) -> dict[str, Lifted]:
    """What is known behind both branches: what they have in common."""
    both = {path: _common(value, no[path]) for path, value in yes.items() if path in no}
    return {path: value for path, value in both.items() if value is not None}


def _common(one: Lifted, other: Lifted) -> Lifted | None:
    if alike(one, other):
        return one
    if isinstance(one, Steps) and isinstance(other, Steps):
        return _either(one, other)
    if isinstance(one, State) and isinstance(other, State) and one.path == other.path:
        if one.outputs is None or other.outputs is None or one.is_output is not other.is_output:
            return None
        outputs = _either(one.outputs, other.outputs)
        return None if outputs is None or not _is_one(one.last, other.last) else replace(one, outputs=outputs)
    if isinstance(one, Parts) and isinstance(other, Parts) and len(one.items) == len(other.items):
        items = [_common(a, b) for a, b in zip(one.items, other.items, strict=True)]
        return Parts(tuple(each for each in items if each is not None)) if None not in items else None
    return None


def _is_one(one: ast.expr | None, other: ast.expr | None) -> bool:
    return one is other or (one is not None and other is not None and same_code(one, other))


def _either(one: Steps, other: Steps) -> Steps | None:
    """Steps that are the one or the other; None where they don't stand alike."""
    if not same_code(one.code, other.code) or (one.axis, one.kept) != (other.axis, other.kept):
        return None
    least, most = min(one.least, other.least), max(one.most, other.most)
    return replace(one, least=least, most=most, own=one.own and other.own, dense=False, fresh=False, of="")
