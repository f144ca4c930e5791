"""Lifts what names axes by number: they move behind the time axis."""

from __future__ import annotations

import ast

from perflint.fixes.blocked import Blocked
from perflint.fixes.text import atom
from perflint.lift.layouts import laid_out
from perflint.lift.scope import Scope, tensor
from perflint.lift.steps import Lifted, Same, Steps, in_front, loosened, squeezed, unsqueezed
from perflint.program.shapes.shape import integer

_ON_AXIS = frozenset({"softmax", "log_softmax", "cumsum"})
_REDUCTIONS = frozenset({"sum", "mean", "argmax", "argmin", "prod", "logsumexp", "amax", "amin"})


def axis_argument(node: ast.Call, operands: list[ast.expr]) -> ast.expr | None:
    """The axis that a call with these operands, a tensor or tensors first, is told; None where it is told none."""
    given = [keyword.value for keyword in node.keywords if keyword.arg in ("dim", "axis")] or operands[1:2]
    return given[0] if given else None


def joined_axis(node: ast.Call) -> int | None:
    """The axis along which a stack or a concatenation joins its parts; None where that is no constant."""
    given = axis_argument(node, node.args)
    return 0 if given is None else integer(given)


def with_axes_behind(value: Steps, count: int, node: ast.AST) -> Steps:
    """`value` so that at least `count` axes are behind the time axis; raises Blocked."""
    value = value.narrowed(count)  # or the step itself would fail
    if value.behind >= count:
        return value
    if value.kept:
        raise Blocked(f"`{value.text}` is not known to have an axis for features", node)
    return value.at(0)


RULES = _ON_AXIS | _REDUCTIONS | {"unsqueeze", "squeeze"}


def lift_axes(scope: Scope, node: ast.Call, name: str, operands: list[ast.expr], value: Steps) -> Lifted:
    """A method or function, called `name`, of one tensor and numbers of axes; raises Blocked."""
    axis = integer(axis_argument(node, operands))
    if name == "unsqueeze" and not value.kept and axis in (0, 1) and value.least >= axis:
        return unsqueezed(value, axis)
    if name == "squeeze" and value.kept and axis == value.axis:
        return squeezed(value)
    if name in _ON_AXIS or (name in _REDUCTIONS and not _names_several(node, operands)):
        return _along(scope, node, name, operands, value)
    return laid_out(scope, node, name, operands, value)


def _names_several(node: ast.Call, operands: list[ast.expr]) -> bool:
    return isinstance(axis_argument(node, operands), ast.Tuple | ast.List)


def measured(node: ast.expr, operands: list[ast.expr], value: Steps | Same) -> Same:
    """The size of an axis of one step, which is the same in each."""
    axis = integer(operands[1]) if len(operands) == 2 else None
    if not isinstance(value, Steps) or axis is None:
        raise Blocked("it is not known which axis is measured", node)
    if value.kept and axis == value.axis:
        return Same("1", 0, is_number=True)
    front = value if axis >= 0 else in_front(value)
    behind = axis >= 0 and not value.kept and axis >= value.axis
    return Same(f"{atom(front.text)}.size({axis + 1 if behind else axis})", 0, is_number=True)


def _along(scope: Scope, node: ast.Call, name: str, operands: list[ast.expr], value: Steps) -> Steps:
    argument = axis_argument(node, operands)
    axis = integer(argument)
    if (
        argument is None
        and name in ("sum", "mean")
        and value.least
        and not value.kept
        and len(operands) == 1
        and not node.keywords
    ):
        return Steps(f"{atom(value.at(0).text)}.flatten(1).{name}(1)", 0, 0, 0, own=True)
    if argument is None or axis is None:
        raise Blocked(f"`{name}` is told no single axis", node)
    if value.kept and (axis == value.axis or name in _REDUCTIONS):
        value = loosened(value)
    if axis < 0:
        value = with_axes_behind(value, -axis, node)
        new = axis
    else:
        value = (value if value.kept else value.at(0)).narrowed(axis + 1)
        new = axis if value.kept else axis + 1
    replaced: dict[ast.expr, str] = {operands[0]: _operand(node, operands[0], value.text)}
    if new != axis:
        replaced[argument] = str(new)
    text = scope.text(node, replaced)
    if name in _ON_AXIS:
        return value.computed(text)
    keeps = next((each.value for each in node.keywords if each.arg in ("keepdim", "keepdims")), None)
    keeps = keeps or (operands[2] if len(operands) > 2 else ast.Constant(False))
    if not isinstance(keeps, ast.Constant):
        raise Blocked("it is not known whether the axis is kept", node)
    return value.computed(text) if keeps.value is True else value.computed(text).with_axes(-1, text)


def _operand(node: ast.Call, operand: ast.expr, text: str) -> str:
    return atom(text) if isinstance(node.func, ast.Attribute) and node.func.value is operand else text


def reshaped(scope: Scope, node: ast.Call, operands: list[ast.expr], value: Steps) -> Steps:
    """`x.view(batch, -1)` as `x.reshape(steps, batch, -1)`, time in front."""
    sizes = operands[1:]
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
        sizes = sizes[0].elts
    lengths = [Same("*") if isinstance(size, ast.Starred) else scope.lift(size) for size in sizes]
    if not sizes or any(not isinstance(length, Same) or length.text == "*" for length in lengths):
        raise Blocked("the new shape is not known to be the same in each step", node)
    if len(sizes) == 1 and integer(sizes[0]) is None:
        raise Blocked("the new shape is not in sight", node)
    ones = [integer(size) == 1 for size in sizes]
    if integer(sizes[-1]) == -1 and all(ones[:-1]) and value.least > (1 if value.kept and value.axis == 0 else 0):
        return _flattened(value, len(sizes))
    front = scope.bound(value.text if value.kept and value.axis == 0 else in_front(value).text)
    texts = [f"{front}.size(0)", *(length.text for length in lengths if isinstance(length, Same))]
    rank = len(sizes)
    if ones[0] and rank > 1:
        del texts[1]
        return Steps(f"{front}.reshape({', '.join(texts)})", 0, rank, rank, kept=True)
    if rank > 2 and ones[1]:
        del texts[2]
        return Steps(f"{front}.reshape({', '.join(texts)}).transpose(0, 1)", 1, rank, rank, kept=True)
    return Steps(f"{front}.reshape({', '.join(texts)})", 0, rank, rank)


def _flattened(value: Steps, rank: int) -> Steps:
    """`x.view(1, 1, -1)`: all numbers of a step in one axis, behind axes of size 1."""
    is_front = value.kept and value.axis == 0
    whole = value.text if is_front else in_front(value).text
    text = whole if value.rank == (2 if is_front else 1) else f"{atom(whole)}.flatten(1)"
    if rank == 1:
        return Steps(text, 0, 1, 1)
    if rank == 2:
        return Steps(text, 0, 2, 2, kept=True)
    return Steps(f"{atom(text)}{'.unsqueeze(1)' * (rank - 2)}", 0, rank, rank, kept=True)


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
    listed = scope.text(parts, {part: value.text for part, value in zip(parts.elts, steps, strict=True)})
    text = f"{scope.text(node.func)}({listed}, dim={new})"
    return steps[0].with_axes(1 if is_stack else 0, text).computed(text, dense=True)


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
    counted = scope.bound(in_front(first).text)
    found: list[Steps] = []
    for value in values:
        if isinstance(value, Steps):
            front = in_front(value)
            found.append(front.named(counted) if value is first else front)
        else:
            text = atom(value.text)
            found.append(Steps(f"{text}.expand({counted}.size(0), *{text}.shape)", 0, least))
    return found
