"""The names that a loop body binds, and the objects that it writes to."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.syntax.walk import Loop, nodes_of_body, path_of

_GROWS = frozenset({"append", "extend", "appendleft", "insert"})


def written_paths(loop: Loop) -> set[str]:
    """The paths that the body of `loop` binds or changes in place."""
    found: set[str] = set()
    for node in nodes_of_body(loop):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(root_path(node))
        elif (changed := changed_in_place(node)) is not None:
            found.add(root_path(changed))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
            found.add(root_path(node.func.value))
    return found - {""}


def last_writes(loop: Loop) -> dict[str, int]:
    """The last line of the body of `loop` on which each path is bound as a whole."""
    found: dict[str, int] = {}
    for node in nodes_of_body(loop):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found[path_of(node)] = max(node.lineno, found.get(path_of(node), 0))
    return found


def written_places(loop: Loop, indices: frozenset[str]) -> dict[str, set[str]]:
    """The places, as the text of the index, at which the body of `loop` writes parts of each path; "" for the whole."""
    found: dict[str, set[str]] = {}
    for node in nodes_of_body(loop):
        target = node if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) else changed_in_place(node)
        if isinstance(target, ast.Subscript):
            found.setdefault(root_path(target), set()).add(ast.unparse(step_index(target, indices)))
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.setdefault(path_of(node), set()).add("")
    return found


def is_fixed(place: str) -> bool:
    """Is it the same place in each iteration, such as `0` or `:, -1`?"""
    return bool(place) and set(place) <= set("0123456789-:, ()")


def changed_in_place(node: ast.AST) -> ast.expr | None:
    """What `node` changes, if it is a call of a method such as `x.add_(y)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    return node.func.value if torch_ops.writes_in_place(node.func.attr) else None


def root_path(node: ast.expr) -> str:
    """The path of which `node` is a part: of `x.data[0][t]`, x."""
    while isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Attribute) and (node.attr == "data" or not path_of(node))
    ):
        node = node.value
    return path_of(node)


def step_index(node: ast.Subscript, indices: frozenset[str]) -> ast.expr:
    """The index that picks the step, of `x[t][0]` t, or else the last one."""
    part: ast.expr = node
    while isinstance(part, ast.Subscript):
        if any(path_of(each) in indices for each in ast.walk(part.slice) if isinstance(each, ast.Name)):
            return part.slice
        part = part.value
    return node.slice
