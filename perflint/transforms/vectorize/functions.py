"""Lifts torch's functions and the methods of its tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from perflint import torch_ops
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.vectorize import axes, batched, products, slices
from perflint.transforms.vectorize.layouts import laid_out
from perflint.transforms.vectorize.operations import Operation
from perflint.transforms.vectorize.parted import Parted
from perflint.transforms.vectorize.pointwise import pointwise
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.steps import Lifted, Same, State, Steps

_CONVERSIONS = frozenset({"to", "float", "long", "double", "half", "int", "bool", "detach", "contiguous", "clone"})


def lift_function(scope: Scope, node: ast.Call, entry: torch_ops.Operation) -> Lifted:
    """The value of a call of torch, of which its table says `entry`, in all steps; raises Blocked."""
    function = scope.program.value(node.func)
    is_method = isinstance(node.func, ast.Attribute) and function.kind is Kind.METHOD
    operands = [node.func.value, *node.args] if isinstance(node.func, ast.Attribute) and is_method else [*node.args]
    operation = Operation(node, function.name.rpartition(".")[2], operands, is_method)
    if operation.name in _JOINS:
        return axes.joined(scope, node, is_stack=operation.name == "stack")
    _check(scope, operation, entry)
    rule = _RULES.get(operation.name)
    if rule is not None:
        return rule(scope, operation)
    if "random" in entry.traits:
        raise Blocked(f"`{operation.name}` draws random numbers", node)
    if "pointwise" in entry.traits:
        return _pointwise(scope, operation)
    return _of_one(scope, operation)


def _check(scope: Scope, operation: Operation, entry: torch_ops.Operation) -> None:
    node, name = operation.node, operation.name
    if entry.in_place:
        raise Blocked(f"`{name}` changes a tensor in place", node)
    if not operation.operands:
        raise Blocked(f"{shown(scope.program, node)} has no tensor in sight", node)
    for keyword in node.keywords:
        if scope.varies(keyword.value):
            raise Blocked(f"`{keyword.arg}` is another one in each step", node)
        invariant(scope, keyword.value)


def _of_one(scope: Scope, operation: Operation) -> Lifted:
    """An operation of one tensor, all else being the same in every step."""
    node, name, operands = operation.node, operation.name, operation.operands
    first = scope.lift(operands[0])
    if isinstance(first, State) and name == "squeeze" and first.of_layers is not None:
        if len(operands) == 2 and integer(operands[1]) == 0:
            return first.of_layers
        raise Blocked("the RNN's state loses another axis than that of its layers", node)
    value = tensor(first, operands[0])
    if isinstance(value, Steps) and name in ("view", "reshape"):
        return axes.reshaped(scope, operation, value)
    return laid_out(scope, operation, _alone(scope, operation, value))


def _converted(scope: Scope, operation: Operation) -> Lifted:
    """Another type, or another copy, of each step."""
    value = _steps(scope, operation)
    if operation.name == "clone":
        return value.computed(operation.written(scope, value), fresh=True)
    return replace(value, code=operation.written(scope, value), dense=False)


def _steps(scope: Scope, operation: Operation) -> Steps:
    """The tensor, where nothing else varies."""
    return _alone(scope, operation, tensor(scope.lift(operation.operands[0]), operation.operands[0]))


def _alone(scope: Scope, operation: Operation, value: Steps | Same) -> Steps:
    """`value`, the operation's tensor, if that is all that varies; raises Blocked."""
    if not isinstance(value, Steps) or any(scope.varies(each) for each in operation.operands[1:]):
        raise Blocked(f"there is no rule for all steps of `{operation.name}` at once", operation.node)
    for each in operation.operands[1:]:
        invariant(scope, each)
    return value


def _pointwise(scope: Scope, operation: Operation) -> Steps:
    node, operands = operation.node, operation.operands
    kinds = [scope.program.value(keyword.value).kind for keyword in node.keywords]
    if any(kind not in (Kind.NUMBER, Kind.STRING, Kind.NONE) for kind in kinds):
        raise Blocked("a keyword is not known to be a number", node)
    if any(isinstance(each, ast.Constant) and isinstance(each.value, bool) for each in operands):
        raise Blocked(f"{shown(scope.program, node.func)} may change its input in place", node)
    for each in operands:
        if not scope.varies(each):
            invariant(scope, each)
    tensors = [each for each in operands if scope.program.value(each).kind is not Kind.NUMBER or scope.varies(each)]
    return pointwise(scope, node, tensors)


