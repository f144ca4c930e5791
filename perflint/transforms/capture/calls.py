"""What a call inside of a captured function may be: one that computes on the device, and does nothing else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.loops.calls import is_abstract
from perflint.analysis.values.values import Kind, Place, Value
from perflint.syntax.walk import path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.modes import MODES
from perflint.transforms.capture.ownership import argument_names, is_own
from perflint.transforms.capture.table import entry_of
from perflint.transforms.shown import shown

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_BUILTINS = frozenset(
    "range len enumerate zip reversed isinstance hasattr getattr callable int float bool str list tuple dict set min"
    " max sum abs round any all sorted slice type super map filter repr".split()
)
_ERRORS = ("Error", "Exception", "Warning")
_GIVES = frozenset({"tensor", "tuple", "tensors", "number", "bool", "size", "dtype", "device"})
_GROWS = frozenset(
    "append extend insert pop remove clear update add setdefault popitem reverse sort appendleft popleft".split()
)
_READS = frozenset("keys items values get index count copy".split())
_FROM_HOST = frozenset({"tensor", "as_tensor", "from_numpy", "asarray", "new_tensor", "frombuffer", "scalar_tensor"})
_MOVES = frozenset({"to", "cuda", "cpu", "numpy", "item", "tolist", "type", "type_as", "pin_memory"})
_AUTOGRAD = frozenset("backward register_hook requires_grad_ retain_grad share_memory_ set_ resize_".split())
_COMPUTES = frozenset({"torch.autograd.Variable", "torch.nn.utils.rnn.pad_sequence"})
_READING = frozenset(  # masks and lengths, whether the device is there, or how large its input is
    f"torch.nn.{name}"
    for name in "Transformer TransformerEncoder TransformerDecoder CTCLoss AdaptiveLogSoftmaxWithLoss".split()
    + "SyncBatchNorm functional.ctc_loss functional.embedding_bag".split()
) | {"torch.ctc_loss"}
_LATER = "do that when the loop is over"
_APART = "do that in a function of its own, in front of this one or behind it"
_BY_HAND = (
    "if it only computes on the device, decorate the function by hand, with `cuda_graph` of perflint.runtime.graphs"
)
_REFUSED = {
    "torch.distributions": "checks its arguments on the host: compute it by functions of torch",
    "torch.nn.utils.rnn": "needs the lengths on the host: pad and mask instead",
    "torch.autograd": "computes gradients itself: leave that to the caller",
    "torch.cuda": "speaks to the device itself: leave that to the caller",
    "torch.jit": "is compiled: call what it was made of",
}


def check_call(program: Program, node: ast.Call, region: ast.AST, strict: bool) -> ast.FunctionDef | None:
    """The function of this file that a call runs, if any; raises Blocked where a graph would not hold the call."""
    callee, value = program.callee(node), program.value(node.func)
    if value.kind is Kind.CLASS:
        raise Blocked(f"it makes a new {shown(program, node.func)}: make it once, where the model is made", node)
    if isinstance(callee, ast.FunctionDef):
        if is_abstract(callee):
            raise Blocked(
                f"what {shown(program, node.func)} does is left to subclasses: capture it in one of those", node
            )
        return callee
    if any(keyword.arg in ("out", "inplace") for keyword in node.keywords):
        raise Blocked(f"{shown(program, node)} changes something in place: let it give a new tensor", node)
    if value.kind is Kind.MODULE:
        _module(program, node, value, strict)
    elif value.kind is Kind.LIBRARY:
        _library(program, node, value.name)
    elif isinstance(node.func, ast.Attribute):
        _method(program, node, node.func, region)
    else:
        raise Blocked(f"whether a graph can hold what {shown(program, node.func)} does isn't known: {_BY_HAND}", node)
    return None


def _module(program: Program, node: ast.Call, value: Value, strict: bool) -> None:
    kind = torch_ops.class_kind(value.name) if value.name else None
    if value.name in _READING or ".Lazy" in value.name:
        raise Blocked(f"{shown(program, node.func)} may need values on the host: {_BY_HAND}", node)
    if kind is None or (kind == "container" and not value.name.endswith("Sequential")):
        raise Blocked(f"whether a graph can hold what {shown(program, node.func)} does isn't known: {_BY_HAND}", node)
    if strict and "BatchNorm" in value.name:
        reason = "may count what is dropped, while training: use a norm without statistics, such as LayerNorm"
        raise Blocked(f"{shown(program, node.func)} {reason}", node)


def _library(program: Program, node: ast.Call, name: str) -> None:
    head, _, rest = name.partition(".")
    if head == "builtins":
        if rest not in _BUILTINS and not rest.endswith(_ERRORS):
            raise Blocked(f"`{rest}` does something else than compute: {_LATER}", node)
        return
    if head in ("random", "numpy") and "random" in name:
        raise Blocked(
            f"{shown(program, node)} draws a random number on the host: draw by torch, and use `torch.where`",
            node,
        )
    if name in _COMPUTES or name in MODES or head in ("math", "typing"):
        return
    if head != "torch":
        raise Blocked(f"{shown(program, node.func)} does something else than compute on the device: {_APART}", node)
    for prefix, reason in _REFUSED.items():
        if name.startswith(f"{prefix}."):
            raise Blocked(f"{shown(program, node.func)} {reason}", node)
    _function(program, node, name)


def _function(program: Program, node: ast.Call, name: str) -> None:
    entry = torch_ops.of_function(name)
    if entry is None or (entry.result not in _GIVES and entry.result != torch_ops.UNKNOWN):
        if name in ("torch.is_tensor", "torch.device", "torch.Size", "torch.finfo"):
            return
        raise Blocked(f"{shown(program, node.func)} does something else than compute: {_APART}", node)
    if name in _READING:
        raise Blocked(f"{shown(program, node.func)} may need values on the host: {_BY_HAND}", node)
    if name.rpartition(".")[2] in _FROM_HOST:
        raise Blocked(f"{shown(program, node)} copies from the host: make it once, where the model is made", node)
    if entry.traits & {"factory"} and not _is_on_device(node):
        raise Blocked(f"{shown(program, node)} is made on the host: give it a `device`", node)
    _check_size(program, node)


def _check_size(program: Program, node: ast.Call) -> None:
    entry = entry_of(program, node)
    if entry is not None and entry.syncs:
        raise Blocked(f"the size of {shown(program, node)} depends on data: keep all of it, and a mask", node)


def _is_on_device(node: ast.Call) -> bool:
    """Does a call that makes a tensor say where, and is that not the host?"""
    device = next((keyword.value for keyword in node.keywords if keyword.arg == "device"), None)
    named = device.args[0] if isinstance(device, ast.Call) and device.args else device
    return device is not None and not (isinstance(named, ast.Constant) and named.value in (None, "cpu"))


def _method(program: Program, node: ast.Call, func: ast.Attribute, region: ast.AST) -> None:
    name, owner = func.attr, program.value(func.value)
    text = shown(program, func.value)
    if owner.kind is Kind.STRING:
        return
    if owner.kind in (Kind.SEQUENCE, Kind.MAPPING) or (owner.is_blank and name in _GROWS):
        if name not in _READS and not (name in _GROWS and is_own(program, region, func.value)):
            raise Blocked(
                f"{text} is changed, which a replay would not do: return it, and let the caller do that", node
            )
        return
    entry = torch_ops.of_method(name)
    if (owner.kind is not Kind.TENSOR and not owner.is_blank) or entry is None:
        raise Blocked(f"whether a graph can hold what {shown(program, func)} does isn't known: {_BY_HAND}", node)
    if name in _MOVES and not _stays(program, node, func, region):
        is_read = name in ("item", "tolist", "numpy", "cpu")
        moved = f"is read on the host: {_LATER}" if is_read else "may be copied to the device: let the caller do that"
        raise Blocked(f"{shown(program, node)} {moved}", node)
    if name in _FROM_HOST or name in _AUTOGRAD or entry.result not in {*_GIVES, torch_ops.UNKNOWN}:
        raise Blocked(f"{shown(program, node)} does something else than compute on the device: {_APART}", node)
    _check_size(program, node)


def _stays(program: Program, node: ast.Call, func: ast.Attribute, region: ast.AST) -> bool:
    """Is a tensor only given another type, or where it is to go already? Arguments may still come from the host."""
    if func.attr in ("cpu", "numpy", "item", "tolist", "pin_memory"):
        return False
    owner, path = program.value(func.value), path_of(func.value)
    if owner.on_device and owner.sure and path not in argument_names(region):
        return program.value(node).place is not Place.HOST
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]
    whole = len(given) == len(node.args) + len(node.keywords)
    return bool(given) and whole and all(_is_type(program, each) for each in given)


def _is_type(program: Program, node: ast.expr) -> bool:
    name = program.qualified(node)
    if isinstance(node, ast.Attribute) and node.attr == "dtype":
        return True
    return name.startswith("torch.") and name.islower() and "." not in name.removeprefix("torch.")
