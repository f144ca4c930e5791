"""The batching rules of operations: elementwise, products, reshaping.

Other arithmetic is batched by torch.vmap of the expression, on the steps that it reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint import torch_ops
from perflint.analysis.memory.dispatch import is_scripted
from perflint.analysis.program import Kind, Place
from perflint.analysis.values.operations import TorchCall
from perflint.analysis.values.shape import axes_for
from perflint.syntax.walk import integer, is_false
from perflint.transforms.host_code import item_of
from perflint.transforms.operations import FIT, derived, expression, in_rows, new, number, reference
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize.modules import check_invariant, viewed_whole
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Invariant, written

NEED_NO_RESULT = (ast.Add, ast.Sub, ast.Mult, ast.Div)  # for their gradients

Operands = list[Batched | Invariant]


def no_rule(operation: TorchCall) -> Blocked:
    return Blocked(f"there is no rule for all steps of `{operation.name}` at once", operation.call)


def with_axis(operation: TorchCall, value: Batched) -> Batched:
    """One step with one more axis of size 1, for time, or without it."""
    axis = integer(operation.dim)
    if operation.name == "unsqueeze" and not value.kept and axis in (0, 1) and value.least >= axis:
        return value.unsqueezed(axis)
    if operation.name == "squeeze" and value.kept and axis == value.axis:
        return value.squeezed()
    if operation.name == "unsqueeze" and not value.kept and axis is not None and axis >= -1:
        value = value if axis < 0 else value.at(0).narrowed(axis)
        code = expression("{x}.unsqueeze({axis})", x=value.code, axis=axis + (axis > 0))
        return value.with_axes(1, code)
    raise no_rule(operation)


def along(scope: Scope, operation: TorchCall, value: Batched) -> Batched:
    if not operation.arguments and not operation.call.keywords:
        return _total(operation, value)
    axis, keepdim = integer(operation.dim), operation.keepdim
    is_plain = keepdim is None or isinstance(keepdim, ast.Constant)
    if operation.dim is None or operation.tensor is None or axis is None or not value.least or not is_plain:
        raise no_rule(operation)  # of a step without axes, the last one and the first one are that step
    value, at = axis_among(value.narrowed(axes_for(axis)), axis)
    code = scope.code(operation.call, {operation.tensor: value.code, operation.dim: number(at)})
    if "same_shape" in operation.traits or (keepdim is not None and not is_false(keepdim)):
        return value.computed(code, dense=value.dense)
    left = replace(value, axis=value.axis - 1) if 0 <= at < value.axis else value
    return left.with_axes(-1, code).computed(code)


def _total(operation: TorchCall, value: Batched) -> Batched:
    if not operation.does.does("reduction") or torch_ops.of_method(operation.name) is None or not value.least:
        raise no_rule(operation)
    value = value.in_front()
    template = ("{x}" if value.rank == 1 else "{x}.flatten(1)") + f".{operation.name}(dim=1)"
    return Batched(expression(template, x=value.code), 0, 0, 0, own=True)


def axis_among(value: Batched, axis: int) -> tuple[Batched, int]:
    """`value`, time in front if it must be, and the place of a step's axis in it."""
    if (value.kept and axis == value.axis) or (axis < 0 and value.axes_after < -axis):
        value = value.in_front()
    return value, axis if axis < 0 or value.kept or axis < value.axis else axis + 1


def joined(scope: Scope, operation: TorchCall) -> Batched:
    axis, parts = integer(operation.dim), operation.tensor
    if operation.dim is None or axis is None or not isinstance(parts, ast.Tuple | ast.List):
        raise no_rule(operation)
    values = {each: scope.tensor(each) for each in parts.elts}
    steps = [each for each in values.values() if isinstance(each, Batched)]
    is_apart = len(steps) < len(values) or len({(each.axis, each.kept) for each in steps}) > 1
    least = max(axes_for(axis), *(each.least for each in steps))  # which all of them have, or joining would fail
    codes: dict[ast.expr, ast.expr] = {}
    for part, value in values.items():
        if isinstance(value, Batched):
            step, at = axis_among((value.in_front() if is_apart else value).narrowed(least), axis)
            codes[part] = step.code
    if len(steps) < len(values):
        first = next(iter(codes))
        codes[first] = reference(scope.bound(codes[first]))
        for part, value in values.items():
            if isinstance(value, Invariant):
                codes[part] = expression("{y}.expand({x}.size(0), *{y}.shape)", x=codes[first], y=value.code)
    code = scope.code(operation.call, {**codes, operation.dim: number(at)})
    return step.with_axes(0, code).computed(code, dense=step.most < 3, fresh=True)  # with more, channels may be last


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
    value = value.narrowed(count)  # or the step itself would fail
    if value.axes_after >= count:
        return value
    if value.kept and value.axis:
        raise Blocked(f"`{written(value)}` is not known to have an axis for features", node)
    return value.in_front()


