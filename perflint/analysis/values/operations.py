"""Tells which operation of torch a call runs, and whether it moves its tensor."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.library import decorators_of
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import Bound, bind, parameters_of
from perflint.syntax.walk import Function, integer, own_nodes, path_of, returned_values

WRAPPERS = ("torch.autograd.Variable", "torch.nn.Parameter", "torch.nn.parameter.Parameter")
_DEVICE = re.compile(r"(?i)dev|cuda|gpu|rank")  # what people call one
_RECEIVERS = frozenset({Kind.TENSOR, Kind.UNKNOWN, Kind.METHOD})  # a method: an attribute of what is unknown


class TorchCall(NamedTuple):
    """A call of one of torch's functions, or of a tensor's method.

    `does` is what the table says of it. `tensor` is what it is a method of, or its first argument; None for what makes
    a tensor out of none. `arguments` are the other positional ones.
    """

    call: ast.Call
    does: torch_ops.Operation
    tensor: ast.expr | None
    arguments: tuple[ast.expr, ...]

    @property
    def name(self) -> str:
        return self.does.name

    def bound(self, *parameters: str) -> Bound:
        is_function = self.tensor is not None and self.tensor in self.call.args
        return bind(self.call, ("input", *parameters) if is_function else parameters)

    @property
    def dim(self) -> ast.expr | None:
        return self._axes.get("dim", "axis")

    @property
    def joined_axis(self) -> int | None:
        """The axis along which a concatenation or a stack joins its parts; None where that is no constant."""
        return integer(self.dim) if self.dim is not None else 0

    @property
    def keepdim(self) -> ast.expr | None:
        return self._axes.get("keepdim", "keepdims")

    @property
    def _axes(self) -> Bound:
        place = self.does.dim.position if self.does.dim is not None else None
        before = len(self.call.args) if place is None else place
        return bind(self.call, (*["_"] * before, "dim", "keepdim", "axis", "keepdims"))

    @property
    def traits(self) -> frozenset[str]:
        return self.does.traits


def operation(program: Program, node: ast.AST) -> TorchCall | None:
    """The operation of torch that `node` calls: a function, or a method of what may be a tensor."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Attribute, ast.Name)):
        return None
    qualified = program.qualified(node.func)
    if qualified:
        function = torch_ops.of_function(qualified)
        if function is None:
            return None
        first = None if "factory" in function.traits else next(iter(node.args), None)
        return TorchCall(node, function, first, tuple(node.args if first is None else node.args[1:]))
    if not isinstance(node.func, ast.Attribute) or program.value(node.func.value).kind not in _RECEIVERS:
        return None
    method = torch_ops.of_method(node.func.attr) if program.callee(node) is None else None
    return TorchCall(node, method, node.func.value, tuple(node.args)) if method is not None else None


def computes_loss(program: Program, call: ast.Call) -> bool:
    found, callee = operation(program, call), program.value(call.func)
    is_module = callee.kind is Kind.MODULE and torch_ops.class_kind(callee.name) == "loss"
    return is_module or (found is not None and found.does.does("loss"))


@dataclass(frozen=True)
class Move:
    """A call that takes `tensor` to the device.

    `device` is the expression of that, None for the current one; `is_certain` is False where it isn't known to be a
    device. `like` is the tensor, if there is one, beside which the result lies, and whose dtype it gets. `casts`: it
    gets another dtype besides.
    """

    call: ast.Call
    tensor: ast.expr
    device: ast.expr | None = None
    like: ast.expr | None = None
    casts: bool = False
    is_certain: bool = True


def _is_given_other(program: Program, path: str) -> bool:
    name = path.rpartition(".")[2]
    for call in program.of_type(ast.Call):
        callee = program.callee(call)
        given = program.arguments(call, callee).get(name) if callee is not None else None
        if given is not None and program.value(given).kind in (Kind.LIBRARY, Kind.TENSOR):
            return True
    return False


