"""Proves that a repeated axis has size 1 or is new, so that a view can stand for the copy."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint import api
from perflint.api import Flow, Program, Reading, Shape, Shapes

from .copies import Copy
from .evidence import result_shows, result_suggests
from .lists import filled_in_turn, spread


@dataclass(frozen=True)
class Repeated:
    """The positions, among the axes of the result, that are repeated.

    `new`: the first of them may be an axis that the source lacks. `sure`: expand can't be refused; otherwise the text
    only makes it very likely.
    """

    positions: tuple[int, ...]
    new: bool
    sure: bool = True


def proved(program: Program, shapes: Shapes, flow: Flow, copy: Copy, reading: Reading) -> Repeated | None:
    """What the copy repeats, if a view could do that."""
    if copy.form == "expanded" or copy.form == "stack":
        return Repeated((copy.axis or 0,), new=False)
    shape = shapes.shape(copy.source)
    if copy.form in ("interleave", "cat"):
        return Repeated((copy.axis,), new=False) if copy.axis is not None and shape.size(copy.axis) == "1" else None
    if copy.counts is None:
        axes = (0,) if filled_in_turn(program, copy) else spread(shapes, copy)
        return Repeated(axes, new=False) if axes else None
    counts = copy.counts
    repeated = [position for position, count in enumerate(counts) if api.integer(count) != 1]
    if all(shapes.size(counts[position]) == "1" for position in repeated):
        return None  # a variable that is 1 here, as the width of a beam that has yet to grow
    if any(_is_below_one(program, counts[position]) for position in repeated):
        return None
    if (
        copy.form == "tile" and shape.rank is None and api.integer(counts[0]) != 1
    ):  # takes fewer counts than there are axes, too
        single = all(shape.size(position - len(counts)) == "1" for position in repeated)
        return Repeated(tuple(repeated), new=True) if single else None
    ranks = _ranks(shape, counts, shapes.least(copy.source))
    unproved = [
        position for position in repeated if not all(_is_single(shape, position, len(counts), rank) for rank in ranks)
    ]
    new = min(ranks, default=0) < len(counts)
    unproved = [position for position in unproved if not result_shows(program, shapes, reading, counts[position])]
    if not unproved:
        return Repeated(tuple(repeated), new)
    has_room = shape.rank is None and min(ranks) <= len(counts) - len(repeated)
    if (has_room and _adds_axes(program, copy, repeated)) or all(
        result_suggests(program, shapes, flow, reading, counts[position], loosely=True) for position in unproved
    ):
        return Repeated(tuple(repeated), new, sure=False)
    return None


def unproved_rank(program: Program, shapes: Shapes, flow: Flow, copy: Copy, reading: Reading) -> int:
    """The axes that the source needs for its counts of 1 to stand for axes that exist; 0 where it surely has them.

    With fewer, a repeated axis that is known to have size 1 may be another one. That speaks against it where the result
    shows the size of the axis, unless that other one happens to have size 1, too.
    """
    shape = shapes.shape(copy.source)
    if copy.form not in ("repeat", "tile") or copy.counts is None or shape.rank is not None:
        return 0
    numbers = [api.integer(count) for count in copy.counts]
    needed = len(numbers) - numbers.index(1) if 1 in numbers else 0
    ranks = range(max(1, shapes.least(copy.source)), needed)
    shown = [
        position
        for position, count in enumerate(copy.counts)
        if ranks
        and numbers[position] != 1
        and all(_is_single(shape, position, len(numbers), rank) for rank in range(needed, len(numbers) + 1))
        and (result_shows(program, shapes, reading, count) or result_suggests(program, shapes, flow, reading, count))
    ]
    refuted = all(any(not _is_single(shape, position, len(numbers), rank) for position in shown) for rank in ranks)
    return 0 if refuted else needed


def _adds_axes(program: Program, copy: Copy, repeated: list[int]) -> bool:
    """Do counts in front look like new axes: several that are variables or go to the end, or one that is moved away?"""
    assert copy.counts is not None
    if repeated != list(range(len(repeated))) or len(repeated) == len(copy.counts):
        return False
    method = program.parent(copy.call)
    moved = isinstance(method, ast.Attribute) and method.attr in ("permute", "transpose")
    if any(api.integer(copy.counts[i]) is not None for i in repeated):  # else it may be a tiling of images
        order = [api.integer(axis) for axis in _arguments(program, method)]
        return len(repeated) > 1 and moved and order[-len(repeated) :] == repeated
    return len(repeated) > 1 or moved


def _arguments(program: Program, method: ast.AST | None) -> list[ast.expr]:
    """What the method is called with, be it in a tuple or not."""
    call = program.parent(method) if method is not None else None
    arguments = call.args if isinstance(call, ast.Call) and call.func is method else []
    only = arguments[0] if len(arguments) == 1 else None
    return only.elts if isinstance(only, ast.Tuple | ast.List) else arguments


def _is_below_one(program: Program, count: ast.expr) -> bool:
    number = api.integer(count) if api.integer(count) is not None else program.value(count).literal
    return isinstance(number, int) and number < 1


def _ranks(shape: Shape, counts: tuple[ast.expr, ...], least: int) -> list[int]:
    """How many axes the source may have, `least` or more; a count of 1 is taken to stand for an axis that exists."""
    if shape.rank is not None:
        return [shape.rank]
    existing = next((len(counts) - position for position, count in enumerate(counts) if api.integer(count) == 1), 1)
    return list(range(min(max(existing, least), len(counts)), len(counts) + 1))


def _is_single(shape: Shape, position: int, counts: int, rank: int) -> bool:
    """Is the axis at this position of the result of size 1, or new, if the source has `rank` axes?"""
    axis = position - (counts - rank)
    return axis < 0 or shape.size(axis) == "1" or shape.size(axis - rank) == "1"
