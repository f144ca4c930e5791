"""Under which names a function reaches the memory of a tensor."""

from __future__ import annotations

import ast

from perflint.program import torch_table
from perflint.program.walk import own_nodes, path_of


def names_of(function: ast.AST, path: str) -> frozenset[str]:
    """`path`, and each variable or attribute that is assigned a view of it, or of which it is assigned one."""
    pairs = [
        (path_of(target), path_of(viewed(each.value)))
        for each in own_nodes(function)
        if isinstance(each, ast.Assign)
        for target in each.targets
    ]
    names, before = {path}, 0
    while len(names) > before:
        before = len(names)
        for pair in pairs:
            if all(pair) and not names.isdisjoint(pair):
                names.update(pair)
    return frozenset(names)


def viewed(node: ast.expr) -> ast.expr:
    """The tensor whose memory `node` may show; `node` itself where it is no view."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_view(node.func.attr):
            node = node.func.value
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "data")):
            node = node.value
        else:
            return node


def _is_view(method: str) -> bool:
    entry = torch_table.method(method)
    return entry is not None and "view" in entry.traits
