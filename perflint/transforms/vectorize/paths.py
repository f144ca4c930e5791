"""What the statements of a loop store to, by the paths of variables and of items of lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from perflint.syntax.walk import PlainLoop, own_nodes, path_of, receiver_of


def place_of(node: ast.AST) -> str:
    """The path of a variable, or of an item of a list: `h[i]`, `h[0]`; empty for all else."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Constant | ast.BinOp):
        base = place_of(node.value)
        return f"{base}[{ast.unparse(node.slice)}]" if base else ""
    return path_of(node)


def root_of(path: str) -> str:
    """The variable that a path begins with."""
    return re.split(r"\W", path)[0]


def appended(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """The list that `node` appends to, and what: `outs.append(x)` or `outs += [x]`; None of any other statement."""
    call = node.value if isinstance(node, ast.Expr) else None
    if (appending := receiver_of(call, "append")) is not None and isinstance(call, ast.Call):
        path = path_of(appending)
        if path and len(call.args) == 1 and not call.keywords:
            return path, call.args[0]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, ast.List):
        path = path_of(node.target)
        if path and len(node.value.elts) == 1:
            return path, node.value.elts[0]
    return None


def written_paths(loop: PlainLoop) -> Iterator[str]:
    """The paths to which the loop may give a value, or an item."""
    for node in own_nodes(loop):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if path := path_of(node.value if isinstance(node, ast.Subscript) else node):
                yield path
        elif isinstance(node, ast.stmt) and (kept := appended(node)) is not None:
            yield kept[0]


def shifted_inputs(loop: PlainLoop) -> dict[str, ast.expr]:
    """The names that the body gives a value in one place, out of given sequences alone, and that value."""
    stored = [node.id for each in loop.body for node in own_nodes(each) if _is_store(node)]
    found = (node for node in loop.body if isinstance(node, ast.Assign) and len(node.targets) == 1)
    return {
        target.id: node.value
        for node in found
        if _is_store(target := node.targets[0]) and stored.count(target.id) == 1
        and not any(isinstance(part, ast.Name) and part.id in stored for part in ast.walk(node.value))
    }  # fmt: skip


def _is_store(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