def _selected(scope: Scope, operation: Operation) -> Lifted:
    """`x.select(1, t)`, as `x[:, t]`."""
    whole, *others = operation.operands
    base, axis = scope.lift(whole), integer(others[0]) if len(others) == 2 else None
    if not isinstance(base, Same) or axis is None or axis < 0:
        return _of_one(scope, operation)
    return slices.selected(scope, operation.node, Parted(whole, axis, kept=False), others[1])


def _where(scope: Scope, operation: Operation) -> Steps:
    if len(operation.operands) != 3:
        raise Blocked("where something is differs from step to step", operation.node)
    return _pointwise(scope, operation)


def _measured(scope: Scope, operation: Operation) -> Lifted:
    whole, *axis = operation.operands
    return axes.measured(operation.node, axis[0] if axis else None, tensor(scope.lift(whole), whole))


def _multiplied(scope: Scope, operation: Operation) -> Lifted:
    if len(operation.operands) != 2 or operation.node.keywords:
        raise Blocked("the factors are not in sight", operation.node)
    factors = [tensor(scope.lift(each), each) for each in operation.operands]
    return products.product(factors, operation.name, operation.node)


def _summed_by_letters(scope: Scope, operation: Operation) -> Lifted:
    formula, *factors = operation.operands
    if not isinstance(formula, ast.Constant) or not isinstance(formula.value, str):
        raise Blocked("which axes are summed is not in sight", operation.node)
    values = [tensor(scope.lift(each), each) for each in factors]
    return products.by_letters(scope, formula.value, values, operation.node)


def _like(scope: Scope, operation: Operation) -> Lifted:
    value = _steps(scope, operation)
    return value.computed(operation.written(scope, value))


def _dropped(scope: Scope, operation: Operation) -> Lifted:
    """F.dropout, which may give back its input."""
    value = _steps(scope, operation)
    if len(operation.operands) > 3:
        raise Blocked(f"`{operation.name}` may change its input in place", operation.node)
    scope.draft.changes.add(f"`{operation.name}` draws other random numbers")
    return value.named(operation.written(scope, value))


def _linear(scope: Scope, operation: Operation) -> Lifted:
    value = _steps(scope, operation)
    if len(operation.operands) < 2 or scope.rank(operation.operands[1]) != 2:
        raise Blocked("the weight is not known to be a matrix", operation.node)
    value = axes.with_axes_behind(value, 1, operation.node)
    return value.computed(operation.written(scope, value), fresh=True)


def _normalized(scope: Scope, operation: Operation) -> Lifted:
    """F.layer_norm: over as many axes at the end as it is told sizes."""
    value = _steps(scope, operation)
    shape = operation.operands[1] if len(operation.operands) > 1 else None
    if not isinstance(shape, ast.Tuple | ast.List) or any(isinstance(each, ast.Starred) for each in shape.elts):
        raise Blocked("how many axes are normalized is not in sight", operation.node)
    value = axes.with_axes_behind(value, len(shape.elts), operation.node)
    return value.computed(operation.written(scope, value))


def _looked_up(scope: Scope, operation: Operation) -> Lifted:
    """F.one_hot, and F.embedding where it does no more than look up."""
    value = _steps(scope, operation)
    if len(operation.operands) != 2 or {each.arg for each in operation.node.keywords} - {"padding_idx"}:
        raise Blocked(f"`{operation.name}` does more than look up", operation.node)
    code = operation.written(scope, value)
    return value.with_axes(1, code).computed(code)


def _pooled(scope: Scope, operation: Operation) -> Lifted:
    """F.max_pool2d and its like, where they give no indices."""
    most = 2 if operation.name.startswith("adaptive") else 6
    if len(operation.operands) > most or any(each.arg == "return_indices" for each in operation.node.keywords):
        raise Blocked(f"`{operation.name}` may give indices, too", operation.node)
    value, axes = _steps(scope, operation), batched.POOLS[operation.name]
    return batched.folded(scope, operation.node, axes, value, lambda code: operation.written(scope, value.named(code)))


_JOINS = frozenset({"cat", "concat", "concatenate", "stack"})
_RULES: dict[str, Callable[[Scope, Operation], Lifted]] = {
    **dict.fromkeys(_CONVERSIONS, _converted),
    **dict.fromkeys(products.NAMES, _multiplied),
    **dict.fromkeys(("size", "dim"), _measured),
    **dict.fromkeys(("zeros_like", "ones_like"), _like),
    **dict.fromkeys(("one_hot", "embedding"), _looked_up),
    **dict.fromkeys(batched.POOLS, _pooled),
    **dict.fromkeys(("dropout", "alpha_dropout"), _dropped),
    "einsum": _summed_by_letters,
    "layer_norm": _normalized,
    "linear": _linear,
    "select": _selected,
    "where": _where,
}
