"""Tells what the states of Cells are in front of a loop: variables, or the items of lists and tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.values.values import Kind
from perflint.transforms.blocked import Blocked
from perflint.transforms.vectorize.scope import Scope, given_by, root_of
from perflint.transforms.vectorize.seen import is_own_list, is_rebound

_Rank = int | None
_NO_TENSOR = -1


def check_firsts(scope: Scope, paths: tuple[str, ...], node: ast.AST, *, needs_rank: bool) -> None:
    """Raise Blocked unless the first states are tensors, in lists of their own, and batches where they must be."""
    for path in paths:
        if "[" in path and not is_rebound(scope, path) and not is_own_list(scope, root_of(path)):
            raise Blocked(f"`{root_of(path)}` is not known to be a list that nothing else looks at", node)
    ranks = [rank for path in paths for rank in _ranks_of(scope, path)]
    if any(rank != 2 for rank in ranks) and needs_rank:
        raise Blocked("the Cell's input is not known to be a batch", node)
    if not ranks or any(rank == _NO_TENSOR for rank in ranks):
        raise Blocked("the Cell's first state is not known to be a tensor", node)


def _ranks_of(scope: Scope, path: str) -> Iterator[_Rank]:
    """How many axes the tensors have that are found under `path` in front of the loop."""
    depth = path.count("[")
    for definition in scope.starts(root_of(path)):
        statement = scope.program.statement_of(definition) if isinstance(definition, ast.Name) else None
        value = given_by(statement, definition) if isinstance(statement, ast.Assign) else None
        if isinstance(value, ast.List) and not value.elts and isinstance(definition, ast.Name):
            value = ast.List(_appended(scope, definition))
        yield from _ranks(scope, value, depth) if value is not None else _unseen(scope, definition, depth)


def _appended(scope: Scope, name: ast.Name) -> list[ast.expr]:
    """What the list that starts empty as `name` gets in front of the loop."""
    bindings = scope.facts.flow.bindings(name)
    uses = [use for use in bindings.uses.get(name, ()) if use not in scope.facts.inside]
    above = [scope.program.parent(use) for use in uses]
    if any(isinstance(each, ast.AugAssign) or getattr(each, "attr", "append") != "append" for each in above):
        return []
    return [each for use in uses for each in scope.facts.shapes.elements(use)]


def _ranks(scope: Scope, value: ast.expr, depth: int) -> Iterator[_Rank]:
    """The ranks of the tensors that stand `depth` lists deep in `value`, or of those of a pair."""
    known = scope.program.value(value)
    if isinstance(value, ast.Tuple | ast.List | ast.ListComp) or _is_repeated(value):
        for item in _items(value):
            yield from _ranks(scope, item, depth - 1)
    elif known.kind is Kind.TENSOR and known.sure:
        rank = scope.rank(value)
        yield None if rank is None else rank - max(depth, 0)
    else:
        yield _NO_TENSOR


def _is_repeated(value: ast.expr) -> bool:
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.List)


def _items(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.Tuple | ast.List):
        return value.elts
    if isinstance(value, ast.ListComp):
        return [value.elt]
    return _items(value.left) if isinstance(value, ast.BinOp) else []


def _unseen(scope: Scope, definition: ast.AST, depth: int) -> Iterator[_Rank]:
    """Of a variable whose value is not in sight."""
    known = scope.program.value(definition)
    for _ in range(depth):
        known = known.item if known.kind is Kind.SEQUENCE and known.item is not None else known
    yield None if known.kind is Kind.TENSOR and known.sure else _NO_TENSOR