def pointwise(scope: Scope, node: ast.expr, operands: list[ast.expr]) -> Batched:
    values = {operand: scope.tensor(operand) for operand in operands}
    fitted = _broadcast(list(values.values()), node)
    code = scope.code(node, {operand: each.code for operand, each in zip(values, fitted, strict=True)})
    steps = _batched(fitted)
    widest = max(steps, key=lambda value: value.least)
    most = MANY if any(value.rank is None for value in fitted) else widest.least
    only = len(steps) == 1 and all(value.is_number for value in fitted if isinstance(value, Invariant))
    widest = replace(widest, most=widest.most if only else most)
    fresh = isinstance(node, ast.BinOp) and isinstance(node.op, NEED_NO_RESULT)
    return widest.computed(code, dense=all(value.dense for value in steps), fresh=fresh)


def _batched(values: Operands) -> list[Batched]:
    return [value for value in values if isinstance(value, Batched)]


def _broadcast(values: Operands, node: ast.expr) -> Operands:
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


def of_rank(value: Batched | Invariant, rank: int) -> Batched | Invariant:
    return value.narrowed(rank, rank) if isinstance(value, Batched) else replace(value, rank=rank)


def product(values: Operands, node: ast.expr) -> Batched:
    """A matrix product over the batch of all steps; where a step is one row, over their rows."""
    left, right = values
    if not isinstance(left, Batched) or right.rank is None or right.rank < 2:
        raise Blocked("only a product of a step with a known matrix has a rule", node)
    if isinstance(right, Invariant) and left.kept and left.rank == left.axis + 2 and right.rank <= left.least:
        return left.computed(expression("{x} @ {y}", x=left.code, y=right.code), fresh=True)
    value = left.in_front().narrowed(1)
    if right.rank > (2 if isinstance(right, Invariant) else 0) and right.rank > value.least:
        raise Blocked("it is not known how many axes the operands have", node)
    other = right.in_front() if isinstance(right, Batched) else right
    if isinstance(other, Batched) and other.rank != value.rank:
        raise Blocked("it is not known how many axes the operands have", node)
    return value.computed(expression("{x} @ {y}", x=value.code, y=other.code), fresh=True)


def dotted(values: Operands, node: ast.expr) -> Batched:
    """A product of two vectors for each step; no product of matrices, which autocast computes in half precision."""
    steps = [value.in_front().code for value in values if isinstance(value, Batched)]
    x, y = (*steps, *(value.code for value in values if isinstance(value, Invariant)))
    return Batched(expression("({x} * {y}).sum(1)", x=x, y=y), 0, 0, 0, dense=True, own=True, fresh=True)


def exchanged(scope: Scope, operation: TorchCall, value: Batched) -> Batched:
    """`x.transpose(0, 1)` of each step."""
    axes = [axis for each in operation.arguments if (axis := integer(each)) is not None and axis >= 0]
    if operation.tensor is None or len(axes) != 2 or len(operation.arguments) != 2:
        raise no_rule(operation)
    value = (value if value.kept else value.at(0)).narrowed(max(axes) + 1)
    parts = {part: number(axis + (not value.kept)) for part, axis in zip(operation.arguments, axes, strict=True)}
    code = scope.code(operation.call, {operation.tensor: value.code, **parts})
    swapped = dict(zip(axes, reversed(axes), strict=True)) if value.kept else {}
    return replace(value.with_axes(0, code), axis=swapped.get(value.axis, value.axis))


_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_LONG = 36


