"""The shape of a tensor, as far as it is known statically."""

from __future__ import annotations

import ast
from typing import NamedTuple, Protocol


class Shape(NamedTuple):
    """The axes of a tensor: `first` from the front, `last` up to the back; the same and complete where `rank` is known.

    A size is a numeral, a symbol (equal symbols are equal sizes), or empty for unknown.
    """

    rank: int | None
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def size(self, axis: int) -> str:
        """The size of an axis, counted from the back where negative."""
        if axis >= 0:
            return self.first[axis] if axis < len(self.first) else ""
        return self.last[axis] if -axis <= len(self.last) else ""


NOTHING = Shape(None)


class Sizing(Protocol):
    """What the inference of shapes answers to the functions that it asks for the shape of one call."""

    def shape(self, node: ast.expr) -> Shape:
        """What is known of the shape of a tensor."""

    def size(self, node: ast.expr) -> str:
        """The symbol of a number."""

    def returned(self, node: ast.Call) -> Shape | None:
        """The shape that a function of this file returns."""

    def elements(self, node: ast.expr) -> list[ast.expr]:
        """Tensors of a list, of one shape as far as a concatenation or stack wants it: those in sight."""

    def broadcast(self, left: ast.expr, right: ast.expr) -> Shape:
        """The shape of an elementwise result."""

    def from_sizes(self, arguments: list[ast.expr], *, made: bool = False) -> Shape:
        """The shape that sizes ask for: one by one, in a tuple or list, or all those of another tensor."""

    def expand(self, sizes: list[ast.expr]) -> Shape:
        """The shape that a list of sizes asks for."""


def known(sizes: tuple[str, ...]) -> Shape:
    """A shape of exactly these sizes."""
    return Shape(len(sizes), sizes, sizes)


def swapped(shape: Shape, one: int, other: int) -> Shape:
    """`shape` with two axes exchanged."""
    if shape.rank is not None:
        sizes = list(shape.first)
        if not all(-shape.rank <= axis < shape.rank for axis in (one, other)):
            return NOTHING
        sizes[one], sizes[other] = sizes[other], sizes[one]
        return known(tuple(sizes))
    first, last = list(shape.first), list(shape.last)
    if one >= 0 and other >= 0 and max(one, other) < len(first):
        first[one], first[other] = first[other], first[one]
        return Shape(None, tuple(first), ())
    if one < 0 and other < 0 and -min(one, other) <= len(last):
        last[one], last[other] = last[other], last[one]
        return Shape(None, (), tuple(last))
    return NOTHING


def product(left: Shape, right: Shape) -> Shape:
    """The shape of a product of matrices, of which one side may have axes for batches in front."""
    if left.rank is None or right.rank is None or min(left.rank, right.rank) < 2:
        return NOTHING
    batches = left if left.rank >= right.rank else right
    if min(left.rank, right.rank) > 2 and left.rank != right.rank:
        return NOTHING
    return known((*batches.first[:-2], left.size(-2), right.size(-1)))


def sizes_of(arguments: list[ast.expr]) -> list[ast.expr]:
    """Sizes given as arguments, or as one tuple or list of them."""
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        return arguments[0].elts
    return arguments
