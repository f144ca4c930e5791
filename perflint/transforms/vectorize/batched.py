"""Lifts what treats each item of a batch by itself, as convolutions do: all steps become one batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import expression
from perflint.transforms.vectorize.modules import Module
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.steps import MANY, Steps, in_front

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_SPATIAL = re.compile(r"(Conv|ConvTranspose|MaxPool|AvgPool|AdaptiveAvgPool|AdaptiveMaxPool)([123])d")
_OF_ANY_RANK = frozenset({"Flatten", "GroupNorm"})
_ARGUMENTS = {"MaxPool": 4, "AdaptiveMaxPool": 1}  # of them, a further one may ask for indices, too
POOLS = {
    f"{kind}{name}_pool{axes}d": axes for kind in ("", "adaptive_") for name in ("max", "avg") for axes in (1, 2, 3)
}


def is_batched(module: Module) -> bool:
    """Does it treat each item of a batch by itself, all axes of an item together?"""
    if module.name == "Flatten":
        return not module.built.args and not module.built.keywords
    return module.name in _OF_ANY_RANK or bool(_SPATIAL.fullmatch(module.name))


def as_batch(scope: Scope, node: ast.Call, parts: list[Module], value: Steps) -> Steps:
    """A module, or one after the other those of an `nn.Sequential`, on all items of all steps; raises Blocked."""
    for position, part in enumerate(parts):
        if not _stands_alone(scope.program, part) or (part.is_in_place and not any(map(_makes, parts[:position]))):
            raise Blocked(f"{shown(scope.program, node.func)} holds modules for which there is no rule", node)
    found = next((_SPATIAL.fullmatch(part.name) for part in parts if is_batched(part)), None)
    axes = int(found[2]) if found is not None else None
    if len(parts) > 1 and axes is not None and value.rank == axes + 1:
        raise Blocked(f"{shown(scope.program, node.func)} gets no batch", node)
    steps = folded(scope, node, axes, value, lambda code: scope.code(node, {node.args[0]: code}))
    return steps.with_axes(2 - steps.least, steps.code) if any(part.name == "Flatten" for part in parts) else steps


def folded(
    scope: Scope, node: ast.Call, axes: int | None, value: Steps, written: Callable[[ast.expr], ast.expr]
) -> Steps:
    """A call that works on so many axes at the end of each item, `written` with all items; raises Blocked."""
    scope.draft.changes.add(f"{shown(scope.program, node.func)} holds the results of all steps at once")
    if axes is not None and value.rank == axes + 1:
        front = in_front(value)
        return front.computed(written(front.code))
    if axes is not None and value.least == axes + 2:
        value = value.narrowed(axes + 2, axes + 2)
    if value.rank is None or value.rank < 2 or (axes is not None and value.rank != axes + 2):
        raise Blocked(f"{shown(scope.program, node.func)} is not known to get a batch", node)
    placed = in_front(value) if value.kept or value.axis > 1 else value
    whole = scope.bound(placed.code)
    batch = written(expression("{whole}.flatten(0, 1)", whole=whole))
    return placed.computed(expression("{x}.unflatten(0, {whole}.shape[:2])", x=batch, whole=whole))


def _stands_alone(program: Program, module: Module) -> bool:
    """Does each item give the same whatever other items there are?"""
    most = _ARGUMENTS.get(module.name[:-2], MANY)
    if len(module.built.args) > most or any(each.arg == "return_indices" for each in module.built.keywords):
        return False
    return is_batched(module) or module.is_pointwise or module.is_dropout or module.reads_last_axis(program)


def _makes(module: Module) -> bool:
    """Does it give memory of its own?"""
    return module.name in ("Linear", "GroupNorm") or bool(_SPATIAL.fullmatch(module.name))
