"""The batching rules of calls: of torch's functions, of tensors' methods, and of torch's modules."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint import torch_ops
from perflint.analysis.memory.dispatch import Modules, is_scripted
from perflint.analysis.values.operations import TorchCall
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer
from perflint.transforms.operations import FIT, call_like, expression, in_rows
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize.axes import (
    along_axis,
    applied,
    joined,
    no_rule,
    pointwise,
    product,
    reshaped,
    with_axes_after,
)
from perflint.transforms.vectorize.indexing import taken_for_tensor
from perflint.transforms.vectorize.modules import (
    Module,
    called_operation,
    check_invariant,
    module_built,
    module_of,
)
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.values import MANY, Batched, Invariant, State, Value

_EMBEDDING = frozenset({"num_embeddings", "embedding_dim", "padding_idx", "device", "dtype"})

_OF_CLASSES = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")
_OLD_REDUCTION = frozenset({"reduce", "size_average"})
_CHOOSE_AXIS = ("softmax", "log_softmax")  # where none is told, by how many there are


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
    if does.name in ("cat", "stack"):
        return joined(scope, operation)
    _check(scope, operation)
    if does.result == "tensor" and does.does("keeping") and does.does("same_shape"):
        return _converted(scope, operation)
    if does.name == "matmul":
        return _multiplied(scope, operation)
    if does.name in _CHOOSE_AXIS and not operation.arguments and not node.keywords:
        value = _steps(scope, operation)
        return _normed(value, _chosen_axis(value), node, scope.code(node.func))
    if does.name in ("dropout", "alpha_dropout"):
        return _dropped(scope, operation)
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
    assert operation.tensor is not None
    first = scope.lift(operation.tensor)
    if isinstance(first, State) and operation.name == "squeeze" and first.of_layers is not None:
        if len(operation.arguments) == 1 and integer(operation.arguments[0]) == 0:
            return first.of_layers
        raise Blocked("the RNN's state loses another axis than that of its layers", operation.call)
    value = tensor(first, operation.tensor)
    if isinstance(value, Batched) and operation.name in ("view", "reshape"):
        return reshaped(scope, operation, value)
    return along_axis(scope, operation, _alone(scope, operation, value))


def _operands(operation: TorchCall) -> list[ast.expr]:
    return [*([] if operation.tensor is None else [operation.tensor]), *operation.arguments]


def _steps(scope: Scope, operation: TorchCall) -> Batched:
    assert operation.tensor is not None
    return _alone(scope, operation, scope.tensor(operation.tensor))


def _alone(scope: Scope, operation: TorchCall, value: Batched | Invariant) -> Batched:
    if not isinstance(value, Batched) or scope.varies(*operation.arguments):
        raise no_rule(operation)
    check_invariant(scope, *operation.arguments)
    return value


def _converted(scope: Scope, operation: TorchCall) -> Value:
    value, does = _steps(scope, operation), operation.does
    if not does.traits & {"cast", "move", "view", "copying"}:
        raise no_rule(operation)
    if does.does("copying"):
        return value.computed(applied(scope, operation, value), fresh=True)
    return replace(value, code=applied(scope, operation, value), dense=False)


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


def _multiplied(scope: Scope, operation: TorchCall) -> Value:
    if len(operation.arguments) != 1 or operation.call.keywords:
        raise Blocked("the factors are not known", operation.call)
    return product([scope.tensor(each) for each in _operands(operation)], operation.call)


def _dropped(scope: Scope, operation: TorchCall) -> Value:
    value = _steps(scope, operation)
    if len(operation.arguments) > 2:
        raise Blocked(f"`{operation.name}` may change its input in place", operation.call)
    scope.draft.changes.add(f"`{operation.name}` draws other random numbers")
    return value.named(applied(scope, operation, value))


# -- modules


def _of_module(scope: Scope, node: ast.Call, module: Module) -> Batched:
    called = shown(scope.program, node.func)
    if len(node.args) != 1 or node.keywords:
        raise Blocked(f"{called} gets more than one tensor", node)
    value = scope.tensor(node.args[0], node)
    if not isinstance(value, Batched):
        raise Blocked(f"{called} gets no step of a sequence", node)
    if module.name == "Sequential":
        return _sequential(scope, node, module, value)
    if module.is_pointwise or module.is_dropout:
        return _of_each_number(scope, node, module, value)
    if module.name == "Embedding":
        if len(module.built.args) > 3 or {each.arg for each in module.built.keywords} - _EMBEDDING:
            raise Blocked(f"{called} does more than look up", node)
        code = _with_input(scope, node, value)
        return value.with_axes(1, code).computed(code, dense=True, fresh=True)
    if module.reads_last_axis(scope.program):
        value = with_axes_after(value, 1, node)
        is_linear = module.name == "Linear"
        return value.computed(_with_input(scope, node, value), dense=is_linear, fresh=is_linear)
    if module.name in ("Softmax", "LogSoftmax"):
        return _softmax(scope, module, value, node)
    raise Blocked(f"there is no rule for all steps of `nn.{module.name}` at once", node)


def _with_input(scope: Scope, node: ast.Call, value: Batched) -> ast.expr:
    return scope.code(node, {node.args[0]: value.code})


def _of_each_number(scope: Scope, node: ast.Call, module: Module, value: Batched) -> Batched:
    if module.is_in_place:
        raise Blocked(f"{shown(scope.program, node.func)} changes its input in place", node)
    if module.is_dropout:
        scope.draft.changes.add(f"`{scope.program.segment(node.func)}` draws other random numbers")
    code = _with_input(scope, node, value)
    may_return_input = module.is_dropout or module.name == "Identity"
    return value.named(code) if may_return_input else value.computed(code, dense=value.dense)


def _sequential(scope: Scope, node: ast.Call, module: Module, value: Batched) -> Batched:
    called = ast.unparse(scope.code(node.func))
    if scope.program.get(Modules).is_changed(node.func):
        raise Blocked(f"`{called}` is changed after it was built", node)
    parts = [module_built(scope.program, part) for part in module.built.args]
    known = [part for part in parts if part is not None]
    if any(part.is_dropout for part in known):
        scope.draft.changes.add(f"`{called}` draws other random numbers")
    by_itself = (part.is_pointwise or part.is_dropout or part.reads_last_axis(scope.program) for part in known)
    if len(known) < len(parts) or any(part.is_in_place for part in known) or not all(by_itself):
        raise Blocked(f"`{called}` holds modules for which there is no rule", node)
    value = with_axes_after(value, 1, node)
    return value.computed(_with_input(scope, node, value))


def _softmax(scope: Scope, module: Module, value: Batched, node: ast.Call) -> Batched:
    given = module.argument("dim", 0)
    axis = integer(given) if given is not None else _chosen_axis(value)
    if axis is None or not scope.facts.torch:
        raise Blocked(f"it is not known along which axis {shown(scope.program, node.func)} works", node)
    if axis < 0:
        value = with_axes_after(value, -axis, node)
        return value.computed(_with_input(scope, node, value))
    function = "softmax" if module.name == "Softmax" else "log_softmax"
    return _normed(value, axis, node, expression(f"{{torch}}.{function}", torch=scope.facts.torch))


def _chosen_axis(value: Batched) -> int | None:
    return None if value.rank is None else 0 if value.rank in (0, 1, 3) else 1


def _normed(value: Batched, axis: int | None, node: ast.Call, function: ast.expr) -> Batched:
    if axis is None:
        raise Blocked("along which axis it works is not known", node)
    if value.kept and axis == value.axis:
        raise Blocked("a softmax works along the axis for time", node)
    value = value.narrowed(axis + 1)
    if (rank := value.rank) is not None:
        value, along = with_axes_after(value, rank - axis, node), axis - rank
    else:
        value, along = (value, axis) if value.kept else (value.at(0), axis + 1)
    return value.computed(expression("{f}({x}, dim={along})", f=function, x=value.code, along=along))


def is_loss(scope: Scope, node: ast.Call) -> bool:
    value = scope.program.value(node.func)
    is_class = value.kind is Kind.MODULE and value.sure and torch_ops.class_kind(value.name) == "loss"
    does = torch_ops.of_forward(value.name) if is_class else None
    if value.kind is Kind.LIBRARY and value.name.startswith("torch.nn.functional."):
        does = torch_ops.of_function(value.name)
    return does is not None and does.does("vmapped")


def _lift_loss(scope: Scope, node: ast.Call, values: list[Batched | Invariant]) -> Batched:
    """The losses by torch.vmap: each averages over, and ignores, what is of its own step; raises Blocked."""
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
    """The least and the most axes that one step's loss has; `picks`: of scores, those of one class each."""
    if reduction in ("mean", "sum"):
        return 0, 0
    ranks = [value.rank for value in values]
    if picks:
        ranks = [None if ranks[0] is None else ranks[0] - 1]  # the scores' axis for the classes goes
    known = [rank for rank in ranks if rank is not None]
    return (max(known), max(known)) if reduction == "none" and len(known) == len(ranks) else (0, MANY)
