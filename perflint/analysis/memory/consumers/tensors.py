"""The steps from a tensor to what is done with it."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.memory.consumers.following import Follower, Steps
from perflint.analysis.memory.consumers.modules import forwards
from perflint.analysis.memory.consumers.roles import (
    DISTANCE_MODULES,
    ELEMENTWISE_MODULES,
    WRAPPERS,
    OutOfSight,
    Role,
    converts,
    is_view,
    joins,
    role_of_function,
    role_of_method,
)
from perflint.analysis.memory.consumers.trace import Trace
from perflint.analysis.values.values import Kind, Value

_LAYOUTS = frozenset("view_as expand_as reshape_as type_as to".split())  # of which a tensor may be the pattern
_ONLY_LOOK = frozenset({"builtins.len", "builtins.isinstance", "builtins.print", "builtins.type", "builtins.id"})
_PASSING = WRAPPERS | {"torch.nn.functional.dropout"}
_ADDING = frozenset({"append", "insert"})
_EXTREMA = frozenset({"torch.max", "torch.min"})  # of one tensor, or of two element by element
_PASSING_MODULES = frozenset({"Dropout", "Identity"})  # may give the tensor itself


def _attribute(follower: Follower, parent: ast.Attribute, node: ast.expr, trace: Trace) -> None:
    call = follower.program.parent(parent)
    name = parent.attr
    if not isinstance(parent.ctx, ast.Load):
        raise OutOfSight
    if _measures(name):
        follower.measured |= name == "shape" or torch_ops.canonical(f"torch.Tensor.{name}") in ("size", "numel")
    elif not isinstance(call, ast.Call) or call.func is not parent:
        if name not in ("T", "mT", "data"):
            raise OutOfSight
        follower.follow(parent, trace)
    elif is_view(name) or converts(name):
        follower.converted |= converts(name)
        follower.follow(call, trace)
    elif torch_ops.does(name, "parting"):
        follower.follow(call, trace.into(None, call))
    else:
        follower.consume(call, parent.value, role_of_method(name, receiver=True))


def _measures(name: str) -> bool:
    operation = torch_ops.of_attribute(name) or torch_ops.of_method(name)
    return operation is not None and operation.does("measuring")


def _argument(follower: Follower, call: ast.Call, node: ast.expr, trace: Trace) -> None:
    _given(follower, call, node, trace, "")


def _keyword(follower: Follower, parent: ast.keyword, node: ast.expr, trace: Trace) -> None:
    call = follower.program.parent(parent)
    if not isinstance(call, ast.Call) or parent.arg in (None, "out"):
        raise OutOfSight
    _given(follower, call, node, trace, parent.arg or "")


def _given(follower: Follower, call: ast.Call, node: ast.expr, trace: Trace, keyword: str) -> None:
    """The tensor is an argument."""
    program = follower.program
    if node is call.func:
        raise OutOfSight
    callee = program.callee(call)
    function = program.value(call.func)
    if callee is not None and function.sure:
        follower.into(callee, call, node, trace, keyword)
    elif candidates := forwards(follower.flow, call):
        for each in candidates:
            follower.into(each, call, node, trace, keyword)
    elif function.kind is Kind.LIBRARY:
        _library(follower, call, node, trace, keyword)
    elif isinstance(call.func, ast.Attribute) and _is_tensor_method(follower, call.func):
        name = call.func.attr
        if name in _LAYOUTS:
            follower.measured = True
        else:
            role = role_of_method(name, receiver=False)
            follower.consume(call, node, role, in_place=torch_ops.writes_in_place(name))
    elif isinstance(call.func, ast.Attribute) and call.func.attr in _ADDING and isinstance(call.func.value, ast.Name):
        follower.put(call.func.value, node, None, trace)
    else:
        _module(follower, function, call, node, trace)


def _is_tensor_method(follower: Follower, function: ast.Attribute) -> bool:
    kind = follower.program.value(function.value).kind
    unmistakable = function.attr.startswith(("masked_", "scatter", "gather", "bmm", "matmul", "index_"))
    return kind is Kind.TENSOR or (kind is Kind.UNKNOWN and unmistakable)


def _module(follower: Follower, module: Value, call: ast.Call, node: ast.expr, trace: Trace) -> None:
    """A module of torch is called with it."""
    name = module.name.rpartition(".")[2]
    if module.kind is not Kind.MODULE or module.node is not None:
        raise OutOfSight
    if name in DISTANCE_MODULES:
        follower.consume(call, node, Role.REDUCTION)
    elif name in ELEMENTWISE_MODULES:
        follower.consume(call, node, Role.ELEMENTWISE)
    elif name in _PASSING_MODULES and module.sure:
        follower.follow(call, trace)
    else:
        raise OutOfSight


def _library(follower: Follower, call: ast.Call, node: ast.expr, trace: Trace, keyword: str) -> None:
    program = follower.program
    name = program.qualified(call.func)
    short = name.rpartition(".")[2]
    if joins(name):
        follower.consume(call, node, Role.READ)
    elif name in _PASSING:
        follower.follow(call, trace)
    elif name.startswith("torch.") and (is_view(short) or torch_ops.does(short, "parting")):
        if node is not call.args[0]:
            raise OutOfSight
        follower.follow(call, trace.into(None, call) if torch_ops.does(short, "parting") else trace)
    elif name in _EXTREMA and all(program.value(each).kind is Kind.TENSOR for each in call.args) and call.args[1:]:
        follower.consume(call, node, Role.ELEMENTWISE)
    elif name not in _ONLY_LOOK and (reads := role_of_function(name, call, node, keyword)) is not None:
        follower.consume(call, node, reads[0], in_place=reads[1])


def _subscript(follower: Follower, parent: ast.Subscript, node: ast.expr, trace: Trace) -> None:
    if node is not parent.value:
        index(follower, parent, node)
    elif not isinstance(parent.ctx, ast.Load):
        raise OutOfSight
    elif any(follower.program.value(each).kind is Kind.TENSOR for each in _indices(parent.slice)):
        follower.consume(parent, node, Role.READ)
    else:
        follower.follow(parent, trace)


def index(follower: Follower, parent: ast.Subscript, node: ast.expr) -> None:
    """The tensor is an index."""
    kind = follower.program.value(parent.value).kind
    several = kind is Kind.UNKNOWN and isinstance(parent.slice, ast.Tuple)
    if (kind is not Kind.TENSOR and not several) or isinstance(parent.ctx, ast.Del):
        raise OutOfSight
    follower.consume(parent, node, Role.READ)


def _indices(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _operand(follower: Follower, parent: ast.BinOp, node: ast.expr, trace: Trace) -> None:
    follower.consume(parent, node, Role.MATMUL if isinstance(parent.op, ast.MatMult) else Role.ELEMENTWISE)


def _sign(follower: Follower, parent: ast.UnaryOp, node: ast.expr, trace: Trace) -> None:
    if isinstance(parent.op, ast.Not):
        raise OutOfSight
    follower.consume(parent, node, Role.ELEMENTWISE)


def _compared(follower: Follower, parent: ast.Compare, node: ast.expr, trace: Trace) -> None:
    if all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops):
        return
    if any(isinstance(op, ast.In | ast.NotIn) for op in parent.ops) or len(parent.ops) > 1:
        raise OutOfSight
    follower.consume(parent, node, Role.ELEMENTWISE)


def _augmented(follower: Follower, parent: ast.AugAssign, node: ast.expr, trace: Trace) -> None:
    is_tensor = follower.program.value(parent.target).kind is Kind.TENSOR
    if node is not parent.value or not is_tensor or isinstance(parent.op, ast.MatMult):
        raise OutOfSight
    follower.consume(parent, node, Role.ELEMENTWISE, in_place=True)


STEPS: Steps = {
    ast.Attribute: _attribute,
    ast.Call: _argument,
    ast.keyword: _keyword,
    ast.Subscript: _subscript,
    ast.BinOp: _operand,
    ast.UnaryOp: _sign,
    ast.Compare: _compared,
    ast.AugAssign: _augmented,
}
