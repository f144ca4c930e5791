"""Lifts what works along axes, or moves, joins, parts or drops them: behind time, their numbers are higher by one."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import new
from perflint.transforms.template import expression, number
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
    return _RULES.get(operation.name, _made)(scope, call, placed, _told(scope, call, placed, shift))


def _in_total(operation: Operation, value: Steps) -> Steps:
    """`x.sum()`: over all axes of a step."""
    if not value.least:
        raise Blocked("a step is not known to have an axis", operation.node)
    code = expression("{x}.flatten(1).{name}(1)", x=value.code, name=operation.name)
    return Steps(code, 0, 0, 0, own=True)


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


def _told(scope: Scope, call: Call, value: Steps, shift: int) -> ast.expr:
    """The call on all steps, in which axes that are counted from the front are by `shift` higher."""
    named = {name for name, _ in keywords(call.node)}
    found = {name: _argument(scope, call, name, shift) for name in call.given}
    words = {name: given for name, given in found.items() if name in named}
    left_out = [(name, axes[0]) for name, axes in call.axes.items() if name not in call.given]
    words |= {name: number(_shifted(axis, shift)) for name, axis in left_out if axis >= 0}
    return call.operation.told(scope, value, [found[name] for name in found if name not in named], words)


def _shifted(axis: int, shift: int) -> int:
    return axis if axis < 0 else axis + shift


def _argument(scope: Scope, call: Call, name: str, shift: int) -> ast.expr:
    """An argument, as all steps take it."""
    given = call.given[name]
    if name in call.axes:
        axes = [number(_shifted(axis, shift)) for axis in call.axes[name]]
        return new(ast.Tuple(axes, ast.Load())) if isinstance(given, ast.Tuple | ast.List) else axes[0]
    if scope.varies(given):
        raise Blocked(f"`{name}` is another one in each step", given)
    return invariant(scope, given).code


def _made(scope: Scope, call: Call, value: Steps, code: ast.expr) -> Lifted:
    """What the operation gives, where its form tells."""
    made = value.with_axes(-call.fewer, code) if call.fewer else replace(value, code=code, dense=False)
    made = made if call.form.is_view else made.computed(code)
    return _pair(scope, made) if call.form.is_pair else made


def _pair(scope: Scope, value: Steps) -> Parts:
    """Values and indices, which have the same shape."""
    pair = scope.bound(value.code)
    first, second = (expression("{pair}[{at}]", pair=pair, at=at) for at in (0, 1))
    return Parts((value.named(first), value.named(second)))


def _chunks(scope: Scope, call: Call, value: Steps, code: ast.expr) -> Parts:
    parts = integer(call.given.get("chunks"))
    if parts is None or parts < 1:
        raise Blocked("it is not known how many parts there are", call.node)
    chunks = scope.bound(code)
    return Parts(tuple(value.with_axes(0, expression("{x}[{at}]", x=chunks, at=at)) for at in range(parts)))


def _squeezed(scope: Scope, call: Call, value: Steps, code: ast.expr) -> Steps:
    """An axis of another size than 1 stays: it is the same in each step."""
    of = f"{ast.unparse(code)} {scope.program.span(call.node)}"
    return replace(value.with_axes(-1, code), most=value.most, of=of)


def _flattened(scope: Scope, call: Call, value: Steps, code: ast.expr) -> Steps:
    first, last = call.all_axes
    if value.least <= max(first, 0):
        raise Blocked("a step is not known to have an axis", call.node)
    if first >= 0 and last == -1:
        return replace(value, code=code, least=first + 1, most=first + 1, dense=False, of="")
    if (first < 0) is not (last < 0):
        raise Blocked("it is not known how many axes are left", call.node)
    return value.with_axes(first - last, code)


def _permuted(scope: Scope, operation: Operation, value: Steps) -> Steps:
    axes = constants(ast.Tuple(operation.sizes), operation.node)
    if operation.node.keywords:
        raise Blocked("the new order of the axes is not in sight", operation.node)
    value = value.narrowed(len(axes), len(axes))
    order = [number(_shifted(axis, 1)) for axis in axes]
    return value.with_axes(0, expression("{x}.permute(0, {*order})", x=value.code, order=order))


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
    shape = [number(-1 if is_view else 1), *(invariant(scope, size).code for size in sizes)]
    template = "{x}" + ".unsqueeze(1)" * more + ".{name}({*shape})"
    made = value.with_axes(more, expression(template, x=value.code, name=operation.name, shape=shape))
    return made if is_view else made.computed(made.code)


_RULES: dict[str, Callable[[Scope, Call, Steps, ast.expr], Lifted]] = {
    "chunk": _chunks,
    "flatten": _flattened,
    "squeeze": _squeezed,
}
_WITHOUT_FORM: dict[str, Callable[[Scope, Operation, Steps], Lifted]] = {
    "permute": _permuted,
    **dict.fromkeys(("expand", "repeat"), _widened),
}
