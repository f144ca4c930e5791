"""Lifts matrix products: time becomes one more batch axis, in front."""

from __future__ import annotations

import ast

from perflint.lift.scope import Scope
from perflint.lift.steps import Cannot, Same, Steps, atom, loosened

NAMES = frozenset({"matmul", "mm", "bmm"})
_RANKS = {"mm": 2, "bmm": 3}


def product(scope: Scope, values: list[Steps | Same], name: str, node: ast.expr) -> Steps:
    """The product of two tensors, called `name` ("matmul" for `@`), in all steps; raises Cannot."""
    if not scope.facts.torch:
        raise Cannot("`torch` is not imported by that name", node)
    if not any(isinstance(value, Steps) for value in values):
        raise Cannot("no step of a sequence is multiplied", node)
    wanted = _RANKS.get(name)
    left, right = (_fitted(value, wanted) for value in values)
    ranks = (left.rank, right.rank)
    text = f"{scope.facts.torch}.matmul({left.text}, {right.text})"
    if name == "@":
        text = f"{atom(left.text)} @ {atom(right.text)}"
    if isinstance(left, Steps) and isinstance(right, Same) and right.rank == 2:
        return left.narrowed(1).computed(text, dense=False)
    if None in ranks or min(rank for rank in ranks if rank is not None) < 2:
        raise Cannot("it is not known how many axes the factors have", node)
    same = [value for value in (left, right) if isinstance(value, Same)]
    steps = [value for value in (left, right) if isinstance(value, Steps)]
    if len({value.rank for value in steps}) > 1 or any((value.rank or 0) > (steps[0].rank or 0) for value in same):
        raise Cannot("the factors have more axes than the steps", node)
    return steps[0].computed(text)


def _fitted(value: Steps | Same, rank: int | None) -> Steps | Same:
    if isinstance(value, Same):
        return value if rank is None else Same(value.text, rank)
    front = loosened(value).at(0)
    return front if rank is None else front.narrowed(rank, rank)
