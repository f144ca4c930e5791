"""The batching rules of what broadcasts, and of matrix products, of which time becomes one more batch axis."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.transforms.blocked import Blocked
from perflint.transforms.template import expression
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Invariant, written

_NEED_NO_RESULT = (ast.Add, ast.Sub, ast.Mult, ast.Div)  # for their gradients
_RANKS = {"mm": 2, "bmm": 3}

Operands = list[Batched | Invariant]


def pointwise(scope: Scope, node: ast.expr, operands: list[ast.expr]) -> Batched:
    """An operation on each number by itself, whose operands broadcast; raises Blocked."""
    values = {operand: scope.tensor(operand) for operand in operands}
    fitted = _broadcast(list(values.values()), node)
    code = scope.code(node, {operand: each.code for operand, each in zip(values, fitted, strict=True)})
    steps = _batched(fitted)
    widest = max(steps, key=lambda value: value.least)
    most = MANY if any(value.rank is None for value in fitted) else widest.least
    only = len(steps) == 1 and all(value.is_number for value in fitted if isinstance(value, Invariant))
    widest = replace(widest, most=widest.most if only else most)
    fresh = isinstance(node, ast.BinOp) and isinstance(node.op, _NEED_NO_RESULT)
    return widest.computed(code, dense=all(value.dense for value in steps), fresh=fresh)


def _batched(values: Operands) -> list[Batched]:
    return [value for value in values if isinstance(value, Batched)]


def _broadcast(values: Operands, node: ast.expr) -> Operands:
    """`values` so that they broadcast over all steps as they do in one; raises Blocked."""
    steps = _batched(values)
    if not steps:
        raise Blocked("sizes of a step are combined", node)
    others = [value for value in values if isinstance(value, Invariant) and not value.is_number]
    if steps[0].least < 1 and others:
        raise Blocked("a step of no axes leaves the type of the result to the other operand", node)
    if not others and len(steps) == 1:
        return values
    if any(value.kept for value in steps) and not all(value.kept and value.axis == steps[0].axis for value in steps):
        values = [value.loosened() if isinstance(value, Batched) else value for value in values]
        steps = _batched(values)
    if len({value.of for value in steps}) == 1 and steps[0].of and len(steps) == len(values):
        return [value.at(steps[0].axis) for value in steps]
    axis, rank, behind = steps[0].axis, steps[0].rank, steps[0].axes_after
    if rank is None or len({value.rank for value in steps}) > 1:  # as the first axis, time needs fewer facts
        if len(steps) > 1 or steps[0].kept:
            raise Blocked("it is not known how many axes the operands have", node)
        axis, rank, behind = 0, None, steps[0].least
    fitted: Operands = []
    for value in values:
        if isinstance(value, Batched):
            fitted.append(value.at(axis))
        elif value.is_number or (value.rank is not None and value.rank <= behind):
            fitted.append(value)
        elif value.rank is None or rank is None or value.rank > rank or steps[0].kept:
            raise Blocked(f"it is not known how `{written(value)}` broadcasts", node)
        else:  # with an axis where a step has time
            code = expression("{x}.unsqueeze({axis})", x=value.code, axis=axis - rank - 1)
            fitted.append(replace(value, code=code))
    return fitted


def product(values: Operands, name: str, node: ast.expr) -> Batched:
    """The product of two tensors, called `name` ("matmul" for `@`), in all steps; raises Blocked."""
    if not _batched(values):
        raise Blocked("no step of a sequence is multiplied", node)
    left, right = (_fitted(value, _RANKS.get(name)) for value in values)
    ranks = (left.rank, right.rank)
    code = expression("{x} @ {y}", x=left.code, y=right.code)
    if isinstance(left, Batched) and isinstance(right, Invariant) and right.rank == 2:
        return left.narrowed(1).computed(code, fresh=True)
    if None in ranks or min(rank for rank in ranks if rank is not None) < 2:
        raise Blocked("it is not known how many axes the factors have", node)
    steps = _batched([left, right])
    if len({value.rank for value in steps}) > 1 or any((rank or 0) > (steps[0].rank or 0) for rank in ranks):
        raise Blocked("the factors have more axes than the steps", node)
    return steps[0].computed(code, fresh=True)


def _fitted(value: Batched | Invariant, rank: int | None) -> Batched | Invariant:
    if isinstance(value, Invariant):
        return value if rank is None else Invariant(value.code, rank)
    front = value.in_front()
    return front if rank is None else front.narrowed(rank, rank)
