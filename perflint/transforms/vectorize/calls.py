"""The batching rules of calls: of torch's functions, of tensors' methods, and of torch's modules."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint import torch_ops
from perflint.analysis.memory.dispatch import is_scripted
from perflint.analysis.values.operations import TorchCall
from perflint.analysis.values.shape import axes_for
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import keyword_of
from perflint.syntax.walk import integer
from perflint.transforms.operations import FIT, call_like, expression, in_rows
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize.axes import (
    along,
    axis_among,
    dotted,
    exchanged,
    joined,
    no_rule,
    of_rank,
    pointwise,
    product,
    reshaped,
    with_axes_after,
    with_axis,
)
from perflint.transforms.vectorize.indexing import taken_for_tensor
from perflint.transforms.vectorize.modules import (
    Module,
    called_operation,
    check_invariant,
    module_of,
    viewed_whole,
)
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Invariant, Value

_EMBEDDING = frozenset({"num_embeddings", "embedding_dim", "padding_idx", "device", "dtype"})

_OF_CLASSES = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")
_TO_OTHERS = frozenset({"cast", "move"})
_ALONG = frozenset({"same_shape", "reduction"})  # of one axis, where they are told which
_OLD_REDUCTION = frozenset({"reduce", "size_average"})


def lift_call(scope: Scope, node: ast.Call, module: Module | None) -> Value:
    if is_loss(scope, node):
        return _lift_loss(scope, node, [taken_for_tensor(scope, each) for each in node.args])
    if module is not None:
        return _of_module(scope, node, module)
    operation = called_operation(scope, node)
    if operation is None:
        raise Blocked(f"{shown(scope.program, node.func)} is not known well enough", node)
    return _of_torch(scope, operation)


# -- functions and methods


def _of_torch(scope: Scope, operation: TorchCall) -> Value:
    node, does = operation.call, operation.does
    _check(scope, operation)
    if does.name in ("matmul", "bmm") and len(operation.arguments) == 1 and not node.keywords:
        values = [scope.tensor(each) for each in _operands(operation)]
        return product(values if does.name == "matmul" else [of_rank(each, 3) for each in values], node)
    if does.name == "dot" and len(operation.arguments) == 1 and not node.keywords:
        return dotted([of_rank(scope.tensor(each), 1) for each in _operands(operation)], node)
    if does.name == "cat":
        return joined(scope, operation)
    if does.does("random"):
        raise Blocked(f"`{does.name}` draws random numbers", node)
    return _pointwise(scope, operation) if does.does("pointwise") else _of_one(scope, operation)


def _check(scope: Scope, operation: TorchCall) -> None:
    node = operation.call
    if operation.does.in_place:
        raise Blocked(f"`{operation.name}` changes a tensor in place", node)
    if operation.tensor is None:
        raise Blocked(f"{shown(scope.program, node)} has no known tensor", node)
    for keyword in node.keywords:
        if scope.varies(keyword.value):
            raise Blocked(f"`{keyword.arg}` is another one in each step", node)
        check_invariant(scope, keyword.value)


def _of_one(scope: Scope, operation: TorchCall) -> Value:
    sets_shape, changes_axis = operation.name in ("view", "reshape"), operation.name in ("squeeze", "unsqueeze")
    is_exchange = operation.name == "transpose"
    is_cast = bool(operation.traits & _TO_OTHERS) and keyword_of(operation.call, "memory_format") is None
    is_cast = is_cast and scope.program.value(operation.call).kind is Kind.TENSOR
    is_along = not operation.traits.isdisjoint(_ALONG) and not operation.does.does("pairing")
    is_cast = is_cast or viewed_whole(scope, operation.call) is not None
    if operation.tensor is None or not (sets_shape or changes_axis or is_along or is_exchange or is_cast):
        raise no_rule(operation)
    value = scope.tensor(operation.tensor)
    if sets_shape and isinstance(value, Batched):
        return reshaped(scope, operation, value)
    value = _alone(scope, operation, value, may_be_tensors=is_cast)
    if is_cast:
        return replace(value, code=scope.code(operation.call, {operation.tensor: value.code}))
    if is_exchange:
        return exchanged(scope, operation, value)
    return with_axis(operation, value) if changes_axis else along(scope, operation, value)


def _operands(operation: TorchCall) -> list[ast.expr]:
    return [*([] if operation.tensor is None else [operation.tensor]), *operation.arguments]


def _alone(scope: Scope, operation: TorchCall, value: Batched | Invariant, *, may_be_tensors: bool = False) -> Batched:
    others = [*operation.arguments, *(each.value for each in operation.call.keywords)]
    kinds = () if may_be_tensors else (Kind.TENSOR, Kind.UNKNOWN)  # whose type or place alone is taken
    if not isinstance(value, Batched) or scope.varies(*operation.arguments):
        raise no_rule(operation)
    if any(scope.program.value(each).kind in kinds for each in others):
        raise no_rule(operation)
    check_invariant(scope, *operation.arguments)
    return value


def _pointwise(scope: Scope, operation: TorchCall) -> Batched:
    node, operands = operation.call, _operands(operation)
    kinds = [scope.program.value(keyword.value).kind for keyword in node.keywords]
    if any(kind not in (Kind.NUMBER, Kind.STRING, Kind.NONE) for kind in kinds):
        raise Blocked("a keyword is not known to be a number", node)
    if any(isinstance(each, ast.Constant) and isinstance(each.value, bool) for each in operands):
        raise Blocked(f"{shown(scope.program, node.func)} may change its input in place", node)
    check_invariant(scope, *(each for each in operands if not scope.varies(each)))
    tensors = [each for each in operands if scope.program.value(each).kind is not Kind.NUMBER or scope.varies(each)]
    return pointwise(scope, node, tensors)


# -- modules


def _of_module(scope: Scope, node: ast.Call, module: Module) -> Batched:
    called = shown(scope.program, node.func)
    if len(node.args) != 1 or node.keywords:
        raise Blocked(f"{called} gets more than one tensor", node)
    value = scope.tensor(node.args[0], node)
    if not isinstance(value, Batched):
        raise Blocked(f"{called} gets no step of a sequence", node)
    if module.name == "Embedding":
        if len(module.built.args) > 3 or {each.arg for each in module.built.keywords} - _EMBEDDING:
            raise Blocked(f"{called} does more than look up", node)
        code = _with_input(scope, node, value)
        return value.with_axes(1, code).computed(code, dense=True, fresh=True)
    if module.is_function(scope.program):
        is_linear, reads_axis = module.name == "Linear", module.reads_last_axis(scope.program)
        value = with_axes_after(value, 1, node) if reads_axis else value
        code, is_dense = _with_input(scope, node, value), is_linear or (value.dense and not reads_axis)
        is_input = module.name == "Identity"  # which gives what it is given
        return value.named(code) if is_input else value.computed(code, dense=is_dense, fresh=is_linear)
    axis = integer(module.argument("dim", 0)) if module.name.endswith("Softmax") else None
    if axis is None or not value.least or not scope.facts.torch or is_scripted(scope.program):
        raise Blocked(f"there is no rule for all steps of `nn.{module.name}` at once", node)
    return _softmax(scope, node, value.narrowed(axes_for(axis)), axis)


def _softmax(scope: Scope, node: ast.Call, value: Batched, axis: int) -> Batched:
    if axis < 0:
        value, _ = axis_among(value, axis)
        return value.computed(_with_input(scope, node, value), dense=value.dense)
    value = value.in_front()
    scope.draft.oddities.add("torch.vmap")
    code = expression("{torch}.vmap({f})({x})", torch=scope.facts.torch, f=scope.code(node.func), x=value.code)
    return value.computed(code, dense=value.dense)


def _with_input(scope: Scope, node: ast.Call, value: Batched) -> ast.expr:
    return scope.code(node, {node.args[0]: value.code})


def is_loss(scope: Scope, node: ast.Call) -> bool:
    value = scope.program.value(node.func)
    is_class = value.kind is Kind.MODULE and value.sure and torch_ops.class_kind(value.name) == "loss"
    does = torch_ops.of_forward(value.name) if is_class else None
    if value.kind is Kind.LIBRARY and value.name.startswith("torch.nn.functional."):
        does = torch_ops.of_function(value.name)
    return does is not None and does.does("vmapped")


def _lift_loss(scope: Scope, node: ast.Call, values: list[Batched | Invariant]) -> Batched:
    """Losses by torch.vmap: each averages over, and ignores, what is of its own step; raises Blocked."""
    if not scope.facts.torch:
        raise Blocked("`torch` is not imported by that name", node)
    if is_scripted(scope.program):
        raise Blocked("torch.vmap cannot be scripted", node)
    for keyword in node.keywords:
        if not isinstance(keyword.value, ast.Constant):
            raise Blocked(f"the loss gets `{keyword.arg}`", node)
        if keyword.arg in _OLD_REDUCTION:
            raise Blocked("the loss is not known to be one number a step", node)
    module = module_of(scope.program, node.func)
    keywords = [*node.keywords, *(module.built.keywords if module is not None else ())]
    if any(each.arg == "label_smoothing" for each in keywords):
        raise Blocked("torch.vmap cannot smooth labels", node)
    value = scope.program.value(node.func)
    if value.name == "torch.nn.CrossEntropyLoss" and module is None:
        raise Blocked("it is not known how the loss was built", node)
    if len(values) != 2 or not any(isinstance(each, Batched) for each in values):
        raise Blocked("the loss gets more than an output and a target", node)
    steps = [each.loosened() if isinstance(each, Batched) else each for each in values]
    one, other = (each.axis if isinstance(each, Batched) else None for each in steps)
    where = f"({one}, {other})" if one != other else one
    function = expression(
        "{torch}.vmap({f}" + (f", in_dims={where})" if where != 0 else ")"),
        torch=scope.facts.torch,
        f=scope.code(node.func),
    )
    call = ast.Call(ast.Name("f"), [each.code for each in steps], node.keywords)
    scope.draft.oddities.add("torch.vmap")
    reduction = _reduction(keywords, module, is_class=value.kind is Kind.MODULE)
    least, most = _ranks(reduction, values, picks=value.name.endswith(_OF_CLASSES))
    return Batched(in_rows(call_like(call, function), FIT), 0, least, most, own=True)


def _reduction(keywords: list[ast.keyword], module: Module | None, *, is_class: bool) -> str:
    words = {each.arg: each.value for each in keywords}
    if is_class and (module is None or len(module.built.args) > 1 or words.keys() & _OLD_REDUCTION):
        return ""
    reduction = words.get("reduction", ast.Constant("mean"))
    return str(reduction.value) if isinstance(reduction, ast.Constant) else ""


def _ranks(reduction: str, values: list[Batched | Invariant], *, picks: bool) -> tuple[int, int]:
    """The least and most axes of one step's loss; `picks`: of scores, those of one class each."""
    if reduction in ("mean", "sum"):
        return 0, 0
    ranks = [value.rank for value in values]
    if picks:
        ranks = [None if ranks[0] is None else ranks[0] - 1]  # the scores' axis for the classes goes
    known = [rank for rank in ranks if rank is not None]
    return (max(known), max(known)) if reduction == "none" and len(known) == len(ranks) else (0, MANY)
