"""Lifts a loop that stands in a step, as over the layers of a stack: it becomes the loop around all steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import names_in
from perflint.transforms.operations import new
from perflint.transforms.template import assignment, reference, statements
from perflint.transforms.vectorize.choices import Lines
from perflint.transforms.vectorize.counts import count_of
from perflint.transforms.vectorize.lines import Line, placed
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Layer, Scope, tensor
from perflint.transforms.vectorize.seen import starts_of
from perflint.transforms.vectorize.states import leave
from perflint.transforms.vectorize.steps import Carried, Same, State, Steps, is_named


def lift_layers(scope: Scope, node: ast.For, lines: Lines) -> Iterator[Line]:
    """The loop around what `lines` makes of its body; raises Blocked."""
    if node.orelse or scope.layer is not None or _stored(node) & {*names_in(node.target)}:
        raise Blocked("there is another loop in it", node)
    layer = _bound(scope, node, Layer(""))
    below = _below(scope, node, layer)
    entries = {name: _entry(scope, name, node) for name in _handed_up(scope, node)}
    for name, entry in [*entries.items(), *below.items()]:
        if not is_named(entry.code, name):
            yield Line(node, (assignment(name, entry.code),), last=node.lineno)
        entries[name] = replace(entry, code=reference(name), dense=False, own=False, fresh=False, of="")
    scope.values.update({name: entry for name, entry in entries.items() if name not in below})
    consumed = set(scope.draft.consumed)
    axis = next((entry.axis for entry in entries.values() if entry.axis in (0, 1)), None)
    body = [*lines(replace(scope, layer=replace(layer, axis=axis)), node.body)]
    body += [
        Line(node.body[-1], (each,))
        for name, entry in entries.items()
        if name not in below
        for each in _handed(scope, name, entry, node)
    ]
    if around := sorted(path for path in scope.draft.consumed - consumed if f"[{layer.index or None}]" not in path):
        raise Blocked(f"`{around[0]}` goes around in the loop in it", node)
    loop = new(ast.For(node.target, node.iter, placed(body) or statements("pass"), []))
    yield Line(node, (loop,), last=node.iter.end_lineno or node.lineno)
    leave(scope, layer, lambda path: _fills(scope, node, layer, path, below), node)


def _bound(scope: Scope, node: ast.For, layer: Layer) -> Layer:
    """Give the targets of the loop their values, which are the same in every step; raises Blocked."""
    walked, target = node.iter, node.target
    if scope.varies(walked):
        raise Blocked("there is another loop in it", node)
    _check_walked(scope, walked)
    name = scope.program.qualified(walked.func) if isinstance(walked, ast.Call) else ""
    for part in ast.walk(target):
        if isinstance(part, ast.Name):
            scope.values[part.id] = Same(reference(part.id), scope.rank(part))
        elif not isinstance(part, ast.Tuple | ast.expr_context):
            raise Blocked("the loop's targets are no plain names", target)
    counted = target.elts[0] if isinstance(target, ast.Tuple) and name == "builtins.enumerate" else target
    if isinstance(walked, ast.Call) and name in ("builtins.range", "builtins.enumerate") and not walked.keywords:
        first = integer(walked.args[0]) if name == "builtins.range" and len(walked.args) == 2 else 0
        is_plain = len(walked.args) == 1 or (name == "builtins.range" and len(walked.args) == 2)
        if isinstance(counted, ast.Name) and is_plain and first is not None and first >= 0:
            scope.values[counted.id] = Same(reference(counted.id), 0, is_number=True)
            return replace(layer, index=counted.id, first=first, is_above=first > 0)
    return layer


def _check_walked(scope: Scope, walked: ast.expr) -> None:
    """Raise Blocked unless what the loop walks is the same in every step."""
    name = scope.program.qualified(walked.func) if isinstance(walked, ast.Call) else ""
    if isinstance(walked, ast.Call) and name in ("builtins.enumerate", "builtins.zip") and not walked.keywords:
        for each in walked.args:
            _check_walked(scope, each)
    else:
        invariant(scope, walked)


def _stored(node: ast.For) -> set[str]:
    parts = (part for statement in node.body for part in ast.walk(statement))
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _handed_up(scope: Scope, node: ast.For) -> list[str]:
    """The variables that one layer, or what is in front of all, hands to the next."""
    inside = {part for statement in node.body for part in ast.walk(statement)}
    stored = _stored(node)
    around = scope.program.function_of(node) or scope.program.tree
    uses = (part for part in ast.walk(around) if isinstance(part, ast.Name) and part.id in stored)
    found = {use.id for use in uses if (made := scope.facts.flow.definitions(use)) & inside and made - inside}
    return sorted(found)


def _entry(scope: Scope, name: str, node: ast.For) -> Steps:
    """What the first layer gets as `name`; raises Blocked."""
    found = scope.values.get(name, Carried(name))
    value = tensor(found, node.iter)
    if not isinstance(value, Steps):
        raise Blocked(f"`{name}` is no step of a sequence in front of the loop in it", node)
    return value


def _handed(scope: Scope, name: str, entry: Steps, node: ast.For) -> Iterator[ast.stmt]:
    """What gives `name` the value that the next layer gets; raises Blocked."""
    value = tensor(scope.values.get(name, Carried(name)), node.iter)
    if not isinstance(value, Steps) or value.kept is not entry.kept:
        raise Blocked(f"`{name}` is another sort of value in the next layer", node)
    value = value if value.kept and value.axis == entry.axis else value.at(entry.axis)
    if value.least < entry.least or value.most > entry.most:
        raise Blocked(f"`{name}` is not known to have as many axes in the next layer", node)
    if not is_named(value.code, name):
        yield assignment(name, value.code)
    scope.values[name] = entry


def _below(scope: Scope, node: ast.For, layer: Layer) -> dict[str, Steps]:
    """What the layer in front of a loop that begins at the second one put out, by the name that the loop has for it."""
    found: dict[str, Steps] = {}
    for part in ast.walk(node):
        if layer.first and isinstance(part, ast.Subscript) and isinstance(part.slice, ast.BinOp):
            base = scope.read(part.value)
            state = scope.values.get(f"{base.path}[{layer.first - 1}]") if isinstance(base, Carried) else None
            if isinstance(base, Carried) and isinstance(state, State) and state.is_output and state.outputs:
                found[scope.draft.outputs_of(f"{base.path}[{layer.index}]")] = state.outputs
    return found


def _fills(scope: Scope, node: ast.For, layer: Layer, path: str, below: dict[str, Steps]) -> bool:
    """Does the loop walk the whole list, so that its last item is of the top layer?"""
    counts = {count_of(scope, node.iter), *(count_of(scope, start) for start in starts_of(scope, path))}
    is_begun = not layer.first or scope.draft.outputs_of(f"{path}[{layer.index}]") in below
    return len(counts) == 1 and "" not in counts and is_begun
