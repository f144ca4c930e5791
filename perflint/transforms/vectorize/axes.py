"""The batching rules of operations: elementwise, products, and along axes, numbered one higher after the time axis."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from perflint.analysis.values.operations import TorchCall
from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import new
from perflint.transforms.template import expression, number, reference
from perflint.transforms.vectorize.modules import invariant
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Invariant, Parts, Value, written

_NO_AXES = frozenset({"keepdim", "unbiased", "correction", "dtype"})  # what more an operation may be told
_MEANT = {"axis": "dim", "keepdims": "keepdim"}  # other words for the same

_NEED_NO_RESULT = (ast.Add, ast.Sub, ast.Mult, ast.Div)  # for their gradients
_RANKS = {"mm": 2, "bmm": 3}

Operands = list[Batched | Invariant]


def no_rule(operation: TorchCall) -> Blocked:
    """That there is no batching rule."""
    return Blocked(f"there is no rule for all steps of `{operation.name}` at once", operation.call)


def applied(scope: Scope, operation: TorchCall, value: Batched) -> ast.expr:
    """The call, of `value` in the place of the tensor."""
    assert operation.tensor is not None
    return scope.code(operation.call, {operation.tensor: value.code})


@dataclass(frozen=True)
class _Call:
    """An operation with the arguments `given` to it and the `axes` they name, by parameter."""

    operation: TorchCall
    given: dict[str, ast.expr]
    axes: dict[str, tuple[int, ...]]

    @property
    def node(self) -> ast.Call:
        return self.operation.call

    @property
    def all_axes(self) -> list[int]:
        """The axes that it works on."""
        return [axis for each in self.axes.values() for axis in each]

    @property
    def fewer(self) -> int | None:
        """How many axes go where one is named and not kept; None where the size tells."""
        does = self.operation.does
        if does.name == "squeeze":
            return None
        reduces = does.does("reduction") or "keepdim" in does.axes or does.name == "select"
        return 1 if reduces else -1 if does.name == "unsqueeze" else 0

    @property
    def gone(self) -> int:
        """How many axes go."""
        keeps = self.given.get("keepdim", ast.Constant(False))
        if not isinstance(keeps, ast.Constant):
            raise Blocked("it is not known whether the axis is kept", self.node)
        return 0 if keeps.value is True else (self.fewer or 0) * max(map(len, self.axes.values()))


def along_axes(scope: Scope, operation: TorchCall, value: Batched) -> Value:
    """An operation on the axes of one tensor, all else being the same in every step; raises Blocked."""
    call = _read(operation)
    if not call.axes:
        return _in_total(operation, value.in_front())
    axis = call.all_axes[0]
    if operation.name == "unsqueeze" and not value.kept and axis in (0, 1) and value.least >= axis:
        return value.unsqueezed(axis)
    if operation.name == "squeeze" and value.kept and axis == value.axis:
        return value.squeezed()
    placed, shift = _placed(call, value)
    code = _told(scope, call, placed, shift)
    return _squeezed(scope, call, placed, code) if operation.name == "squeeze" else _made(scope, call, placed, code)


def _read(operation: TorchCall) -> _Call:
    """The operation with what it is told; raises Blocked."""
    if not operation.does.axes:
        raise no_rule(operation)
    words = [each.partition(":") for each in operation.does.axes]
    parameters = [name for name, _, _ in words]
    arguments = [*operation.arguments]
    if parameters == ["dims"] and len(arguments) > 1:
        arguments = [ast.Tuple(arguments)]
    if len(arguments) > len(parameters):
        raise Blocked("it gets more than axes", operation.call)
    given: dict[str, ast.expr] = dict(zip(parameters, arguments, strict=False))
    for name, value in _keywords(operation.call):
        if name not in (*parameters, *_NO_AXES):
            raise Blocked(f"`{name}` is not known to leave the axes alone", operation.call)
        given[name] = value
    if not given and operation.does.does("reduction") and not operation.does.does("pairing") and words[0][1]:
        return _Call(operation, given, {})
    axes = {name: _axes(given.get(name), default, operation) for name, is_axis, default in words if is_axis}
    return _Call(operation, given, axes)


def _keywords(node: ast.Call) -> list[tuple[str, ast.expr]]:
    """The keywords of a call, each as torch calls it first."""
    return [(_MEANT.get(each.arg or "", each.arg or "**"), each.value) for each in node.keywords]


def _axes(given: ast.expr | None, default: str, operation: TorchCall) -> tuple[int, ...]:
    """The axes that an argument names."""
    if given is None and default:
        return (int(default),)
    if given is None:
        raise Blocked(f"`{operation.name}` is told no axis", operation.call)
    parts = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
    found = [axis for part in parts if (axis := integer(part)) is not None]
    if len(found) != len(parts) or not found:
        raise Blocked("which axis is meant is no constant", operation.call)
    return tuple(found)


def _in_total(operation: TorchCall, value: Batched) -> Batched:
    """`x.sum()`: over all axes of a step."""
    if not value.least:
        raise Blocked("a step is not known to have an axis", operation.call)
    code = expression("{x}.flatten(1).{name}(1)", x=value.code, name=operation.name)
    return Batched(code, 0, 0, 0, own=True)


def _placed(call: _Call, value: Batched) -> tuple[Batched, int]:
    """`value` with time where the axes leave it, and by how much those that are counted from the front are higher."""
    fewer, axes = call.fewer, call.all_axes
    least = max(axis + 1 if axis >= 0 else -axis for axis in axes) + min(fewer or 0, 0)  # a new axis is one of them
    if value.kept and fewer:
        value = value.loosened()
    value = value.narrowed(least)
    if all(axis < 0 for axis in axes):
        stays = value.axes_after >= least
    else:
        stays = value.kept and all(axis >= 0 and axis != value.axis for axis in axes)
    return (value, 0) if stays and fewer is not None else (value.in_front(), 1)


def _told(scope: Scope, call: _Call, value: Batched, shift: int) -> ast.expr:
    """The call on all steps, in which axes that are counted from the front are by `shift` higher."""
    named = {name for name, _ in _keywords(call.node)}
    found = {name: _argument(scope, call, name, shift) for name in call.given}
    words = {name: given for name, given in found.items() if name in named}
    left_out = [(name, axes[0]) for name, axes in call.axes.items() if name not in call.given]
    words |= {name: number(shifted(axis, shift)) for name, axis in left_out if axis >= 0}
    arguments = [found[name] for name in found if name not in named]
    keywords = [new(ast.keyword(name, given)) for name, given in words.items()]
    func = call.node.func
    if isinstance(func, ast.Attribute) and func.value is call.operation.tensor:
        return new(ast.Call(new(ast.Attribute(value.code, func.attr, ast.Load())), arguments, keywords))
    return new(ast.Call(scope.code(func), [value.code, *arguments], keywords))


def shifted(axis: int, shift: int) -> int:
    """The number of an axis after `shift` axes more."""
    return axis if axis < 0 else axis + shift


def _argument(scope: Scope, call: _Call, name: str, shift: int) -> ast.expr:
    """An argument, as all steps take it."""
    given = call.given[name]
    if name in call.axes:
        axes = [number(shifted(axis, shift)) for axis in call.axes[name]]
        return new(ast.Tuple(axes, ast.Load())) if isinstance(given, ast.Tuple | ast.List) else axes[0]
    if scope.varies(given):
        raise Blocked(f"`{name}` is another one in each step", given)
    return invariant(scope, given).code


def _made(scope: Scope, call: _Call, value: Batched, code: ast.expr) -> Value:
    """What the operation gives, as far as its traits tell."""
    does = call.operation.does
    made = value.with_axes(-call.gone, code) if call.gone else replace(value, code=code, dense=False)
    made = made if does.does("view") else made.computed(code)
    if not does.does("pairing"):
        return made
    pair = scope.bound(made.code)  # values and indices, which have the same shape
    return Parts(tuple(made.named(expression("{pair}[{at}]", pair=pair, at=at)) for at in (0, 1)))


def _squeezed(scope: Scope, call: _Call, value: Batched, code: ast.expr) -> Batched:
    """An axis of another size than 1 stays: it is the same in each step."""
    of = f"{ast.unparse(code)} {scope.program.span(call.node)}"
    return replace(value.with_axes(-1, code), most=value.most, of=of)


def reshaped(scope: Scope, operation: TorchCall, value: Batched) -> Batched:
    """`x.view(batch, -1)` as `x.reshape(steps, batch, -1)`, time in front."""
    node, sizes = operation.call, list(operation.arguments)
    if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
        sizes = sizes[0].elts
    rank = len(sizes)
    lengths = [None if isinstance(size, ast.Starred) else scope.lift(size) for size in sizes]
    if not sizes or not all(isinstance(length, Invariant) for length in lengths):
        raise Blocked("the new shape is not known to be the same in each step", node)
    if rank == 1 and integer(sizes[0]) is None:
        raise Blocked("the new shape is not known", node)
    is_front = value.kept and value.axis == 0
    whole = value.code if is_front else value.in_front().code
    ones = [integer(size) == 1 for size in sizes]
    if integer(sizes[-1]) == -1 and all(ones[:-1]) and value.least > is_front:
        code = whole if value.rank == 1 + is_front else expression("{x}.flatten(1)", x=whole)
        code = expression("{x}" + ".unsqueeze(1)" * (rank - 2), x=code)
        return Batched(code, 0, rank, rank, kept=rank > 1, own=value.own)
    front = scope.bound(whole)
    shape = [expression("{x}.size(0)", x=front), *(each.code for each in lengths if isinstance(each, Invariant))]
    one = 0 if ones[0] and rank > 1 else 1 if rank > 2 and ones[1] else None  # where a step keeps the time axis
    if one is not None:
        del shape[one + 1]
    code = expression("{x}.reshape({*shape})" + ".transpose(0, 1)" * (one == 1), x=front, shape=shape)
    return Batched(code, one or 0, rank, rank, kept=one is not None, own=value.own)


def with_axes_after(value: Batched, count: int, node: ast.AST) -> Batched:
    """`value` so that at least `count` axes are after the time axis; raises Blocked."""
    value = value.narrowed(count)  # or the step itself would fail
    if value.axes_after >= count:
        return value
    if value.kept:
        raise Blocked(f"`{written(value)}` is not known to have an axis for features", node)
    return value.at(0)


def measured(node: ast.expr, given: ast.expr | None, value: Batched | Invariant) -> Invariant:
    """The size of the axis `given` of one step, which is the same in each."""
    axis = integer(given)
    if not isinstance(value, Batched) or axis is None:
        raise Blocked("it is not known which axis is measured", node)
    if value.kept and axis == value.axis:
        return Invariant(number(1), 0, is_number=True)
    front = value if axis >= 0 else value.in_front()
    behind = axis >= 0 and not value.kept and axis >= value.axis
    size = expression("{x}.size({axis})", x=front.code, axis=axis + 1 if behind else axis)
    return Invariant(size, 0, is_number=True)


# -- joins


def joined(scope: Scope, operation: TorchCall) -> Batched:
    """`torch.cat([a, b], dim=-1)` or `torch.stack` of steps, along an axis of one step."""
    node, is_stack = operation.call, operation.name == "stack"
    parts, axis = operation.tensor, operation.joined_axis
    if not isinstance(parts, ast.List | ast.Tuple) or axis is None:
        raise Blocked("what is concatenated is not known", node)
    steps = _repeated(scope, [scope.tensor(part) for part in parts.elts], node, 0 if is_stack else 1)
    if is_stack:
        steps = [value.in_front() for value in steps]
    if len({value.kept for value in steps}) > 1 or (steps[0].kept and len({value.axis for value in steps}) > 1):
        raise Blocked("steps with and without an axis for time meet", node)
    least = max(value.least for value in steps)
    most = min(value.most for value in steps)
    steps = [value.narrowed(least, most) for value in steps]  # each must have as many axes
    steps, along = (steps, shifted(axis, 1)) if is_stack else _aligned(steps, axis, node)
    listed = scope.code(parts, {part: value.code for part, value in zip(parts.elts, steps, strict=True)})
    code = expression("{f}({parts}, dim={dim})", f=scope.code(node.func), parts=listed, dim=along)
    return steps[0].with_axes(1 if is_stack else 0, code).computed(code, dense=True, fresh=True)


def _aligned(steps: list[Batched], axis: int, node: ast.Call) -> tuple[list[Batched], int]:
    """The steps with time along the same axis, and where the one is that they are joined along."""
    if axis < 0 and min(value.axes_after for value in steps) >= -axis:
        return [value if value.kept else value.at(steps[0].axis) for value in steps], axis
    if steps[0].kept:
        if axis == steps[0].axis or axis < 0:
            raise Blocked("steps are concatenated along time", node)
        return steps, axis
    steps = [value.at(0) for value in steps]
    if axis < 0:
        with_axes_after(steps[0], -axis, node)
    return steps, shifted(axis, 1)


def _repeated(scope: Scope, values: list[Batched | Invariant], node: ast.expr, least: int) -> list[Batched]:
    """`values` with those that are the same in every step as a view of as many steps as the others have."""
    steps = [value for value in values if isinstance(value, Batched)]
    if not steps:
        raise Blocked("no step of a sequence is concatenated", node)
    if len(steps) == len(values):
        return steps
    counted = scope.bound(steps[0].in_front().code)
    found: list[Batched] = []
    for value in values:
        if isinstance(value, Batched):
            front = value.in_front()
            found.append(front.named(reference(counted)) if value is steps[0] else front)
        else:
            code = expression("{x}.expand({steps}.size(0), *{x}.shape)", x=value.code, steps=counted)
            found.append(Batched(code, 0, least))
    return found


def pointwise(scope: Scope, node: ast.expr, operands: list[ast.expr]) -> Batched:
    """An operation on each number by itself, whose operands broadcast; raises Blocked."""
    values = {operand: scope.tensor(operand) for operand in operands}
    fitted = _broadcast(list(values.values()), node)
    code = scope.code(node, {operand: each.code for operand, each in zip(values, fitted, strict=True)})
    steps = _batched(fitted)
    widest = max(steps, key=lambda value: value.least)
    most = MANY if any(value.rank is None for value in fitted) else widest.least
    only = len(steps) == 1 and all(value.is_number for value in fitted if isinstance(value, Invariant))
    widest = replace(widest, most=widest.most if only else most)
    fresh = isinstance(node, ast.BinOp) and isinstance(node.op, _NEED_NO_RESULT)
    return widest.computed(code, dense=all(value.dense for value in steps), fresh=fresh)


def _batched(values: Operands) -> list[Batched]:
    return [value for value in values if isinstance(value, Batched)]


def _broadcast(values: Operands, node: ast.expr) -> Operands:
    """`values` so that they broadcast over all steps as they do in one; raises Blocked."""
    steps = _batched(values)
    if not steps:
        raise Blocked("sizes of a step are combined", node)
    others = [value for value in values if isinstance(value, Invariant) and not value.is_number]
    if steps[0].least < 1 and others:
        raise Blocked("a step of no axes leaves the type of the result to the other operand", node)
    if not others and len(steps) == 1:
        return values
    if any(value.kept for value in steps) and not all(value.kept and value.axis == steps[0].axis for value in steps):
        values = [value.loosened() if isinstance(value, Batched) else value for value in values]
        steps = _batched(values)
    if len({value.of for value in steps}) == 1 and steps[0].of and len(steps) == len(values):
        return [value.at(steps[0].axis) for value in steps]
    axis, rank, behind = steps[0].axis, steps[0].rank, steps[0].axes_after
    if rank is None or len({value.rank for value in steps}) > 1:  # as the first axis, time needs fewer facts
        if len(steps) > 1 or steps[0].kept:
            raise Blocked("it is not known how many axes the operands have", node)
        axis, rank, behind = 0, None, steps[0].least
    fitted: Operands = []
    for value in values:
        if isinstance(value, Batched):
            fitted.append(value.at(axis))
        elif value.is_number or (value.rank is not None and value.rank <= behind):
            fitted.append(value)
        elif value.rank is None or rank is None or value.rank > rank or steps[0].kept:
            raise Blocked(f"it is not known how `{written(value)}` broadcasts", node)
        else:  # with an axis where a step has time
            code = expression("{x}.unsqueeze({axis})", x=value.code, axis=axis - rank - 1)
            fitted.append(replace(value, code=code))
    return fitted


def product(values: Operands, name: str, node: ast.expr) -> Batched:
    """The product of two tensors, called `name` ("matmul" for `@`), in all steps; raises Blocked."""
    if not _batched(values):
        raise Blocked("no step of a sequence is multiplied", node)
    left, right = (_fitted(value, _RANKS.get(name)) for value in values)
    ranks = (left.rank, right.rank)
    code = expression("{x} @ {y}", x=left.code, y=right.code)
    if isinstance(left, Batched) and isinstance(right, Invariant) and right.rank == 2:
        return left.narrowed(1).computed(code, fresh=True)
    if None in ranks or min(rank for rank in ranks if rank is not None) < 2:
        raise Blocked("it is not known how many axes the factors have", node)
    steps = _batched([left, right])
    if len({value.rank for value in steps}) > 1 or any((rank or 0) > (steps[0].rank or 0) for rank in ranks):
        raise Blocked("the factors have more axes than the steps", node)
    return steps[0].computed(code, fresh=True)


def _fitted(value: Batched | Invariant, rank: int | None) -> Batched | Invariant:
    if isinstance(value, Invariant):
        return value if rank is None else Invariant(value.code, rank)
    front = value.in_front()
    return front if rank is None else front.narrowed(rank, rank)
