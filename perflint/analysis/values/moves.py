"""Recognises what moves a tensor to the device."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import bind
from perflint.syntax.walk import path_of

_DEVICE = re.compile(r"(?i)dev|cuda|gpu|rank")  # what people call one


@dataclass(frozen=True)
class Move:
    """A call that takes `tensor` to the device.

    `device` is the expression of that device, None for the current one, as of `.cuda()`; `is_certain` is False where
    that expression isn't known to be a device. `like` is the tensor, if there is one, beside which the result lies, and
    whose dtype it gets. `casts`: it gets another dtype besides.
    """

    call: ast.Call
    tensor: ast.expr
    device: ast.expr | None = None
    like: ast.expr | None = None
    casts: bool = False
    is_certain: bool = True


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
        known |= value.kind is Kind.NUMBER or named
    return Move(node, tensor, device=target, casts=casts, is_certain=known)