def moves_first(program: Program, function: Function) -> bool:
    """Does `function` take its first argument to the device, perhaps where there is one, and only give it back?"""
    parameters = [each for each in parameters_of(function) if each.arg not in ("self", "cls")]
    if not parameters or function not in program.get(_moving):
        return False
    name = parameters[0].arg
    found = [moved for each in own_nodes(function) if (moved := move(program, each)) is not None]
    moves = [each.call for each in found if path_of(_wrapped(program, each.tensor)) == name]
    ends = [_wrapped(program, each) for each in returned_values(function)]
    return bool(moves) and all(each in moves or path_of(each) == name for each in ends)


def _moving(program: Program) -> set[Function | None]:
    return {program.function_of(each) for each in program.of_type(ast.Call) if move(program, each) is not None}


def _wrapped(program: Program, node: ast.expr) -> ast.expr:
    is_variable = isinstance(node, ast.Call) and program.qualified(node.func).endswith(".Variable")
    return node.args[0] if isinstance(node, ast.Call) and is_variable and len(node.args) == 1 else node


def move(program: Program, node: ast.AST) -> Move | None:
    """`node` as `.to(device)`, `.to(x)`, `.cuda()`, `.type_as(x)` or `.type(torch.cuda.FloatTensor)`; else None."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if not torch_ops.does(node.func.attr, "to_device"):
        return None
    given = bind(node, ("device", "dtype", "non_blocking"))
    target, tensor, method = given.get("device", "other"), node.func.value, node.func.attr
    if target is None:
        target = next((each.value for each in given.others if each.arg == "other"), None)
    if method == "type":
        name = program.qualified(target) if target is not None else ""
        if not name.startswith("torch.cuda."):
            return None
        return Move(node, tensor, casts=name != "torch.cuda.FloatTensor", is_certain=path_of(target or node) == name)
    if not program.value(node).on_device or (target is None and method != "cuda"):
        return None
    if target is not None and "dtype" in path_of(target):
        return None
    others = given.rest or given.is_open or any(each.arg not in ("other", "copy") for each in given.others)
    casts = "dtype" in given.given or bool(others)
    if target is None:
        return Move(node, tensor, casts=casts)
    value = program.value(target)
    if method == "type_as" or (value.kind is Kind.TENSOR and value.sure):
        return Move(node, tensor, like=target, casts=casts)
    known = value.kind in (Kind.DEVICE, Kind.STRING) or isinstance(target, ast.Constant)
    if method == "to":  # which takes no None for the current device
        named = isinstance(target, ast.Attribute) and target.attr == "device"
        named |= value.is_blank and bool(_DEVICE.search(path_of(target)))
        known |= value.kind is Kind.NUMBER or (named and not _is_given_other(program, path_of(target)))
    return Move(node, tensor, device=target, casts=casts, is_certain=known)


def returned(program: Program, node: ast.expr) -> list[ast.expr]:
    """What a call of a function of this file may give; empty where not all of that is known."""
    callee = program.callee(node)
    if not isinstance(callee, ast.FunctionDef) or callee.name == "__init__" or decorators_of(program, callee):
        return []
    own, found = own_nodes(callee), returned_values(callee)
    is_plain = not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own)
    is_all = len(found) == sum(isinstance(each, ast.Return) for each in own)
    return found if is_plain and is_all else []


def given(program: Program, definition: Definition) -> list[ast.expr]:
    """The expressions of which one gives a variable its value, be it an item of a tuple; empty if unknown."""
    source, steps = definition.source, definition.steps
    if source is None or definition.updates is not None:
        return []
    if not steps:
        return [source]
    step, tuples = steps[0], returned(program, source)
    if len(steps) > 1 or not isinstance(step, int):
        return []
    items = [each.elts[step] for each in tuples if isinstance(each, ast.Tuple) and step < len(each.elts)]
    is_known = len(items) == len(tuples) and not any(isinstance(each, ast.Starred) for each in items)
    return items if is_known else []
