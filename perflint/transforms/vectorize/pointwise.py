"""Lifts operations on single numbers, whose operands broadcast over all steps as they do in one."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.transforms.blocked import Blocked
from perflint.transforms.template import expression
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.steps import MANY, Same, Steps, loosened, written

_NEED_NO_RESULT = (ast.Add, ast.Sub, ast.Mult, ast.Div)  # for their gradients


def pointwise(scope: Scope, node: ast.expr, operands: list[ast.expr]) -> Steps:
    """An operation on each number by itself, whose operands broadcast; raises Blocked."""
    values = {operand: tensor(scope.lift(operand), operand) for operand in operands}
    fitted = _broadcast(list(values.values()), node)
    code = scope.code(node, {operand: each.code for operand, each in zip(values, fitted, strict=True)})
    steps = [value for value in fitted if isinstance(value, Steps)]
    widest = max(steps, key=lambda value: value.least)
    most = MANY if any(value.rank is None for value in fitted) else widest.least
    only = len(steps) == 1 and all(value.is_number for value in fitted if isinstance(value, Same))
    widest = replace(widest, most=widest.most if only else most)
    fresh = isinstance(node, ast.BinOp) and isinstance(node.op, _NEED_NO_RESULT)
    return widest.computed(code, dense=all(value.dense for value in steps), fresh=fresh)


def _broadcast(values: list[Steps | Same], node: ast.expr) -> list[Steps | Same]:
    """`values` so that they broadcast over all steps as they do in one; raises Blocked."""
    steps = [value for value in values if isinstance(value, Steps)]
    if not steps:
        raise Blocked("sizes of a step are combined", node)
    if steps[0].least < 1 and any(isinstance(value, Same) and not value.is_number for value in values):
        raise Blocked("a step of no axes leaves the type of the result to the other operand", node)
    if all(isinstance(value, Same) and value.is_number for value in values if value not in steps) and len(steps) == 1:
        return values
    if any(value.kept for value in steps) and not all(value.kept and value.axis == steps[0].axis for value in steps):
        values = [loosened(value) if isinstance(value, Steps) else value for value in values]
        steps = [value for value in values if isinstance(value, Steps)]
    if len({value.of for value in steps}) == 1 and steps[0].of and len(steps) == len(values):
        return [value.at(steps[0].axis) for value in steps]
    axis, rank, behind = steps[0].axis, steps[0].rank, steps[0].behind
    if rank is None or len({value.rank for value in steps}) > 1:
        return _in_front(values, steps, node)
    fitted: list[Steps | Same] = []
    for value in values:
        if isinstance(value, Steps):
            fitted.append(value.at(axis))
        elif value.is_number or (value.rank is not None and value.rank <= behind):
            fitted.append(value)
        elif value.rank is None or value.rank > rank or steps[0].kept:
            raise Blocked(f"it is not known how `{written(value)}` broadcasts", node)
        else:
            code = expression("{x}.unsqueeze({axis})", x=value.code, axis=axis - rank - 1)
            fitted.append(replace(value, code=code))
    return fitted


def _in_front(values: list[Steps | Same], steps: list[Steps], node: ast.expr) -> list[Steps | Same]:
    """With time in front of all other axes, which needs fewer facts."""
    if len(steps) > 1 or steps[0].kept:
        raise Blocked("it is not known how many axes the operands have", node)
    fitted: list[Steps | Same] = []
    for value in values:
        if isinstance(value, Steps):
            fitted.append(value.at(0))
        elif value.is_number or (value.rank is not None and value.rank <= steps[0].least):
            fitted.append(value)
        else:
            raise Blocked(f"it is not known how `{written(value)}` broadcasts", node)
    return fitted
