"""Follows the states of RNNs: which one of a step the next one finds, under its own name or in a list."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from perflint.transforms.blocked import Blocked
from perflint.transforms.vectorize.paths import root_of
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import Parts, State, Value


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
    return isinstance(value, State) and value.path == path


def may_be_named(value: State | Parts) -> bool:
    """May it go on under another name?"""
    if isinstance(value, Parts):
        return all(isinstance(each, State) and (each.is_output or each.outputs is None) for each in value.items)
    return True


def leave(scope: Scope, layer: str, node: ast.AST) -> None:
    """Let the lists whose items the layers of a loop replaced stand for what its Cells left; raises Blocked."""
    suffix = f"[{layer}]"
    for place in sorted(each for each in scope.draft.consumed if suffix in each):
        base = root_of(place)
        scope.draft.consumed.discard(place)
        scope.draft.consumed.add(base)
        if any(each.startswith(f"{base}[") and each[len(base) + 1 : -1].isdigit() for each in scope.values):
            raise Blocked(f"`{base}` has another item that is replaced in each step", node)
        if not scope.is_rebound(base) and not is_left(scope.values, place):
            raise Blocked(f"`{place}` goes into an RNN, and is not what it returns", node)
    for base in {root_of(each) for each in scope.values if each.endswith(suffix)}:
        if isinstance(scope.values.pop(base + suffix, None), State | Parts):
            scope.values[base] = State(base)