def mapped(scope: Scope, node: ast.expr) -> Batched | None:
    if scope.callee is not None or not scope.facts.torch or is_scripted(scope.program):
        return None
    if (copied := _copied(scope, node)) is not None:
        value = scope.tensor(copied)
        code = expression("{x}.detach().reshape(-1, 1)", x=value.code)
        return Batched(code, 0, 1, 1) if isinstance(value, Batched) and not value.axis else None
    if not _computes(scope, node):
        return None
    names = [*dict.fromkeys(each.id for each in _steps(scope, node))]
    steps = [each for each in map(scope.values.get, names) if isinstance(each, Batched)]
    if not names or len(steps) < len(names):
        return None
    arguments = new(ast.arguments([], [new(ast.arg(each)) for each in names], None, [], [], None, []))
    function = new(ast.Lambda(arguments, derived(node, dict(_read_there(scope, node)))))
    given = _on_one_device(scope, node, {name: each.in_front().code for name, each in zip(names, steps, strict=True)})
    if given is None:
        return None
    scope.draft.oddities.add("torch.vmap")
    call = expression("{torch}.vmap({f})({*steps})", torch=scope.facts.torch, f=function, steps=given)
    is_long = sum(len(ast.unparse(each)) for each in given) > _LONG
    code = in_rows(call, len(steps) if is_long else FIT)
    is_plain = not any(isinstance(each, ast.Call) for each in ast.walk(node))
    is_dense = is_plain and all((each.dense and not each.axis) or not each.most for each in steps)
    is_fresh = isinstance(node, ast.BinOp) and isinstance(node.op, NEED_NO_RESULT)
    return Batched(code, 0, 0, dense=is_dense, own=True, fresh=is_fresh)


def _steps(scope: Scope, node: ast.expr) -> Iterator[ast.Name]:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name) and scope.varies(each))
    yield from sorted(names, key=lambda each: (each.lineno, each.col_offset))


def _on_one_device(scope: Scope, node: ast.expr, steps: dict[str, ast.expr]) -> list[ast.expr] | None:
    """All steps of what is combined, those of the host's, of which single numbers need no copy, copied to the others'.

    None where it isn't known where the others are.
    """
    hosts = {each.id for each in _steps(scope, node) if scope.program.value(each).place is Place.HOST}
    others = [name for name in steps if name not in hosts]
    if not hosts or not others or scope.program.is_host_only:
        return [*steps.values()]
    if len(others) > 1:
        return None
    there = scope.bound(steps[others[0]])
    moved = {name: expression("{x}.to({y}.device)", x=code, y=there) for name, code in steps.items()}
    return [moved[name] if name in hosts else reference(there) for name in steps]


def _read_there(scope: Scope, node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What replaces a step's host reads inside torch.vmap."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and (tensor := item_of(each)) is not None:
            scope.draft.changes.add(f"{shown(scope.program, each)} stays a tensor, with its own type")
            yield each, expression("{x}.detach().reshape(())", x=tensor)
        elif isinstance(each, ast.Call) and (copied := _copied(scope, each)) is not None:
            yield each, expression("{x}.detach().reshape(1)", x=copied)


def _copied(scope: Scope, node: ast.expr) -> ast.expr | None:
    call = scope.program.call_of(node, "torch.tensor")
    parts = call.args[0] if call is not None and len(call.args) == 1 and not call.keywords else None
    if not isinstance(parts, ast.List) or len(parts.elts) != 1 or not scope.varies(parts):
        return None
    value = scope.program.value(parts.elts[0])
    is_there = value.kind is Kind.TENSOR and value.sure and value.place is Place.HOST
    return parts.elts[0] if is_there else None


def _computes(scope: Scope, node: ast.expr, *, is_part: bool = False) -> bool:
    if not scope.varies(node):
        check_invariant(scope, node)
        return is_part
    if isinstance(node, ast.Name):
        return is_part and isinstance(scope.read(node), Batched)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _computes(scope, node.operand, is_part=True)
    if isinstance(node, ast.BinOp):
        is_known = isinstance(node.op, _OPERATORS)
        return is_known and all(_is_operand(scope, each, node) for each in (node.left, node.right))
    copied = _copied(scope, node) or viewed_whole(scope, node)
    return copied is not None and _computes(scope, copied, is_part=True)


def _is_operand(scope: Scope, node: ast.expr, around: ast.BinOp) -> bool:
    if (tensor := item_of(node)) is None:
        return _computes(scope, node, is_part=True)
    other = scope.program.value(around.right if around.left is node else around.left)
    return other.kind is Kind.TENSOR and other.sure and _computes(scope, tensor, is_part=True)
