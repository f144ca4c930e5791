"""The shape of a tensor, as far as it is known statically, and arithmetic on shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Shape(NamedTuple):
    """The axes of a tensor: `first` from the front, `last` up to the back; the same and complete where `rank` is known.

    A size is a numeral, a symbol (equal symbols are equal sizes), or empty for unknown. There are `least` axes.
    """

    rank: int | None
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    least: int = 0

    def size(self, axis: int) -> str:
        """The size of an axis, counted from the back where negative."""
        if axis >= 0:
            return self.first[axis] if axis < len(self.first) else ""
        return self.last[axis] if -axis <= len(self.last) else ""

    def at_least(self, axes: int) -> Shape:
        return self if self.rank is not None else self._replace(least=max(self.least, axes))

    def replaced(self, axis: int, sizes: tuple[str, ...]) -> Shape:
        if self.rank is not None and not -self.rank <= axis < self.rank:
            return NOTHING
        return self._spliced(axis, 1, sizes)

    def unsqueezed(self, axis: int) -> Shape:
        return self._spliced(axis, 0, ("1",))

    def _spliced(self, axis: int, taken: int, sizes: tuple[str, ...]) -> Shape:
        """The shape with `sizes` from `axis` of the result on, instead of so many axes that stand there."""
        if self.rank is not None:
            at = axis if axis >= 0 else axis + self.rank + 1 - taken
            return known((*self.first[:at], *sizes, *self.first[at + taken :]))
        least = max(self.least - taken + len(sizes), axes_for(axis) - taken + len(sizes) * taken)
        if axis >= 0:
            padded = (*self.first, *[""] * axis)
            last = self.last if axis == taken == 0 else ()
            return Shape(None, (*padded[:axis], *sizes, *padded[axis + taken :]), last, least)
        padded = (*[""] * -axis, *self.last)
        at = len(padded) + axis + 1 - taken
        return Shape(None, (), (*padded[:at], *sizes, *padded[at + taken :]), least)

    def swapped(self, one: int, other: int) -> Shape:
        if self.rank is not None:
            if not all(-self.rank <= axis < self.rank for axis in (one, other)):
                return NOTHING
            return known(_exchanged(self.first, one, other))
        least = max(self.least, axes_for(one), axes_for(other))
        if one >= 0 and other >= 0 and max(one, other) < len(self.first):
            return Shape(None, _exchanged(self.first, one, other), (), least)
        if one < 0 and other < 0 and -min(one, other) <= len(self.last):
            return Shape(None, (), _exchanged(self.last, one, other), least)
        return Shape(None, least=least)

    def with_sizes(self, holds: Callable[[str], bool]) -> Shape:
        first, last = (tuple(size if holds(size) else "" for size in sizes) for sizes in (self.first, self.last))
        return self._replace(first=first, last=last)


NOTHING = Shape(None)


def known(sizes: tuple[str, ...]) -> Shape:
    return Shape(len(sizes), sizes, sizes, len(sizes))


def axes_for(axis: int) -> int:
    return axis + 1 if axis >= 0 else -axis


def product(left: Shape, right: Shape) -> Shape:
    """The shape of a product of matrices, of which one side may have axes for batches in front."""
    if left.rank is None or right.rank is None or min(left.rank, right.rank) < 2:
        return NOTHING
    batches = left if left.rank >= right.rank else right
    if min(left.rank, right.rank) > 2 and left.rank != right.rank:
        return NOTHING
    return known((*batches.first[:-2], left.size(-2), right.size(-1)))


def broadcast(one: Shape, other: Shape) -> Shape:
    """The shape of what is computed of two tensors element by element."""
    if one.rank is None or other.rank is None:
        return Shape(None, least=max(one.least, other.least))
    sizes = []
    for axis in range(-max(one.rank, other.rank), 0):
        pair = {one.size(axis) if -axis <= one.rank else "1", other.size(axis) if -axis <= other.rank else "1"}
        rest = pair - {"1"}
        sizes.append("1" if not rest else rest.pop() if len(rest) == 1 else "")
    return known(tuple(sizes))


def either(shapes: set[Shape]) -> Shape:
    if len(shapes) == 1:
        return next(iter(shapes))
    if shapes and len({each.rank for each in shapes}) == 1 and next(iter(shapes)).rank is not None:
        axes = zip(*(each.first for each in shapes), strict=True)
        return known(tuple(sizes[0] if len({*sizes}) == 1 else "" for sizes in axes))
    return Shape(None, least=min((each.least for each in shapes), default=0))


def _exchanged(sizes: tuple[str, ...], one: int, other: int) -> tuple[str, ...]:
    found = list(sizes)
    found[one], found[other] = found[other], found[one]
    return tuple(found)
