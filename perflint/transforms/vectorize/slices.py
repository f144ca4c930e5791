"""Lifts indexing: a step of a sequence becomes the sequence, and indices of a step move behind the time axis."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import new
from perflint.transforms.shown import shown
from perflint.transforms.template import expression, number
from perflint.transforms.vectorize.parted import Parted
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Scope, counter
from perflint.transforms.vectorize.steps import (
    Index,
    Same,
    Steps,
    in_front,
    indexed,
    is_full,
    picked,
    squeezed,
    written,
)


@dataclass(frozen=True)
class Range:
    """The steps [first, stop) of an axis; `kept` where one step keeps the axis."""

    first: ast.expr
    stop: ast.expr
    end: ast.expr | None  # what `stop` was written from
    kept: bool = False

    def slice(self, *, is_whole: bool = False) -> ast.Slice:
        """The index that takes all of them; `is_whole`: they end where the sequence does."""
        first = None if integer(self.first) == 0 else self.first
        return new(ast.Slice(first, None if is_whole else self.stop))


def sliced(scope: Scope, node: ast.Subscript, base: Steps | Same) -> Steps:
    """The value of `node`, whose parts vary from step to step; raises Blocked."""
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if isinstance(base, Steps):
        return _part_of_step(scope, node, base, items)
    return _step(scope, node, base, spread(scope, items, node.value))


def selected(scope: Scope, node: ast.expr, parted: Parted, item: ast.expr) -> Steps:
    """The step `item` of what is taken apart into its steps; raises Blocked."""
    whole, axis, fewer = parted.whole, parted.axis, 0 if parted.kept else 1
    steps = step_range(scope, item)
    if steps is None:
        raise Blocked(f"{shown(scope.program, node)} is not one step of a sequence", node)
    code = picked(scope.code(whole), axis, steps.slice(is_whole=_is_length(scope, whole, axis, steps)))
    step, rank = Steps(code, axis, axis + 1 - fewer, kept=parted.kept), scope.rank(whole)
    return step if rank is None else step.narrowed(rank - fewer, rank - fewer)


def spread(scope: Scope, items: list[ast.expr], base: ast.expr) -> list[ast.expr]:
    """The indices with as many whole axes in the place of `...` as it stands for; raises Blocked."""
    dots = [position for position, item in enumerate(items) if _is(item, ...)]
    rank = scope.rank(base) if dots else None
    if not dots:
        return items
    if rank is None or any(_is(item, None) for item in items):
        raise Blocked("it is not known how many axes `...` stands for", base)
    return [*items[: dots[0]], *(ast.Slice() for _ in range(rank - len(items) + 1)), *items[dots[0] + 1 :]]


def item_code(scope: Scope, item: ast.expr) -> ast.expr:
    """An index, as the loop's function writes it."""
    return new(ast.Slice()) if is_full(item) else scope.code(item)


def _is(item: ast.expr, value: object) -> bool:
    return isinstance(item, ast.Constant) and item.value is value


def _step(scope: Scope, node: ast.Subscript, base: Same, items: list[ast.expr]) -> Steps:
    found = [(position, steps) for position, item in enumerate(items) if (steps := step_range(scope, item))]
    if len(found) != 1:
        raise Blocked(f"{shown(scope.program, node)} is not one step of a sequence", node)
    axis, steps = found[0]
    others = items[:axis] + items[axis + 1 :]
    if not all(is_full(item) for item in items[:axis]) or any(scope.varies(item) for item in others):
        raise Blocked(f"{shown(scope.program, node)} is not one step of a sequence", node)
    behind = items[axis + 1 :]
    _check_same(scope, behind)
    if not all(_is_plain(item) for item in behind):
        raise Blocked(f"{shown(scope.program, node)} picks by more than numbers", node)
    dropped = sum(integer(item) is not None for item in behind)
    fewer = dropped + (0 if steps.kept else 1)
    of = f"{written(base)} {fewer} {'' if isinstance(base.code, ast.Name) else scope.program.span(node.value)}"
    step = Steps(_taken(scope, node, base, items, axis, steps), axis, len(items) - fewer, kept=steps.kept, of=of)
    rank = scope.rank(node.value)
    return step if rank is None else step.narrowed(rank - fewer, rank - fewer)


