"""Lifts what a step chooses by a test whose answer is the same in all steps: the choice stays, of all steps at once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from perflint.analysis.values.shapes.shape import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.text import atom
from perflint.transforms.vectorize.lines import Line
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.steps import Lifted, Parts, State, Steps

Lines = Callable[[Scope, list[ast.stmt]], Iterator[Line]]


def lift_choice(scope: Scope, node: ast.If, lines: Lines) -> Iterator[Line]:
    """`if i > 0: ...` in a loop over layers; raises Blocked."""
    if scope.layer is None or scope.varies(node.test):
        raise Blocked("a test is made in each step", node)
    test, above = invariant(scope, node.test).text, _above(scope, node.test)
    branches = {True: node.body, False: node.orelse}
    before, axis = dict(scope.values), scope.layer.axis
    written: dict[bool, list[Line]] = {}
    values: dict[bool, dict[str, Lifted]] = {}
    for answer in (True, False) if above is not True else (False, True):  # the first layer, which tells the axis
        _set(scope, before)
        written[answer] = [*lines(_branch(scope, branches[answer], axis, is_above=answer is above), branches[answer])]
        values[answer] = dict(scope.values)
        axis = axis if axis is not None else _axis(before, values[answer])
    for answer in (True, False):
        written[answer] += [
            Line(node, (text,), head=node.lineno) for text in _named(values[answer], values[not answer])
        ]
    _set(scope, _merged(values[True], values[False]))
    yield Line(node, (f"if {test}:",), head=node.test.end_lineno or node.lineno)
    yield from _block(node, written[True])
    if any(line.texts for line in written[False]):
        yield Line(node, ("else:",), head=node.orelse[0].lineno - 1 if node.orelse else node.lineno)
        yield from _block(node, written[False])


def chosen(scope: Scope, node: ast.IfExp) -> Steps:
    """`x[:, t] if i == 0 else h[i - 1]`; raises Blocked."""
    if scope.varies(node.test):
        raise Blocked("a test is made in each step", node)
    hoisted = len(scope.draft.before)
    test, above = invariant(scope, node.test).text, _above(scope, node.test)
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
    either = _either(replace(yes, text=""), replace(no, text=""))
    assert either is not None
    return replace(either, text=f"{atom(yes.text)} if {test} else {atom(no.text)}")


def _set(scope: Scope, values: dict[str, Lifted]) -> None:
    scope.values.clear()
    scope.values.update(values)


def _branch(scope: Scope, body: list[ast.stmt], axis: int | None, *, is_above: bool) -> Scope:
    inner = _inner(scope, axis, is_above=is_above)
    if not body or inner.layer is None:
        return inner
    newline = "\n" + scope.program.source.indentation(body[0].lineno)
    return replace(inner, layer=replace(inner.layer, newline=newline))


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


def _block(node: ast.If, lines: list[Line]) -> Iterator[Line]:
    yield from (line.deeper() for line in lines)
    if not any(line.texts for line in lines):
        yield Line(node, ("pass",), depth=1, head=node.lineno)


def _named(values: dict[str, Lifted], others: dict[str, Lifted]) -> Iterator[str]:
    """What gives a variable the state that it stands for, where it is no state in the other branch."""
    for path, value in values.items():
        if isinstance(value, State) and value.outputs and value.is_output and isinstance(others.get(path), Steps):
            values[path] = replace(value.outputs, text=path)
            yield f"{path} = {value.outputs.text}"


def _merged(yes: dict[str, Lifted], no: dict[str, Lifted]) -> dict[str, Lifted]:
    """What is known behind both branches: what they have in common."""
    both = {path: _common(value, no[path]) for path, value in yes.items() if path in no}
    return {path: value for path, value in both.items() if value is not None}


def _common(one: Lifted, other: Lifted) -> Lifted | None:
    if one == other:
        return one
    if isinstance(one, Steps) and isinstance(other, Steps):
        return _either(one, other)
    if isinstance(one, State) and isinstance(other, State) and one.path == other.path:
        if one.outputs is None or other.outputs is None or one.is_output is not other.is_output:
            return None
        outputs = _either(one.outputs, other.outputs)
        return None if outputs is None or one.last != other.last else replace(one, outputs=outputs)
    if isinstance(one, Parts) and isinstance(other, Parts) and len(one.items) == len(other.items):
        items = [_common(a, b) for a, b in zip(one.items, other.items, strict=True)]
        return Parts(tuple(each for each in items if each is not None)) if None not in items else None
    return None


def _either(one: Steps, other: Steps) -> Steps | None:
    """Steps that are the one or the other; None where they don't stand alike."""
    if (one.text, one.axis, one.kept) != (other.text, other.axis, other.kept):
        return None
    least, most = min(one.least, other.least), max(one.most, other.most)
    return replace(one, least=least, most=most, own=one.own and other.own, dense=False, fresh=False, of="")
