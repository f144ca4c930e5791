"""The batching rules of indexing: one step of a sequence becomes the whole sequence."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perflint import torch_ops
from perflint.analysis.loops.header import split_axis, split_base, split_size
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.values.dtypes import is_integer, is_wide_integer
from perflint.analysis.values.operations import operation
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import elements_of, integer, name_called, path_of
from perflint.transforms.operations import expression, new, plus, reference, same_code
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize.modules import check_invariant, invariant
from perflint.transforms.vectorize.scope import Scope, counter
from perflint.transforms.vectorize.values import MANY, Batched, Induction, Invariant, Value, indexed, is_full


@dataclass(frozen=True)
class Range:
    """The steps [first, stop) of an axis; `kept`: one step keeps it; `end` is what `stop` was written from."""

    first: ast.expr
    stop: ast.expr
    end: ast.expr | None
    kept: bool = False

    def slice(self, *, is_whole: bool = False) -> ast.Slice:
        first = None if integer(self.first) == 0 else self.first
        return new(ast.Slice(first, None if is_whole else self.stop))


@dataclass(frozen=True)
class Split:
    """`whole` was taken apart along `axis` into its steps; where it is `kept`, each still has that axis, of size 1."""

    whole: ast.expr
    axis: int
    kept: bool


def taken_for_tensor(scope: Scope, node: ast.expr) -> Batched | Invariant:
    """The value of `node`, whose user fails where it is no tensor; what else it may be a step of is taken for one."""
    whole = node.value if isinstance(node, ast.Subscript) else None
    if not isinstance(node, ast.Subscript) or whole is None or not path_of(whole) or scope.varies(whole):
        return scope.tensor(node)
    if scope.program.value(whole).kind is not Kind.UNKNOWN:
        return scope.tensor(node)
    scope.draft.changes.add(f"it fails if {shown(scope.program, whole)} is no tensor")
    invariant(scope, whole)
    return sliced(scope, node)


def selected(scope: Scope, node: ast.Subscript, split: Split) -> Batched:
    """`pieces[t]` of what `pieces` were taken from, as one step of it."""
    steps = step_range(scope, node.slice)
    if steps is None or steps.kept:
        raise Blocked(f"{shown(scope.program, node)} is not one step of a sequence", node)
    items: list[ast.expr] = [
        *(new(ast.Slice()) for _ in range(split.axis)),
        steps.slice(is_whole=_is_length(scope, split.whole, split.axis, steps)),
    ]
    rank = scope.rank(split.whole)
    least, fewer = split.axis + 1 if rank is None else rank, 0 if split.kept else 1
    code = indexed(scope.code(split.whole), items)
    return Batched(code, split.axis, least - fewer, MANY if rank is None else rank - fewer, kept=split.kept)


def item_code(scope: Scope, item: ast.expr) -> ast.expr:
    return new(ast.Slice()) if is_full(item) else scope.code(item)


def ranges(scope: Scope, items: Sequence[ast.expr]) -> list[tuple[int, Range]]:
    return [(position, steps) for position, item in enumerate(items) if (steps := step_range(scope, item))]


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


def _range(index: Induction, node: ast.expr, *, kept: bool) -> Range:
    first = plus(index.first, index.offset)
    value = integer(first)
    if (value is not None and value < 0) or (index.offset < 0 and value is None):
        raise Blocked("the first step may read from the sequence's end", node)
    return Range(first, plus(index.stop, index.offset), None if index.offset else index.end, kept)


def dropped_axes(scope: Scope, node: ast.Subscript, items: Sequence[ast.expr]) -> list[ast.expr]:
    """Those of an index's loop-invariant `items` that are integers; raises Blocked where others are no slices."""
    check_invariant(scope, *items)
    others = [each for each in items if not isinstance(each, ast.Slice)]
    if not all(integer(each) is not None or is_integer(scope.program, each) for each in others):
        raise Blocked(f"{shown(scope.program, node)} picks by more than numbers", node)
    return others