def _taken(scope: Scope, node: ast.Subscript, base: Same, items: list[ast.expr], axis: int, steps: Range) -> ast.expr:
    """`x[:, t, 3]` as `x[:, first:stop, 3]`, without what says nothing."""
    parts = [item_code(scope, item) for item in items]
    parts[axis] = steps.slice(is_whole=_is_length(scope, node.value, axis, steps))
    return indexed(base.code, parts)


def _is_length(scope: Scope, base: ast.expr, axis: int, steps: Range) -> bool:
    """Is the end of the steps how long `base` is along `axis`?"""
    if steps.end is not None:
        return scope.is_length(steps.end, base, axis)
    size = scope.facts.shapes.shape(base).size(axis)
    return bool(size) and ast.unparse(steps.stop) == size


def step_range(scope: Scope, item: ast.expr) -> Range | None:
    """The steps that an index takes one after the other: `t`, `t + 1`, `t : t + 1`."""
    index = counter(scope, item)
    if index is not None:
        return _range(index, item, kept=False)
    if isinstance(item, ast.Slice) and item.lower is not None and item.upper is not None and item.step is None:
        low, high = counter(scope, item.lower), counter(scope, item.upper)
        if low is not None and high is not None and high.offset == low.offset + 1:
            return _range(low, item, kept=True)
    return None


def _range(index: Index, node: ast.expr, *, kept: bool) -> Range:
    first = shifted(index.first, index.offset)
    value = integer(first)
    if (value is not None and value < 0) or (index.offset < 0 and value is None):
        raise Blocked("the first step may read from the sequence's end", node)
    return Range(first, shifted(index.stop, index.offset), None if index.offset else index.end, kept)


def shifted(node: ast.expr, offset: int) -> ast.expr:
    """The number `node` plus `offset`, written briefly."""
    value = integer(node)
    if value is not None:
        return number(value + offset)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = integer(node.right)
        if right is not None:
            offset += right if isinstance(node.op, ast.Add) else -right
            node = node.left
    return node if offset == 0 else expression("{x} + {n}" if offset > 0 else "{x} - {n}", x=node, n=abs(offset))


def _part_of_step(scope: Scope, node: ast.Subscript, base: Steps, items: list[ast.expr]) -> Steps:
    """An index into one step: axes from time on stand one further back among all steps."""
    if any(scope.varies(item) for item in items):
        raise Blocked(f"{shown(scope.program, node)} picks something else in each step", node)
    if any(not (_is_plain(item) or _is(item, ...) or _is(item, None)) for item in items):
        raise Blocked(f"{shown(scope.program, node)} picks by more than numbers", node)
    _check_same(scope, items)
    parts = [item_code(scope, item) for item in items]
    numbers = [integer(item) is not None for item in items]
    if not all(_is_plain(item) for item in items):
        return _part_in_front(base, items, parts, sum(numbers))
    if base.kept:
        return _part_of_kept(node, base, items, parts, numbers)
    at = base if base.axis <= len(items) and not any(numbers[: base.axis]) else base.at(0)
    parts = [*parts[: at.axis], new(ast.Slice()), *parts[at.axis :]]
    dropped = sum(numbers)
    return at.narrowed(len(items)).with_axes(-dropped, indexed(at.code, parts, whole=True))


def _part_in_front(base: Steps, items: list[ast.expr], parts: list[ast.expr], dropped: int) -> Steps:
    """`v[..., 0]` and `v[:, None]`: what stands behind time."""
    front, more = in_front(base), sum(_is(item, None) for item in items)
    walked = len(items) - more - sum(_is(item, ...) for item in items)
    code = indexed(front.code, [ast.Slice(), *parts], whole=True)
    return front.narrowed(walked).with_axes(more - dropped, code)


def _part_of_kept(
    node: ast.Subscript, base: Steps, items: list[ast.expr], parts: list[ast.expr], numbers: list[bool]
) -> Steps:
    if len(items) <= base.axis or any(numbers[: base.axis]) or integer(items[base.axis]) not in (0, -1):
        raise Blocked("an axis in front of time is dropped", node)
    parts[base.axis] = new(ast.Slice())
    dropped = sum(numbers[base.axis + 1 :])
    code = indexed(base.code, parts)
    return squeezed(replace(base, code=code).narrowed(len(items))).with_axes(-dropped, code)


def _check_same(scope: Scope, items: list[ast.expr]) -> None:
    """Raise Blocked unless the indices are the same in every step."""
    for item in items:
        invariant(scope, item)


def _is_plain(item: ast.expr) -> bool:
    return isinstance(item, ast.Slice) or integer(item) is not None
