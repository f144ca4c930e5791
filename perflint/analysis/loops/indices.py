"""Reads subscripts by induction variables: which step of a sequence, along which axis."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perflint.syntax.walk import path_of


def picks_one(index: ast.expr, is_indexed: Callable[[ast.expr], bool]) -> bool:
    """Does an index pick single steps: `t`, `:, t`, `t:t + 1`, and not a prefix such as `:t`?"""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        if isinstance(part, ast.Slice):
            if part.lower is not None and part.upper is not None and is_next(part.lower, part.upper):
                return True
        elif is_indexed(part):
            return True
    return False


def spans_an_axis(index: ast.expr) -> bool:
    """Is it an index such as `:, t`, which no list takes?"""
    return isinstance(index, ast.Tuple) and any(isinstance(part, ast.Slice) for part in index.elts)


def is_rest(index: ast.expr) -> bool:
    """Is it all but the first, `1:` or `:, 1:`?"""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(part, ast.Slice) and part.lower is not None and part.upper is None for part in parts)


def is_next(lower: ast.expr, upper: ast.expr) -> bool:
    """Is it `t:t + 1`?"""
    return (
        isinstance(upper, ast.BinOp)
        and isinstance(upper.op, ast.Add)
        and isinstance(upper.right, ast.Constant)
        and upper.right.value == 1
        and ast.dump(upper.left) == ast.dump(lower)
    ) or (
        isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Sub) and isinstance(lower.right, ast.Constant)
        and lower.right.value == 1 and ast.dump(lower.left) == ast.dump(upper)
    )  # fmt: skip


def place(node: ast.Subscript, indices: frozenset[str]) -> tuple[int | None, int | None]:
    """The axis that the loop's index walks in `node`, and how far ahead of it."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for axis, part in enumerate(parts):
        if isinstance(part, ast.Slice) and part.lower is not None:
            part = part.lower
        offset = _offset(part, indices)
        if offset is not None or any(isinstance(each, ast.Name) and each.id in indices for each in ast.walk(part)):
            return axis, offset
    return None, None


def _offset(node: ast.expr, indices: frozenset[str]) -> int | None:
    if path_of(node) in indices:
        return 0
    if (
        isinstance(node, ast.BinOp)
        and path_of(node.left) in indices
        and isinstance(node.right, ast.Constant)
        and isinstance(node.right.value, int)
    ):
        return (
            node.right.value
            if isinstance(node.op, ast.Add)
            else -node.right.value
            if isinstance(node.op, ast.Sub)
            else None
        )
    return None


def starts_alike(one: str, other: str) -> bool:
    """Do two indices pick the same step, written to different depths: `t` and `t, :, 0`?"""
    first, second = one.split(",")[0].strip("( )"), other.split(",")[0].strip("( )")
    return one == other or (first == second and ":" not in first)
