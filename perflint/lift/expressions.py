"""Lifts expressions: what they are when all steps are computed at once."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.lift import calls
from perflint.lift.products import product
from perflint.lift.scope import Scope, counter, tensor
from perflint.lift.shifts import shifted_in
from perflint.lift.slices import sliced
from perflint.lift.steps import MANY, Cannot, Carried, Index, Lifted, Parts, Same, State, Steps, atom, loosened
from perflint.program.values import Kind


def lift(scope: Scope, node: ast.expr) -> Lifted:
    """The value of `node` in all steps; raises Cannot."""
    found = scope.read(node) if isinstance(node, ast.Name | ast.Attribute) else None
    if isinstance(found, Carried) and isinstance(node, ast.Name) and node.id in scope.handed_on:
        return shifted_in(scope, node, lift)
    if found is not None:
        return found
    if isinstance(node, ast.Tuple | ast.List):
        return Parts(tuple(lift(scope, part) for part in node.elts))
    if isinstance(node, ast.Call):
        return calls.lift_call(scope, node, lift)
    if not scope.varies(node):
        return invariant(scope, node)
    if isinstance(node, ast.Subscript):
        return _subscript(scope, node)
    if isinstance(node, ast.BinOp):
        return _operator(scope, node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _negated(scope, node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and not isinstance(node.ops[0], _IDENTITIES):
        return pointwise(scope, node, [node.left, node.comparators[0]])
    raise Cannot(f"`{scope.program.segment(node)}` is not known to be the same for all steps at once", node)


_IDENTITIES = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


def invariant(scope: Scope, node: ast.expr) -> Same:
    """What is the same in every step, and may be worked out once."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and not calls.is_pure(scope, part):
            raise Cannot(f"`{scope.program.segment(part)}` may give something else each time", part)
        if isinstance(part, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr | ast.Lambda):
            raise Cannot("other code may run in each step", part)
    return scope.same(node)


def _subscript(scope: Scope, node: ast.Subscript) -> Lifted:
    base = lift(scope, node.value)
    if isinstance(base, State) and not base.is_output:
        return _state_part(scope, base, node)
    if isinstance(base, Same):
        kind = scope.program.value(node.value)
        if kind.kind is not Kind.TENSOR:
            raise Cannot(f"`{base.text}` is not known to be a tensor", node)
    return sliced(scope, node, tensor(base, node))


def _state_part(scope: Scope, state: State, node: ast.Subscript) -> Steps:
    """`hidden[-1]` or `hidden[0]` of an RNN of one layer: its outputs."""
    index = node.slice
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
        index = index.operand
    if state.outputs is None or not (isinstance(index, ast.Constant) and index.value in (0, 1)):
        tensor(state, node)
    if isinstance(node.slice, ast.Constant) and node.slice.value != 0:
        raise Cannot("the state of one layer has no other", node)
    assert state.outputs is not None
    return state.outputs


def _negated(scope: Scope, node: ast.UnaryOp) -> Steps:
    value = tensor(lift(scope, node.operand), node)
    assert isinstance(value, Steps)
    return value.named(f"-{atom(value.text)}")


def _operator(scope: Scope, node: ast.BinOp) -> Lifted:
    if index := counter(scope, node):
        return index
    if isinstance(node.op, ast.MatMult):
        return product(scope, [tensor(lift(scope, each), each) for each in (node.left, node.right)], "@", node)
    return pointwise(scope, node, [node.left, node.right])


def pointwise(scope: Scope, node: ast.expr, operands: list[ast.expr]) -> Steps:
    """An operation on each number by itself, whose operands broadcast."""
    values = {operand: tensor(lift(scope, operand), operand) for operand in operands}
    fitted = broadcast(list(values.values()), node)
    texts = {
        operand: new.text if new.text == scope.program.segment(operand) else atom(new.text)
        for operand, new in zip(values, fitted, strict=True)
    }
    text = scope.text(node, texts)
    steps = [value for value in fitted if isinstance(value, Steps)]
    widest = max(steps, key=lambda value: value.least)
    most = MANY if any(value.rank is None for value in fitted) else widest.least
    only = len(steps) == 1 and all(value.is_number for value in fitted if isinstance(value, Same))
    widest = replace(widest, most=widest.most if only else most)
    return widest.computed(text, dense=all(value.dense for value in steps))


def broadcast(values: list[Steps | Same], node: ast.expr) -> list[Steps | Same]:
    """`values` so that they broadcast over all steps as they do in one; raises Cannot."""
    steps = [value for value in values if isinstance(value, Steps)]
    if all(isinstance(value, Same) and value.is_number for value in values if value not in steps) and len(steps) == 1:
        return values
    if any(value.kept for value in steps) and not all(value.kept and value.axis == steps[0].axis for value in steps):
        values = [loosened(value) if isinstance(value, Steps) else value for value in values]
        steps = [value for value in values if isinstance(value, Steps)]
    if len({value.of for value in steps}) == 1 and steps[0].of and len(steps) == len(values):
        return [value.at(steps[0].axis) for value in steps]
    if steps[0].rank is None or len({value.rank for value in steps}) > 1:
        return _in_front(values, steps, node)
    axis = steps[0].axis
    rank = steps[0].rank
    assert rank is not None
    fitted: list[Steps | Same] = []
    for value in values:
        if isinstance(value, Steps):
            fitted.append(value.at(axis))
        elif value.is_number or (
            value.rank is not None and value.rank <= rank - axis - (1 if value_kept(steps) else 0)
        ):
            fitted.append(value)
        elif value.rank is None or value.rank > rank or value_kept(steps):
            raise Cannot(f"it is not known how `{value.text}` broadcasts", node)
        else:
            fitted.append(replace(value, text=f"{atom(value.text)}.unsqueeze({axis - rank - 1})"))
    return fitted


def value_kept(steps: list[Steps]) -> bool:
    """Do the steps keep their axis?"""
    return any(value.kept for value in steps)


def _in_front(values: list[Steps | Same], steps: list[Steps], node: ast.expr) -> list[Steps | Same]:
    """With time in front of all other axes, which needs fewer facts."""
    if len(steps) > 1 or steps[0].kept:
        raise Cannot("it is not known how many axes the operands have", node)
    fitted: list[Steps | Same] = []
    for value in values:
        if isinstance(value, Steps):
            fitted.append(value.at(0))
        elif value.is_number or (value.rank is not None and value.rank <= steps[0].least):
            fitted.append(value)
        else:
            raise Cannot(f"it is not known how `{value.text}` broadcasts", node)
    return fitted


__all__ = ["Index", "lift", "pointwise"]
