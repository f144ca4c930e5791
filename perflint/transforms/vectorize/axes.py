"""Lifts what names axes by number: they move behind the time axis."""

from __future__ import annotations

import ast

from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.template import expression, number, reference
from perflint.transforms.vectorize.operations import Operation
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.steps import Same, Steps, in_front, written


def joined_axis(node: ast.Call) -> int | None:
    """The axis along which a stack or a concatenation joins its parts; None where that is no constant."""
    given = [keyword.value for keyword in node.keywords if keyword.arg in ("dim", "axis")] or node.args[1:2]
    return integer(given[0]) if given else 0


def with_axes_behind(value: Steps, count: int, node: ast.AST) -> Steps:
    """`value` so that at least `count` axes are behind the time axis; raises Blocked."""
    value = value.narrowed(count)  # or the step itself would fail
    if value.behind >= count:
        return value
    if value.kept:
        raise Blocked(f"`{written(value)}` is not known to have an axis for features", node)
    return value.at(0)


def measured(node: ast.expr, given: ast.expr | None, value: Steps | Same) -> Same:
    """The size of the axis `given` of one step, which is the same in each."""
    axis = integer(given)
    if not isinstance(value, Steps) or axis is None:
        raise Blocked("it is not known which axis is measured", node)
    if value.kept and axis == value.axis:
        return Same(number(1), 0, is_number=True)
    front = value if axis >= 0 else in_front(value)
    behind = axis >= 0 and not value.kept and axis >= value.axis
    size = expression("{x}.size({axis})", x=front.code, axis=axis + 1 if behind else axis)
    return Same(size, 0, is_number=True)


def reshaped(scope: Scope, operation: Operation, value: Steps) -> Steps:
    """`x.view(batch, -1)` as `x.reshape(steps, batch, -1)`, time in front."""
    sizes, node = operation.sizes, operation.node
    lengths = [None if isinstance(size, ast.Starred) else scope.lift(size) for size in sizes]
    if not sizes or not all(isinstance(length, Same) for length in lengths):
        raise Blocked("the new shape is not known to be the same in each step", node)
    if len(sizes) == 1 and integer(sizes[0]) is None:
        raise Blocked("the new shape is not in sight", node)
    ones = [integer(size) == 1 for size in sizes]
    if integer(sizes[-1]) == -1 and all(ones[:-1]) and value.least > (1 if value.kept and value.axis == 0 else 0):
        return _flattened(value, len(sizes))
    front = scope.bound(value.code if value.kept and value.axis == 0 else in_front(value).code)
    shape = [expression("{x}.size(0)", x=front), *(each.code for each in lengths if isinstance(each, Same))]
    rank = len(sizes)
    if ones[0] and rank > 1:
        del shape[1]
        return Steps(expression("{x}.reshape({*shape})", x=front, shape=shape), 0, rank, rank, kept=True, own=value.own)
    if rank > 2 and ones[1]:
        del shape[2]
        code = expression("{x}.reshape({*shape}).transpose(0, 1)", x=front, shape=shape)
        return Steps(code, 1, rank, rank, kept=True, own=value.own)
    return Steps(expression("{x}.reshape({*shape})", x=front, shape=shape), 0, rank, rank, own=value.own)


def _flattened(value: Steps, rank: int) -> Steps:
    """`x.view(1, 1, -1)`: all numbers of a step in one axis, behind axes of size 1."""
    is_front = value.kept and value.axis == 0
    whole = value.code if is_front else in_front(value).code
    code = whole if value.rank == (2 if is_front else 1) else expression("{x}.flatten(1)", x=whole)
    if rank == 1:
        return Steps(code, 0, 1, 1, own=value.own)
    code = expression("{x}" + ".unsqueeze(1)" * (rank - 2), x=code)
    return Steps(code, 0, rank, rank, kept=True, own=value.own)


def joined(scope: Scope, node: ast.Call, *, is_stack: bool) -> Steps:
    """`torch.cat([a, b], dim=-1)` or `torch.stack` of steps, along an axis of one step."""
    parts = node.args[0] if node.args else None
    axis = joined_axis(node)
    if not isinstance(parts, ast.List | ast.Tuple) or axis is None:
        raise Blocked("what is concatenated is not in sight", node)
    steps = _repeated(scope, [tensor(scope.lift(part), part) for part in parts.elts], node, 0 if is_stack else 1)
    if is_stack:
        steps = [in_front(value) for value in steps]
    if len({value.kept for value in steps}) > 1 or (steps[0].kept and len({value.axis for value in steps}) > 1):
        raise Blocked("steps with and without an axis for time meet", node)
    least = max(value.least for value in steps)
    most = min(value.most for value in steps)
    steps = [value.narrowed(least, most) for value in steps]  # each must have as many axes
    steps, new = (steps, axis if axis < 0 else axis + 1) if is_stack else _aligned(steps, axis, node)
    listed = scope.code(parts, {part: value.code for part, value in zip(parts.elts, steps, strict=True)})
    code = expression("{f}({parts}, dim={dim})", f=scope.code(node.func), parts=listed, dim=new)
    return steps[0].with_axes(1 if is_stack else 0, code).computed(code, dense=True, fresh=True)


def _aligned(steps: list[Steps], axis: int, node: ast.Call) -> tuple[list[Steps], int]:
    """The steps with time along the same axis, and where the one is that they are joined along."""
    if axis < 0 and min(value.behind for value in steps) >= -axis:
        return [value if value.kept else value.at(steps[0].axis) for value in steps], axis
    if steps[0].kept:
        if axis == steps[0].axis or axis < 0:
            raise Blocked("steps are concatenated along time", node)
        return steps, axis
    steps = [value.at(0) for value in steps]
    if axis < 0:
        with_axes_behind(steps[0], -axis, node)
    return steps, axis if axis < 0 else axis + 1


def _repeated(scope: Scope, values: list[Steps | Same], node: ast.expr, least: int) -> list[Steps]:
    """`values` with those that are the same in every step as a view of as many steps as the others have."""
    first = next((value for value in values if isinstance(value, Steps)), None)
    if first is None:
        raise Blocked("no step of a sequence is concatenated", node)
    if all(isinstance(value, Steps) for value in values):
        return [value for value in values if isinstance(value, Steps)]
    counted = scope.bound(in_front(first).code)
    found: list[Steps] = []
    for value in values:
        if isinstance(value, Steps):
            front = in_front(value)
            found.append(front.named(reference(counted)) if value is first else front)
        else:
            code = expression("{x}.expand({steps}.size(0), *{x}.shape)", x=value.code, steps=counted)
            found.append(Steps(code, 0, least))
    return found
