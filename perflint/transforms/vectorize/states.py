"""Follows the states of RNNs: which one of a step the next one finds, under its own name or in a list."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace

from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.template import assignment, expression, reference, statement
from perflint.transforms.vectorize.axes import joined_axis
from perflint.transforms.vectorize.paths import appended, root_of
from perflint.transforms.vectorize.scope import Layer, Scope
from perflint.transforms.vectorize.values import Batched, Carried, Layers, Parts, State, Value


def is_left(values: Mapping[str, Value], path: str) -> bool:
    """Does the step after find under `path` what its own Cell left?"""
    base, _, index = path.removesuffix("]").rpartition("[")
    whole = values.get(base)
    if path not in values and isinstance(whole, Parts) and index.isdigit() and int(index) < len(whole.items):
        return is_of(whole.items[int(index)], path)
    return path in values and is_of(values[path], path)


def is_of(value: Value, path: str) -> bool:
    """Is it what the step after is to find under `path`?"""
    if isinstance(value, Parts):
        return bool(value.items) and all(is_of(each, f"{path}[{k}]") for k, each in enumerate(value.items))
    return isinstance(value, State | Layers) and value.path == path


def may_be_named(value: State | Parts | Layers) -> bool:
    """May it go on under another name?"""
    if isinstance(value, Parts):
        return all(isinstance(each, State) and (each.is_output or each.outputs is None) for each in value.items)
    return True


def last_of(value: Value) -> ast.expr | None:
    """A Cell's state, or a pair of them, after the last step; None where that was not kept."""
    if isinstance(value, State):
        return value.last
    parts = [last_of(each) for each in value.items] if isinstance(value, Parts) else []
    lasts = [each for each in parts if each is not None]
    return expression("({*lasts},)", lasts=lasts) if lasts and len(lasts) == len(parts) else None


def collected(scope: Scope, node: ast.stmt) -> tuple[ast.stmt, ...] | None:
    """What takes the place of `states.append(h)` in the loop over layers; None where `node` does something else."""
    found = appended(node)
    whole = scope.values.get(found[0]) if found is not None else None
    if found is None or scope.layer is None:
        return None
    if not isinstance(whole, Layers):
        raise Blocked(f"`{found[0]}` gets several values in each step", node)
    value = scope.lift(found[1])
    suffix, first = f"[{scope.layer.index}]", value.items[0] if isinstance(value, Parts) and value.items else value
    base = first.path.partition(suffix)[0] if isinstance(first, State) else ""
    if whole.path or scope.layer.first or not base or not is_left({base + suffix: value}, base + suffix):
        raise Blocked("what is kept of each layer is not its state", node)
    assert isinstance(value, State | Parts)
    scope.values[found[0]] = replace(whole, path=base, top=value)
    last = last_of(value) if whole.is_kept else None
    if last is None:
        return ()
    scope.draft.final.add(ast.unparse(whole.code))
    return (statement("{states}.append({last})", states=whole.code, last=last),)


def stacked_layers(scope: Scope, node: ast.Call) -> Layers | None:
    """`torch.stack(states)`, where these are what the Cells of a stack left; None where it is another call."""
    if scope.program.qualified(node.func) != "torch.stack" or not node.args or not isinstance(node.args[0], ast.Name):
        return None
    whole = scope.values.get(node.args[0].id)
    is_in_front = joined_axis(node) == 0 and len(node.args) + len(node.keywords) <= 2
    if not isinstance(whole, Layers) or not isinstance(whole.top, State) or not is_in_front:
        return None
    return replace(whole, code=scope.code(node))


def earlier(scope: Scope, node: ast.Name) -> Batched | None:
    """The state that the step before left, where a Cell has told all: one step late, and first what it begins with."""
    known = (each for each in scope.values.values() if isinstance(each, State) and each.path == node.id)
    outputs = next((each.outputs for each in known if each.is_output), None)
    if outputs is None or not scope.facts.torch or scope.callee is not None:
        return None
    place, axis = f"{node.id} before", outputs.axis
    code = expression(
        f"{{torch}}.cat(({{h}}.unsqueeze({{axis}}), {{x}}[{':, ' * axis}:-1]), dim={{axis}})",
        torch=scope.facts.torch,
        h=node.id,
        axis=axis,
        x=outputs.code,
    )
    reads = [each for each in scope.late if isinstance(each, ast.Name) and each.id == node.id]
    if len(reads) == 1 or scope.layer is not None:
        return replace(outputs, code=code, dense=True, own=False, fresh=True)
    if place not in scope.draft.outputs:
        scope.draft.outputs[place] = scope.draft.taken.fresh(f"{node.id}_before")
        scope.draft.before.append(assignment(scope.draft.outputs[place], code))
    return replace(outputs, code=reference(scope.draft.outputs[place]), dense=True, own=False)


def below(scope: Scope, node: ast.Subscript) -> Batched | None:
    """`h[i - 1]` in a layer that is not the first: what the layer below it put out."""
    layer, index = scope.layer, node.slice
    if layer is None or not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Sub):
        return None
    if getattr(index.left, "id", "") != layer.index or integer(index.right) != 1:
        return None
    base = scope.read(node.value)
    if not isinstance(base, Carried) or scope.is_rebound(base.path):
        return None
    place = f"{base.path}[{layer.index}]"
    if not layer.is_above or layer.axis is None or place in scope.values:
        raise Blocked(f"`{ast.unparse(node)}` is not known to be the state of the layer below, in the same step", node)
    scope.draft.below[place] = layer.axis
    return Batched(reference(scope.draft.outputs_of(place)), layer.axis, 2, 2, own=True)


def leave(scope: Scope, layer: Layer, fills: Callable[[str], bool], node: ast.AST) -> None:
    """Let the lists whose items the layers of a loop replaced stand for what its Cells left; raises Blocked."""
    suffix = f"[{layer.index}]"
    for place in sorted(each for each in scope.draft.consumed if suffix in each):
        base = root_of(place)
        item = base + suffix
        value = scope.values.get(item)
        scope.draft.consumed.discard(place)
        scope.draft.consumed.add(base)
        numbers = [each[len(base) + 1 : -1] for each in scope.values if each.startswith(f"{base}[")]
        if any(number.isdigit() and int(number) >= layer.first for number in numbers):
            raise Blocked(f"`{base}` has another item that is replaced in each step", node)
        if scope.is_rebound(base):
            continue
        if not is_left(scope.values, place) or not isinstance(value, State | Parts):
            raise Blocked(f"`{place}` goes into an RNN, and is not what it returns", node)
        first = value.items[0] if isinstance(value, Parts) else value
        axis = first.outputs.axis if isinstance(first, State) and first.outputs is not None else None
        if scope.draft.below.get(item, axis) != axis:
            raise Blocked("the layers put out their steps along other axes", node)
    for base in {root_of(each) for each in scope.values if each.endswith(suffix)}:
        value = scope.values.pop(base + suffix, None)
        if isinstance(value, State | Parts):
            scope.values[base] = Layers(reference(base), base, value if fills(base) else None)
