"""Reads subscripts by induction variables: which step of a sequence, along which axis."""

from __future__ import annotations

import ast
from collections.abc import Callable, Set
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.syntax.walk import Loop, elements_of, name_called, own_nodes, path_of, spans_an_axis


def picks_one(index: ast.expr, is_indexed: Callable[[ast.expr], bool]) -> bool:
    """Does an index pick single steps: `t`, `:, t`, `t:t + 1`, and not a prefix such as `:t`?"""
    for part in elements_of(index):
        if isinstance(part, ast.Slice):
            if part.lower is not None and part.upper is not None and is_next(part.lower, part.upper):
                return True
        elif is_indexed(part):
            return True
    return False


def is_rest(index: ast.expr) -> bool:
    """Is it all but the first, `1:` or `:, 1:`?"""
    return any(
        isinstance(part, ast.Slice) and part.lower is not None and part.upper is None for part in elements_of(index)
    )


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


class Place(NamedTuple):
    """Where an index picks: as text, and, as far as it says, the axis that the loop walks, and how far ahead of it."""

    text: str
    axis: int | None = None
    offset: int | None = None

    def is_same_step(self, other: Place) -> bool:
        """Do both pick the same step, if to different depths: `t` and `t, :, 0`?"""
        return self.text == other.text or (self.offset is not None and self[1:] == other[1:])

    @property
    def is_fixed(self) -> bool:
        """Is it the same place in each iteration, such as `0` or `:, -1`?"""
        return bool(self.text) and set(self.text) <= set("0123456789-:, ()")


WHOLE = Place("")


def place(index: ast.expr, indices: Set[str]) -> Place:
    """Where `index` picks."""
    text = ast.unparse(index)
    for axis, part in enumerate(elements_of(index)):
        if isinstance(part, ast.Slice) and part.lower is not None:
            part = part.lower
        offset = _offset(part, indices)
        if offset is not None or any(isinstance(each, ast.Name) and each.id in indices for each in ast.walk(part)):
            return Place(text, axis, offset)
    return Place(text)


def _offset(node: ast.expr, indices: Set[str]) -> int | None:
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


def proven_tensors(program: Program, loop: Loop) -> frozenset[str]:
    """The paths that the function around `loop` treats as only a tensor, or a list of tensors, can be."""
    found = set()
    for node in own_nodes(program.function_of(loop) or program.tree):
        if isinstance(node, ast.Subscript):
            if spans_an_axis(node.slice):
                found.add(path_of(node.value))
        elif isinstance(node, ast.Call):
            name = name_called(node)
            if name.endswith("_like") and node.args:
                if program.qualified(node.func).startswith("torch."):
                    found.add(_sequence(node.args[0]))
            elif torch_ops.does(name, "unmistakable") and isinstance(node.func, ast.Attribute):
                found.add(_sequence(node.func.value))
    return frozenset(found - {""})


def _sequence(node: ast.expr) -> str:
    """Of `x` and of its step `x[0]`, x."""
    return path_of(node.value if isinstance(node, ast.Subscript) else node)
