"""Lifts matrix products: time becomes one more batch axis, in front."""

from __future__ import annotations

import ast
import string

from perflint.transforms.blocked import Blocked
from perflint.transforms.template import expression
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.steps import Same, Steps, in_front

NAMES = frozenset({"matmul", "mm", "bmm", "dot"})
_RANKS = {"mm": 2, "bmm": 3}


def product(values: list[Steps | Same], name: str, node: ast.expr) -> Steps:
    """The product of two tensors, called `name` ("matmul" for `@`), in all steps; raises Blocked."""
    if not any(isinstance(value, Steps) for value in values):
        raise Blocked("no step of a sequence is multiplied", node)
    if name == "dot":
        return _dot(values)
    wanted = _RANKS.get(name)
    left, right = (_fitted(value, wanted) for value in values)
    ranks = (left.rank, right.rank)
    code = expression("{x} @ {y}", x=left.code, y=right.code)
    if isinstance(left, Steps) and isinstance(right, Same) and right.rank == 2:
        return left.narrowed(1).computed(code, fresh=True)
    if None in ranks or min(rank for rank in ranks if rank is not None) < 2:
        raise Blocked("it is not known how many axes the factors have", node)
    same = [value for value in (left, right) if isinstance(value, Same)]
    steps = [value for value in (left, right) if isinstance(value, Steps)]
    if len({value.rank for value in steps}) > 1 or any((value.rank or 0) > (steps[0].rank or 0) for value in same):
        raise Blocked("the factors have more axes than the steps", node)
    return steps[0].computed(code, fresh=True)


def _dot(values: list[Steps | Same]) -> Steps:
    """The product of two vectors."""
    first, second = (value.code for value in (_fitted(each, 1) for each in values))
    steps = [value for value in values if isinstance(value, Steps)]
    if len(steps) == 2:
        return Steps(expression("({x} * {y}).sum(1)", x=first, y=second), 0, 0, 0, own=True)
    matrix, vector = (first, second) if steps[0] is values[0] else (second, first)
    return Steps(expression("{x} @ {y}", x=matrix, y=vector), 0, 0, 0, own=True)


def by_letters(scope: Scope, formula: str, values: list[Steps | Same], node: ast.Call) -> Steps:
    """`torch.einsum("bd,de->be", x, w)`, with one more letter for time; raises Blocked."""
    inputs, arrow, output = formula.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if not arrow or "." in formula or len(letters) != len(values):
        raise Blocked("which axes are summed is not in sight", node)
    time = next(letter for letter in string.ascii_letters[19:] + string.ascii_letters if letter not in formula)
    fitted = [_fitted(value, len(names)) for value, names in zip(values, letters, strict=True)]
    if not any(isinstance(value, Steps) for value in fitted):
        raise Blocked("no step of a sequence is multiplied", node)
    terms = [time + names if isinstance(value, Steps) else names for value, names in zip(fitted, letters, strict=True)]
    rank = len(output)
    formula = f"{','.join(terms)}->{time}{output}"
    parts = [value.code for value in fitted]
    code = expression("{f}({formula}, {*x})", f=scope.code(node.func), formula=ast.Constant(formula), x=parts)
    return Steps(code, 0, rank, rank, own=True)


def _fitted(value: Steps | Same, rank: int | None) -> Steps | Same:
    if isinstance(value, Same):
        return value if rank is None else Same(value.code, rank)
    front = in_front(value)
    return front if rank is None else front.narrowed(rank, rank)