def sliced(scope: Scope, node: ast.Subscript) -> Batched:
    """`x[:, t, 3]` as `x[:, first:stop, 3]`, without what says nothing."""
    whole, items = node.value, elements_of(node.slice)
    if any(scope.varies(item) and not isinstance(item, ast.Slice) and counter(scope, item) is None for item in items):
        return _picked(scope, node, items)
    found = ranges(scope, items)
    axis, steps = found[0] if len(found) == 1 else (0, None)
    others = items[:axis] + items[axis + 1 :]
    if steps is None or scope.varies(*others):
        raise Blocked(f"{shown(scope.program, node)} is not one step of a sequence", node)
    numbers = dropped_axes(scope, node, others)
    fewer = len(numbers) + (0 if steps.kept else 1)
    code = scope.code(whole)
    of = f"{ast.unparse(code)} {fewer} {'' if isinstance(code, ast.Name) else scope.program.span(whole)}"
    parts = [item_code(scope, item) for item in items]
    parts[axis] = steps.slice(is_whole=_is_length(scope, whole, axis, steps))
    at = axis - sum(each in numbers for each in items[:axis])
    step = Batched(indexed(code, parts), at, len(items) - fewer, kept=steps.kept, of=of)
    rank = scope.rank(whole)
    return step if rank is None else step.narrowed(rank - fewer, rank - fewer)


def _picked(scope: Scope, node: ast.Subscript, items: list[ast.expr]) -> Batched:
    """`scores[t, rows, labels[t]]`, by tensors of numbers, with those of all steps side by side."""
    values = [counter(scope, item) or scope.lift(item) for item in items]
    ranks = [0 if isinstance(each, Induction) else getattr(each, "rank", None) for each in values]
    least = max(rank or 0 for rank in ranks)
    if None in ranks or not all(_picks_by_numbers(scope, item) for item in items):
        raise Blocked(f"{shown(scope.program, node)} is not known to pick by numbers", node)
    wide = [each for each in values if not isinstance(each, Invariant) or each.rank]
    axis = wide[0].axis if len(wide) == 1 and isinstance(wide[0], Batched) else 0
    parts = [_index_of_steps(scope, node, each, least, axis) for each in values]
    whole = scope.rank(node.value)
    most = MANY if whole is None else least + whole - len(items)
    code = indexed(scope.code(node.value), parts)
    return Batched(code, axis, least if whole is None else most, most, own=True, fresh=True)


def _index_of_steps(scope: Scope, node: ast.Subscript, value: Value, rank: int, axis: int) -> ast.expr:
    """An index of all steps along `axis`, of which one has `rank` axes or is broadcast to them."""
    if isinstance(value, Induction):
        if not scope.facts.torch:
            raise Blocked("`torch` is not imported by that name", node)
        template = "{torch}.arange({first}, {stop}, device={x}.device)" + ".unsqueeze(1)" * rank
        first, stop, x = plus(value.first, value.offset), plus(value.stop, value.offset), scope.code(node.value)
        made = expression(template, torch=scope.facts.torch, first=first, stop=stop, x=x)
        return reference(scope.bound(made))
    if not isinstance(value, Batched):
        assert isinstance(value, Invariant)
        return value.code
    if value.kept:
        raise Blocked(f"{shown(scope.program, node)} is not one step of a sequence", node)
    return expression("{x}" + ".unsqueeze(1)" * (rank - value.least), x=value.at(axis).code)


def _picks_by_numbers(scope: Scope, item: ast.expr) -> bool:
    """Is it no mask, by which as much is picked as it has set?"""
    if counter(scope, item) is not None or integer(item) is not None:
        return True
    made = operation(scope.program, item)
    is_counted = made is not None and made.name == "arange"
    return is_counted or scope.program.value(item).dtype == "int" or is_wide_integer(scope.program, item)


