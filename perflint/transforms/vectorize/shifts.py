"""Lifts what one step hands on to the next where that is a step of a given sequence: teacher forcing."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace

from perflint.syntax.walk import integer, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.template import expression
from perflint.transforms.vectorize.scope import Scope, counter
from perflint.transforms.vectorize.steps import Steps


def handed_on(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """The names that a body gives a value in one place, out of given sequences alone, and that value."""
    stores: dict[str, int] = {}
    for statement in body:
        for node in own_nodes(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stores[node.id] = stores.get(node.id, 0) + 1
    return {
        node.targets[0].id: node.value
        for node in body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        and stores[node.targets[0].id] == 1 and not _reads(node.value, stores)
    }  # fmt: skip


def _reads(node: ast.expr, names: Collection[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def shifted_in(scope: Scope, node: ast.Name) -> Steps:
    """The sequence that `node` walks, one step late: first what it is in front of the loop. Raises Blocked."""
    given = scope.facts.handed_on[node.id]
    steps = replace(scope, values=dict(scope.targets)).lift(given)
    if not isinstance(steps, Steps) or not scope.facts.torch:
        raise Blocked(f"the step needs `{node.id}` of the step before", node)
    if not _starts_alike(scope, node, given):
        raise Blocked(f"`{node.id}` is not known to have the same shape in the first step as later", node)
    scope.draft.shifted.add(node.id)
    first = "{h}" if steps.kept else "{h}.unsqueeze({axis})"
    # As long as the sequence, also where that has no steps.
    template = f"{{torch}}.cat(({first}, {{x}}), dim={{axis}})[{':, ' * steps.axis}:-1]"
    code = expression(template, torch=scope.facts.torch, h=node.id, x=steps.code, axis=steps.axis)
    return replace(steps, code=code, dense=not steps.axis, fresh=True)


def _starts_alike(scope: Scope, node: ast.Name, given: ast.expr) -> bool:
    """Has the name the shape in front of the loop that it has later: is it a step of the same sequence, or as large?"""
    first = scope.start(node)
    return first is not None and (_is_other_step(scope, first, given) or _is_as_large(scope, first, given))


def _is_other_step(scope: Scope, first: ast.expr, given: ast.expr) -> bool:
    """`x[:, 0]` beside `x[:, t]`."""
    if not isinstance(first, ast.Subscript) or not isinstance(given, ast.Subscript):
        return False
    one, other = (each.slice.elts if isinstance(each.slice, ast.Tuple) else [each.slice] for each in (first, given))
    if not scope.is_same(first.value, given.value) or len(one) != len(other):
        return False
    return all(
        (integer(a) is not None and counter(scope, b) is not None) or ast.dump(a) == ast.dump(b)
        for a, b in zip(one, other, strict=True)
    )


def _is_as_large(scope: Scope, first: ast.expr, given: ast.expr) -> bool:
    one, other = scope.facts.shapes.shape(first), scope.facts.shapes.shape(given)
    return one.rank is not None and one.first == other.first and all(one.first)
