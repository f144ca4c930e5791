"""Lifts what works along axes, or moves, joins, parts or drops them: behind time, their numbers are higher by one."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from perflint.analysis.values.shapes.shape import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.text import atom
from perflint.transforms.vectorize.forms import Call, constants, keywords, read
from perflint.transforms.vectorize.operations import Operation
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.steps import Lifted, Parts, Steps, in_front, loosened, squeezed, unsqueezed


def laid_out(scope: Scope, operation: Operation, value: Steps) -> Lifted:
    """An operation on the axes of one tensor, all else being the same in every step; raises Blocked."""
    if (rule := _WITHOUT_FORM.get(operation.name)) is not None:
        return rule(scope, operation, in_front(value))
    call = read(operation)
    if call is None:
        raise Blocked(f"there is no rule for all steps of `{operation.name}` at once", operation.node)
    if not call.axes:
        return _in_total(operation, in_front(value))
    if (on_time := _on_time(call, value)) is not None:
        return on_time
    placed, shift = _placed(call, value)
    return _RULES.get(operation.name, _made)(scope, call, placed, _text(scope, call, placed, shift))


def _in_total(operation: Operation, value: Steps) -> Steps:
    """`x.sum()`: over all axes of a step."""
    if not value.least:
        raise Blocked("a step is not known to have an axis", operation.node)
    return Steps(f"{atom(value.text)}.flatten(1).{operation.name}(1)", 0, 0, 0, own=True)


def _on_time(call: Call, value: Steps) -> Steps | None:
    """A step that gets an axis of size 1 where the axis for time is, or loses it; None of any other operation."""
    axis = call.all_axes[0]
    if call.operation.name == "unsqueeze" and not value.kept and axis in (0, 1) and value.least >= axis:
        return unsqueezed(value, axis)
    if call.operation.name == "squeeze" and value.kept and axis == value.axis:
        return squeezed(value)
    return None


def _placed(call: Call, value: Steps) -> tuple[Steps, int]:
    """`value` with time where the axes leave it, and by how much those that are counted from the front are higher."""
    fewer, axes = call.form.fewer, call.all_axes
    least = max(axis + 1 if axis >= 0 else -axis for axis in axes) + min(fewer or 0, 0)  # a new axis is one of them
    if value.kept and fewer:
        value = loosened(value)
    value = value.narrowed(least)
    if all(axis < 0 for axis in axes):
        stays = value.behind >= least
    else:
        stays = value.kept and all(axis >= 0 and axis != value.axis for axis in axes)
    return (value, 0) if stays and fewer is not None else (in_front(value), 1)


def _text(scope: Scope, call: Call, value: Steps, shift: int) -> str:
    """The call on all steps, in which axes that are counted from the front are by `shift` higher."""
    named = {name for name, _ in keywords(call.node)}
    found = ((name, _argument(scope, call, name, shift)) for name in call.given)
    texts = [f"{name}={text}" if name in named else text for name, text in found]
    left_out = [(name, axes[0]) for name, axes in call.axes.items() if name not in call.given]
    texts += [f"{name}={_shifted(axis, shift)}" for name, axis in left_out if axis >= 0]
    return call.operation.told(scope, value, texts)


def _shifted(axis: int, shift: int) -> int:
    return axis if axis < 0 else axis + shift


def _argument(scope: Scope, call: Call, name: str, shift: int) -> str:
    """An argument, as all steps take it."""
    given = call.given[name]
    if name in call.axes:
        new = [_shifted(axis, shift) for axis in call.axes[name]]
        return str(tuple(new) if isinstance(given, ast.Tuple | ast.List) else new[0])
    if scope.varies(given):
        raise Blocked(f"`{name}` is another one in each step", given)
    return invariant(scope, given).text


def _made(scope: Scope, call: Call, value: Steps, text: str) -> Lifted:
    """What the operation gives, where its form tells."""
    made = value.with_axes(-call.fewer, text) if call.fewer else replace(value, text=text, dense=False)
    made = made if call.form.is_view else made.computed(text)
    return _pair(scope, made) if call.form.is_pair else made


def _pair(scope: Scope, value: Steps) -> Parts:
    """Values and indices, which have the same shape."""
    pair = scope.bound(value.text)
    return Parts((value.named(f"{pair}[0]"), value.named(f"{pair}[1]")))


def _chunks(scope: Scope, call: Call, value: Steps, text: str) -> Parts:
    parts = integer(call.given.get("chunks"))
    if parts is None or parts < 1:
        raise Blocked("it is not known how many parts there are", call.node)
    chunks = scope.bound(text)
    return Parts(tuple(value.with_axes(0, f"{chunks}[{part}]") for part in range(parts)))


def _squeezed(scope: Scope, call: Call, value: Steps, text: str) -> Steps:
    """An axis of another size than 1 stays: it is the same in each step."""
    return replace(value.with_axes(-1, text), most=value.most, of=f"{text} {scope.program.span(call.node)}")


def _flattened(scope: Scope, call: Call, value: Steps, text: str) -> Steps:
    first, last = call.all_axes
    if value.least <= max(first, 0):
        raise Blocked("a step is not known to have an axis", call.node)
    if first >= 0 and last == -1:
        return replace(value, text=text, least=first + 1, most=first + 1, dense=False, of="")
    if (first < 0) is not (last < 0):
        raise Blocked("it is not known how many axes are left", call.node)
    return value.with_axes(first - last, text)


def _permuted(scope: Scope, operation: Operation, value: Steps) -> Steps:
    axes = constants(ast.Tuple(operation.sizes), operation.node)
    if operation.node.keywords:
        raise Blocked("the new order of the axes is not in sight", operation.node)
    value = value.narrowed(len(axes), len(axes))
    order = ", ".join(str(_shifted(axis, 1)) for axis in axes)
    return value.with_axes(0, f"{atom(value.text)}.permute(0, {order})")


def _widened(scope: Scope, operation: Operation, value: Steps) -> Steps:
    """`x.expand(2, -1)` and `x.repeat(1, 3)`: new axes come behind time."""
    sizes, node, is_view = operation.sizes, operation.node, operation.name == "expand"
    if value.rank is None or len(sizes) < value.rank or node.keywords:
        raise Blocked("it is not known how many axes a step has", node)
    if any(isinstance(size, ast.Starred) or scope.varies(size) for size in sizes):
        raise Blocked("the new shape is not known to be the same in each step", node)
    if len(sizes) == 1 and integer(sizes[0]) is None:
        raise Blocked("the new shape is not in sight", node)
    more = len(sizes) - value.rank
    texts = ["-1" if is_view else "1", *(invariant(scope, size).text for size in sizes)]
    wide = atom(value.text) + ".unsqueeze(1)" * more
    made = value.with_axes(more, f"{wide}.{operation.name}({', '.join(texts)})")
    return made if is_view else made.computed(made.text)


_RULES: dict[str, Callable[[Scope, Call, Steps, str], Lifted]] = {
    "chunk": _chunks,
    "flatten": _flattened,
    "squeeze": _squeezed,
}
_WITHOUT_FORM: dict[str, Callable[[Scope, Operation, Steps], Lifted]] = {
    "permute": _permuted,
    **dict.fromkeys(("expand", "repeat"), _widened),
}