def _is_length(scope: Scope, base: ast.expr, axis: int, steps: Range) -> bool:
    if steps.end is not None:
        return scope.is_length(steps.end, base, axis)
    size = scope.program.get(Shapes).shape(base).size(axis)
    is_own_size = same_code(steps.stop, expression("{x}.size({axis})", x=scope.code(base), axis=axis))
    return is_own_size or (bool(size) and ast.unparse(steps.stop) == size)


def part_of_step(scope: Scope, node: ast.Subscript, base: Batched) -> Batched:
    """An index into one step: axes from time on stand one further back among all steps."""
    items = elements_of(node.slice)
    if scope.varies(*items):
        raise Blocked(f"{shown(scope.program, node)} picks something else in each step", node)
    dropped = dropped_axes(scope, node, items)
    parts = [item_code(scope, item) for item in items]
    numbers = [item in dropped for item in items]
    if base.kept:
        return _part_of_kept(node, base, items, parts, numbers)
    at = base if base.axis <= len(items) and not any(numbers[: base.axis]) else base.at(0)
    parts = [*parts[: at.axis], new(ast.Slice()), *parts[at.axis :]]
    return at.narrowed(len(items)).with_axes(-sum(numbers), indexed(at.code, parts, whole=True))


def _part_of_kept(
    node: ast.Subscript, base: Batched, items: list[ast.expr], parts: list[ast.expr], numbers: list[bool]
) -> Batched:
    if len(items) <= base.axis or any(numbers[: base.axis]) or integer(items[base.axis]) not in (0, -1):
        raise Blocked("an axis before time is dropped", node)
    parts[base.axis] = new(ast.Slice())
    code = indexed(base.code, parts)
    whole = replace(base, code=code).narrowed(len(items)).squeezed()
    return whole.with_axes(-sum(numbers[base.axis + 1 :]), code)


def split_of(scope: Scope, node: ast.expr) -> Split | None:
    """What the steps that `node` holds were taken from; None where it is not known to hold any. Raises Blocked."""
    is_given = isinstance(node, ast.Name) and scope.callee is None and scope.read(node) is None
    call = scope.start(node) if isinstance(node, ast.Name) and is_given else node
    if not isinstance(call, ast.Call) or not torch_ops.does(name_called(call), "parting"):
        return None
    whole, axis = split_base(call), split_axis(call)
    rank = scope.rank(whole)
    if axis is None or (axis < 0 and rank is None):
        raise Blocked("the axis for time is not known", call)
    axis = axis if axis >= 0 else axis + (rank or 0)
    if not _are_single(scope, call, whole, axis):
        raise Blocked("several steps are taken at once", call)
    if call is not node and _may_be_another(scope, call, whole):
        raise Blocked(f"{shown(scope.program, whole)} may be another one than was taken apart", call)
    if isinstance(node, ast.Name):
        scope.draft.unread.add(node.id)
    return Split(whole, axis, kept=name_called(call) != "unbind")


def _are_single(scope: Scope, call: ast.Call, whole: ast.expr, axis: int) -> bool:
    if name_called(call) == "split":
        return integer(split_size(call)) == 1
    if name_called(call) == "unbind":
        return True
    count = split_size(call)
    is_tensor = scope.program.value(whole).kind is Kind.TENSOR
    return is_tensor and count is not None and scope.is_length(count, whole, axis)


def _may_be_another(scope: Scope, call: ast.Call, whole: ast.expr) -> bool:
    """May `whole` be another tensor, or have other axes, in the loop than where it was taken apart?"""
    graph, loop, points = scope.graph, scope.facts.loop, scope.program.get(Memory).points_to(call)
    if not isinstance(whole, ast.Name) or graph.is_shared(whole.id) or scope.flow.graph(call) is not graph:
        return True
    changed = (
        each.node for each in points.writes if isinstance(each.node, ast.Call) and each.reaches(points.of(whole))
    )
    bound = (each.node for each in graph.bindings[whole.id])
    return any(node in scope.facts.inside or graph.reaches(call, node, avoiding=loop) for node in (*bound, *changed))
