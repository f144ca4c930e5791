"""Joins the places of a tensor behind a branch that moves it to the device if there is one."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from perflint.analysis.values.values import GUESSED, Kind, Place, Value, join
from perflint.syntax.walk import path_of


def moved_by_choice(
    node: ast.If, before: Mapping[str, Value], then: Mapping[str, Value], other: Mapping[str, Value]
) -> dict[str, Value]:
    """The tensors that a branch moves, as in `if use_cuda: x = x.cuda()`: on the device, wherever one is used."""
    moved: dict[str, Value] = {}
    for name, value in before.items():
        a, b = then.get(name, value), other.get(name, value)
        if value.is_blank:
            found = _moved_alone(value, a, b)
            if found is not None and _remakes(node.body if found is a else node.orelse, name):
                moved[name] = found
            continue
        if a is b or not value.kind is a.kind is b.kind is Kind.TENSOR or value.on_device:
            continue
        if a.on_device is not b.on_device and _remakes(node.body if a.on_device else node.orelse, name):
            moved[name] = join(a, b)._replace(place=Place.DEVICE)
    return moved


def _moved_alone(before: Value, a: Value, b: Value) -> Value | None:
    """What one branch makes of something unknown, which `x.cuda()` tells is a tensor, where the other leaves it."""
    alone = a if b is before else b if a is before else None
    return alone if alone is not None and alone.on_device and alone.name != GUESSED else None


def _remakes(block: Sequence[ast.stmt], name: str) -> bool:
    """Does a statement of the block make a new value of `name` out of its old one?"""
    return any(
        isinstance(statement, ast.Assign) and any(path_of(part) == name for part in ast.walk(statement.value))
        for statement in block
    )
