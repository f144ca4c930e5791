"""The batching rule of a loop over layers in a step: it stays, around all steps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from perflint.transforms.blocked import Blocked
from perflint.transforms.names import names_in
from perflint.transforms.operations import new
from perflint.transforms.template import assignment, reference, statements
from perflint.transforms.vectorize.invariants import check_invariant
from perflint.transforms.vectorize.scope import Line, Scope, placed, tensor
from perflint.transforms.vectorize.states import leave
from perflint.transforms.vectorize.values import (
    Batched,
    Carried,
    Invariant,
    is_named,
)

Lines = Callable[[Scope, list[ast.stmt]], Iterator[Line]]


def lift_layers(scope: Scope, node: ast.For, lines: Lines) -> Iterator[Line]:
    """The loop around what `lines` makes of its body; raises Blocked."""
    if node.orelse or scope.layer is not None or _names_stored(node) & {*names_in(node.target)}:
        raise Blocked("there is another loop in it", node)
    layer = _bind_targets(scope, node)
    entries = {name: _initial_value(scope, name, node) for name in _loop_carried(scope, node)}
    for name, entry in entries.items():
        if not is_named(entry.code, name):
            yield Line(node, (assignment(name, entry.code),), last=node.lineno)
        entries[name] = replace(entry, code=reference(name), dense=False, own=False, fresh=False, of="")
    scope.values.update(entries)
    consumed = set(scope.draft.consumed)
    body = [*lines(replace(scope, layer=layer), node.body)]
    for name, entry in entries.items():
        body += [Line(node.body[-1], (each,)) for each in _back_edge_value(scope, name, entry, node)]
    if around := sorted(path for path in scope.draft.consumed - consumed if f"[{layer or None}]" not in path):
        raise Blocked(f"`{around[0]}` goes around in the loop in it", node)
    loop = new(ast.For(node.target, node.iter, placed(body) or statements("pass"), []))
    yield Line(node, (loop,), last=node.iter.end_lineno or node.lineno)
    leave(scope, layer, node)


def _bind_targets(scope: Scope, node: ast.For) -> str:
    """Give the targets of the loop their values, which are the same in every step; what counts them. Raises Blocked."""
    walked, target = node.iter, node.target
    if scope.varies(walked):
        raise Blocked("there is another loop in it", node)
    check_invariant(scope, *_iterables(scope, walked))
    name = scope.program.qualified(walked.func) if isinstance(walked, ast.Call) else ""
    for part in ast.walk(target):
        if isinstance(part, ast.Name):
            scope.values[part.id] = Invariant(reference(part.id), scope.rank(part))
        elif not isinstance(part, ast.Tuple | ast.expr_context):
            raise Blocked("the loop's targets are no plain names", target)
    counted = target.elts[0] if isinstance(target, ast.Tuple) and name == "builtins.enumerate" else target
    is_plain = isinstance(walked, ast.Call) and len(walked.args) == 1 and not walked.keywords
    if not is_plain or not isinstance(counted, ast.Name) or name not in ("builtins.range", "builtins.enumerate"):
        return ""
    scope.values[counted.id] = Invariant(reference(counted.id), 0, is_number=True)
    return counted.id


def _iterables(scope: Scope, walked: ast.expr) -> Iterator[ast.expr]:
    """What a loop walks, which `enumerate` or `zip` may put together."""
    name = scope.program.qualified(walked.func) if isinstance(walked, ast.Call) else ""
    if isinstance(walked, ast.Call) and name in ("builtins.enumerate", "builtins.zip") and not walked.keywords:
        for each in walked.args:
            yield from _iterables(scope, each)
    else:
        yield walked


def _names_stored(node: ast.For) -> set[str]:
    parts = (part for statement in node.body for part in ast.walk(statement))
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _loop_carried(scope: Scope, node: ast.For) -> list[str]:
    """The variables that one layer, or what is before all, hands to the next, or to what is after all."""
    inside = {part for statement in node.body for part in ast.walk(statement)}
    uses = (use for name in _names_stored(node) for use in scope.uses(name))
    return sorted({use.id for use in uses if (made := scope.flow.definitions(use)) & inside and made - inside})


def _initial_value(scope: Scope, name: str, node: ast.For) -> Batched:
    """What the first layer gets as `name`; raises Blocked."""
    value = tensor(scope.values.get(name, Carried(name)), node.iter)
    if not isinstance(value, Batched):
        raise Blocked(f"`{name}` is no step of a sequence before the loop in it", node)
    return value


def _back_edge_value(scope: Scope, name: str, entry: Batched, node: ast.For) -> Iterator[ast.stmt]:
    """What gives `name` the value that the next layer gets; raises Blocked."""
    value = tensor(scope.values.get(name, Carried(name)), node.iter)
    if not isinstance(value, Batched) or value.kept is not entry.kept:
        raise Blocked(f"`{name}` is another sort of value in the next layer", node)
    value = value if value.kept and value.axis == entry.axis else value.at(entry.axis)
    if value.least < entry.least or value.most > entry.most:
        raise Blocked(f"`{name}` is not known to have as many axes in the next layer", node)
    if not is_named(value.code, name):
        yield assignment(name, value.code)
    scope.values[name] = entry
