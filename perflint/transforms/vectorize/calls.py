"""Lifts calls: of torch's functions, of tensors' methods, and of torch's modules."""

from __future__ import annotations

import ast

from perflint.analysis.loops.calls import rnn_kind
from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import expression
from perflint.transforms.vectorize import axes, batched, functions, inline, losses
from perflint.transforms.vectorize.modules import Module, is_changed, module_built
from perflint.transforms.vectorize.purity import call_entry, called_module, invariant
from perflint.transforms.vectorize.scope import Scope, tensor
from perflint.transforms.vectorize.states import stacked_layers
from perflint.transforms.vectorize.steps import Lifted, Steps

_EMBEDDING = frozenset({"num_embeddings", "embedding_dim", "padding_idx", "device", "dtype"})


def lift_call(scope: Scope, node: ast.Call) -> Lifted:
    """The value of a call in all steps; raises Blocked."""
    if not scope.varies(node):
        return invariant(scope, node)
    if (layers := stacked_layers(scope, node)) is not None:
        return layers
    if rnn_kind(scope.program, node.func):
        raise Blocked("an RNN's output and state are not kept apart", node)
    module = called_module(scope, node)
    loss = losses.loss_of(scope, node)
    if loss:
        return losses.lift_loss(scope, node, loss, [tensor(scope.lift(each), each) for each in node.args])
    if module is not None:
        return _module(scope, node, module)
    function = inline.callee_of(scope, node)
    if function is not None:
        return inline.lift_inline(scope, node, function)
    entry = call_entry(scope, node)
    if entry is None:
        raise Blocked(f"{shown(scope.program, node.func)} is not known well enough", node)
    return functions.lift_function(scope, node, entry)


def _only_argument(scope: Scope, node: ast.Call) -> Steps:
    if len(node.args) != 1 or node.keywords:
        raise Blocked(f"{shown(scope.program, node.func)} gets more than one tensor", node)
    value = tensor(scope.lift(node.args[0]), node)
    if not isinstance(value, Steps):
        raise Blocked(f"{shown(scope.program, node.func)} gets no step of a sequence", node)
    return value


def _module(scope: Scope, node: ast.Call, module: Module) -> Steps:
    value = _only_argument(scope, node)
    name = scope.program.segment(node.func)
    if module.name == "Sequential":
        return _sequential(scope, node, module, value)
    if (module.is_pointwise or module.is_dropout) and module.is_in_place:
        raise Blocked(f"`{name}` changes its input in place", node)
    if module.is_dropout:
        scope.draft.changes.add(f"`{name}` draws other random numbers")
    if module.is_pointwise or module.is_dropout:
        code = scope.code(node, {node.args[0]: value.code})
        returns_input = module.is_dropout or module.name == "Identity"  # it may
        return value.named(code) if returns_input else value.computed(code, dense=value.dense)
    if batched.is_batched(module):
        return batched.as_batch(scope, node, [module], value)
    if module.name == "Embedding":
        if len(module.built.args) > 3 or {each.arg for each in module.built.keywords} - _EMBEDDING:
            raise Blocked(f"`{name}` does more than look up", node)
        code = scope.code(node, {node.args[0]: value.code})
        return value.with_axes(1, code).computed(code, dense=True, fresh=True)
    if module.reads_last_axis(scope.program):
        value = axes.with_axes_behind(value, 1, node)
        is_linear = module.name == "Linear"
        return value.computed(scope.code(node, {node.args[0]: value.code}), dense=is_linear, fresh=is_linear)
    if module.softmax_axis is not None:
        axis = integer(module.softmax_axis)
        if axis is None or not scope.facts.torch:
            raise Blocked(f"it is not known along which axis `{name}` works", node)
        return _softmax(scope, module, value, axis, node)
    raise Blocked(f"there is no rule for all steps of `nn.{module.name}` at once", node)


def _sequential(scope: Scope, node: ast.Call, module: Module, value: Steps) -> Steps:
    """`nn.Sequential` of modules that work on single numbers, on the last axis, or on items of a batch."""
    if is_changed(scope.program, node.func):
        raise Blocked(f"`{ast.unparse(scope.code(node.func))}` is changed after it was built", node)
    parts = [module_built(scope.program, part) for part in module.built.args]
    known = [part for part in parts if part is not None]
    if any(part.is_dropout for part in known):
        scope.draft.changes.add(f"`{ast.unparse(scope.code(node.func))}` draws other random numbers")
    if len(known) == len(parts) and any(map(batched.is_batched, known)):
        return batched.as_batch(scope, node, known, value)
    by_itself = (part.is_pointwise or part.is_dropout or part.reads_last_axis(scope.program) for part in known)
    if len(known) < len(parts) or any(part.is_in_place for part in known) or not all(by_itself):
        raise Blocked(f"`{ast.unparse(scope.code(node.func))}` holds modules for which there is no rule", node)
    value = axes.with_axes_behind(value, 1, node)
    return value.computed(scope.code(node, {node.args[0]: value.code}))


def _softmax(scope: Scope, module: Module, value: Steps, axis: int, node: ast.Call) -> Steps:
    if axis < 0:
        value = axes.with_axes_behind(value, -axis, node)
        return value.computed(scope.code(node, {node.args[0]: value.code}))
    if value.kept and axis == value.axis:
        raise Blocked("a softmax works along the axis for time", node)
    value = value.narrowed(axis + 1)
    function = "log_softmax" if module.name == "LogSoftmax" else "softmax"
    if (rank := value.rank) is not None:
        value = axes.with_axes_behind(value, rank - axis, node)
        return value.computed(_along(scope, function, value, axis - rank))
    value = value if value.kept else value.at(0)
    dim = axis if value.kept else axis + 1
    return value.computed(_along(scope, function, value, dim))


def _along(scope: Scope, function: str, value: Steps, axis: int) -> ast.expr:
    return expression("{torch}.{f}({x}, dim={axis})", torch=scope.facts.torch, f=function, x=value.code, axis=axis)
