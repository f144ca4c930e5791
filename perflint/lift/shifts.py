"""Lifts what one step hands on to the next where that is a step of a given sequence: teacher forcing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import replace

from perflint.lift.scope import Scope
from perflint.lift.steps import Cannot, Lifted, Steps, atom
from perflint.program.walk import own_nodes

Lift = Callable[[Scope, ast.expr], Lifted]


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


def shifted_in(scope: Scope, node: ast.Name, lift: Lift) -> Steps:
    """The sequence that `node` walks, one step late: first what it is in front of the loop. Raises Cannot."""
    given = scope.handed_on[node.id]
    steps = lift(replace(scope, values=dict(scope.targets), handed_on={}, before=[]), given)
    if not isinstance(steps, Steps) or not scope.torch:
        raise Cannot(f"the step needs `{node.id}` of the step before", node)
    if steps.rank is None or _first_rank(scope, node) != steps.rank:
        raise Cannot(f"`{node.id}` is not known to have as many axes in the first step as later", node)
    scope.shifted.add(node.id)
    earlier = f"{atom(steps.text)}[{':, ' * steps.axis}:-1]"
    first = node.id if steps.kept else f"{node.id}.unsqueeze({steps.axis})"
    return replace(steps, text=f"{scope.torch}.cat(({first}, {earlier}), dim={steps.axis})", dense=True)


def _first_rank(scope: Scope, node: ast.Name) -> int | None:
    """How many axes the value has that the name has in front of the loop."""
    ranks = set()
    for definition in scope.flow.definitions(node) - scope.inside:
        statement = scope.program.statement_of(definition)
        plain = isinstance(statement, ast.Assign) and statement.targets[0] is definition
        ranks.add(scope.rank(statement.value) if plain and isinstance(statement, ast.Assign) else None)
    return next(iter(ranks)) if len(ranks) == 1 else None
