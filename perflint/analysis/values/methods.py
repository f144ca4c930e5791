"""Evaluates method calls, by the kind of the object."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from perflint import torch_ops
from perflint.analysis.values.evaluate import Evaluator
from perflint.analysis.values.hints import is_tensor_only
from perflint.analysis.values.operators import Arguments, common_place
from perflint.analysis.values.values import (
    DEVICE_TENSOR,
    GUESSED,
    LIKELY_MODULE,
    NONE,
    NUMBER,
    NUMPY,
    OTHER,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    element_of,
    join,
    join_all,
    mapping,
    sequence,
    sequence_of,
    tensor,
)
from perflint.syntax.walk import path_of, spans_an_axis
from perflint.torch_ops import libraries

_SPELLED = {"decode": STRING, "batch_decode": sequence_of(STRING)}  # what tokenizers make of numbers
_MAY_HOLD_TENSORS = (Kind.TENSOR, Kind.UNKNOWN, Kind.SEQUENCE, Kind.MAPPING)
_OF_HOST = re.compile(r"torch\.[A-Z]\w*Tensor")
_INTEGERS = frozenset("int8 int16 short int32 int int64 long".split())
MODULE_SELF = frozenset(
    "to cuda cpu train eval half float double bfloat16 requires_grad_ apply share_memory compile".split()
)


def method_call(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    owner, name = callee.owner or UNKNOWN, callee.name
    if owner.kind is Kind.TENSOR:
        if not owner.sure and is_tensor_only(name, sliced=_is_sliced(node)):  # else the call would have failed
            owner = tensor(owner.place, dtype=owner.dtype)
            _rebind(evaluator, node, owner)
        return _on_tensor(owner, name, arguments)
    if name in _SPELLED and (owner.name == "tokenizer" or "skip_special_tokens" in arguments.keywords):
        return _SPELLED[name]
    if owner.kind is Kind.MODULE:
        return _on_module(evaluator, owner, name, node, arguments)
    if owner.kind is Kind.MAPPING:
        return _on_mapping(evaluator, owner, name, node, arguments)
    if owner.kind is Kind.SEQUENCE:
        return _on_sequence(evaluator, owner, name, node, arguments)
    if owner.kind in (Kind.STRING, Kind.NUMPY):
        plain = owner.varying
        return sequence_of(plain) if name in ("split", "tolist") else plain
    if owner.kind is Kind.OTHER:
        return _on_other(owner, name)
    if owner.kind is Kind.LOADER and name.endswith(("iterator", "__iter__")):  # some are a project's own class's
        return owner
    if name in MODULE_SELF and (itself := _of_super(evaluator, node)) is not None:
        return itself
    return _on_unknown(evaluator, owner, name, arguments)


def _of_super(evaluator: Evaluator, node: ast.Call) -> Value | None:
    """The module of which `super().to(device)`, or the like, calls an inherited method."""
    receiver, function = getattr(node.func, "value", None), evaluator.frame.function
    is_super = isinstance(receiver, ast.Call) and path_of(receiver.func) == "super"
    owner = function.owner if is_super and function is not None else None
    return owner.instance if owner is not None and owner.is_a("module") else None


def _rebind(evaluator: Evaluator, node: ast.Call, value: Value) -> None:
    """After a method changed its object, or told what it is: bind its name, or attribute, anew."""
    changed = node.func.value if isinstance(node.func, ast.Attribute) else None  # not so for `add = rows.append`
    is_list_in_it = isinstance(changed, ast.Subscript) and value.kind is Kind.SEQUENCE
    if changed is not None and (path_of(changed) or is_list_in_it):
        evaluator.assign(changed, value)
    elif _is_sliced(node) and path_of(whole := node.func.value.value):  # type: ignore[attr-defined]
        evaluator.assign(whole, value)


def _is_sliced(node: ast.Call) -> bool:
    sliced = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(sliced, ast.Subscript) and spans_an_axis(sliced.slice)


# -- tensors


def from_entry(entry: torch_ops.Operation, place: Place, *, sure: bool = True) -> Value:
    if entry.result == "tensor":
        return tensor(place, sure=sure, dtype=entry.dtype)
    if entry.result in ("tuple", "tensors"):
        return sequence_of(tensor(place, sure=sure))
    if entry.result == "device":
        return Value(Kind.DEVICE, place)
    return _RESULTS.get(entry.result, OTHER)


_RESULTS = {
    **dict.fromkeys(("list", "size"), sequence_of(NUMBER)),
    **dict.fromkeys(("number", "bool"), NUMBER),
    "str": STRING,
    "none": NONE,
    "numpy": NUMPY,
    "unknown": UNKNOWN,
}


def moved_to(place: Place, target: Value | None) -> Place:
    """Where `.to(target)` puts a tensor that is at `place`."""
    if target is None or (target.kind is Kind.LIBRARY and target.name.startswith("torch.")) or target.name == "dtype":
        return place
    if target.kind in (Kind.DEVICE, Kind.TENSOR) and target.place is not Place.UNKNOWN:
        return target.place
    on_host = isinstance(target.literal, str) and target.literal.startswith("cpu")
    return Place.HOST if on_host else Place.DEVICE


def dtype_of(value: Value) -> str:
    """The type of numbers that `torch.bool`, `torch.long` and the like stand for; empty for floats."""
    name = value.name.rpartition(".")[2] if value.kind is Kind.LIBRARY else ""
    return name if name in ("bool", "uint8") else "int" if name in _INTEGERS else ""  # bytes pick as masks do


def _on_tensor(owner: Value, name: str, arguments: Arguments) -> Value:
    if name == "to":
        sure = owner.sure or "dtype" in arguments.keywords or len(arguments.positional) > 1
        types = [value for value in arguments.all if value.kind in (Kind.LIBRARY, Kind.OTHER, Kind.TENSOR)]
        dtype = dtype_of(types[0]) if types else owner.dtype
        return owner._replace(place=moved_to(owner.place, arguments.get(0, "device")), sure=sure, dtype=dtype)
    if name in ("cuda", "cpu"):
        place = Place.DEVICE if name == "cuda" else Place.HOST
        return tensor(place, sure=owner.sure, dtype=owner.dtype)
    if name == "byte":  # as which masks were written before there was torch.bool: uint8 selects like them
        return tensor(owner.place, dtype="bool")
    if name == "type" and not arguments.all:
        return STRING
    if name == "type" and _OF_HOST.fullmatch(arguments.all[0].name or str(arguments.all[0].literal)):
        return tensor(Place.HOST, sure=owner.sure)
    entry = torch_ops.of_method(name)
    if entry is None:
        return owner._replace(dtype="") if not owner.sure else UNKNOWN
    entry = arguments.select(entry)
    others = [value for value in arguments.all if value.kind is Kind.TENSOR]
    is_view = entry.shares and not entry.does("cast")  # of which a tensor can tell no more than the shape
    meets = others and owner.place is not Place.UNKNOWN and not is_view
    place = common_place([owner, *others]) if meets else owner.place
    if entry.does("like") and "device" in arguments.keywords:
        place = moved_to(Place.UNKNOWN, arguments.keywords["device"])
    sure = owner.sure or owner.name != GUESSED
    sure = sure or (entry.result == "tensor" and (name == "argmax" or is_tensor_only(name)))
    result = from_entry(entry, place, sure=sure)
    if result.kind is Kind.TENSOR and not sure:
        result = result._replace(name=GUESSED)
    if is_view and result.item is not None:
        return sequence_of(result.item._replace(dtype=owner.dtype))
    return result._replace(dtype=owner.dtype) if is_view and not result.dtype else result


# -- modules


def _on_module(evaluator: Evaluator, owner: Value, name: str, node: ast.Call, arguments: Arguments) -> Value:
    if name == "register_buffer":
        _register_buffer(evaluator, owner, arguments)
    if name == "append" and arguments.positional:
        added = arguments.positional[0]
        _rebind(evaluator, node, owner._replace(item=join(owner.item or added, added)))
    if name in MODULE_SELF:
        return owner
    if name in _OF_MODULES:
        return _OF_MODULES[name](owner.item or LIKELY_MODULE)
    may_compute = arguments.open or any(value.kind in _MAY_HOLD_TENSORS for value in arguments.all)
    return tensor(evaluator.module_place, sure=False) if may_compute else UNKNOWN


_OF_MODULES: dict[str, Callable[[Value], Value]] = {  # what they give, by the value of the parts
    **dict.fromkeys(("parameters", "buffers"), lambda part: sequence_of(DEVICE_TENSOR)),
    **dict.fromkeys(("named_parameters", "named_buffers"), lambda part: sequence_of(sequence((STRING, DEVICE_TENSOR)))),
    **dict.fromkeys(("modules", "children"), lambda part: sequence_of(LIKELY_MODULE)),
    **dict.fromkeys(("named_modules", "named_children", "items"), lambda part: sequence_of(sequence((STRING, part)))),
    "values": sequence_of,
    **dict.fromkeys(
        ("state_dict", "load_state_dict", "zero_grad", "register_buffer", "add_module", "append"), lambda part: OTHER
    ),
}


def _register_buffer(evaluator: Evaluator, owner: Value, arguments: Arguments) -> None:
    """Know the attribute that a module gets: it moves with the module."""
    label, value = arguments.get(0, "name"), arguments.get(1, "tensor")
    info = evaluator.class_of(owner)
    if info is not None and label is not None and isinstance(label.literal, str) and value is not None:
        moved = value._replace(place=evaluator.module_place) if value.kind is Kind.TENSOR else value
        info.assign(label.literal, moved)


# -- containers


def _on_mapping(evaluator: Evaluator, owner: Value, name: str, node: ast.Call, arguments: Arguments) -> Value:
    item = owner.item or UNKNOWN
    if name in ("get", "pop", "setdefault") and arguments.positional:
        return owner.entry(arguments.positional[0])
    if name == "to":
        parts = [part._replace(place=Place.DEVICE) if part.kind is Kind.TENSOR else part for part in owner.items or ()]
        return owner._replace(items=tuple(parts), item=join_all(parts) if parts else owner.item)
    if name == "update":
        grown, complete = owner, owner.sure and not arguments.open
        for other in arguments.positional:
            complete &= other.kind is Kind.MAPPING and other.sure
            grown = mapping((grown.entries | other.entries).items())
        _rebind(evaluator, node, grown.with_entries(arguments.keywords, complete=complete))
        return NONE
    known = {"items": sequence_of(sequence((STRING, item))), "values": sequence_of(item), "keys": sequence_of(STRING)}
    return owner if name == "copy" else known.get(name, UNKNOWN)


def _on_sequence(evaluator: Evaluator, owner: Value, name: str, node: ast.Call, arguments: Arguments) -> Value:
    if name in ("append", "add", "insert", "appendleft", "extend") and arguments.positional:
        if name == "extend" and arguments.positional[0].items == ():
            return NONE
        item = element_of(arguments.positional[0]) if name == "extend" else arguments.positional[-1]
        empty = owner.items == () or owner.item is None
        _rebind(evaluator, node, sequence_of(item if empty else join(owner.item or UNKNOWN, item)))
        return NONE
    if name in ("pop", "popleft"):
        return owner.item or UNKNOWN
    if name in ("copy", "union"):
        return owner
    return NUMBER if name in ("index", "count", "numel") else UNKNOWN


# -- others


def _on_other(owner: Value, name: str) -> Value:
    if owner.name == "distribution":
        entry = torch_ops.of_distribution(name)
        return from_entry(entry, owner.place) if entry is not None else UNKNOWN
    if owner.name == "numpy.random":
        return NUMPY if name not in libraries.OF_STATE else UNKNOWN
    if owner.name == "argparse.ArgumentParser" and name in ("parse_args", "parse_known_args"):
        namespace = Value(Kind.OTHER, name="argparse.Namespace")
        return namespace if name == "parse_args" else sequence((namespace, sequence_of(STRING)))
    return UNKNOWN


def _on_unknown(evaluator: Evaluator, owner: Value, name: str, arguments: Arguments) -> Value:
    if name == "prepare" and arguments.positional:  # accelerate's and fabric's: what goes in comes out
        return sequence(arguments.positional) if len(arguments.positional) > 1 else arguments.positional[0]
    if name in MODULE_SELF and owner.kind is Kind.UNKNOWN and owner.name:
        return owner
    if name in ("cuda", "to") and owner.kind is Kind.UNKNOWN:
        place = Place.DEVICE if name == "cuda" else moved_to(Place.UNKNOWN, arguments.get(0, "device"))
        return tensor(place, sure=False) if place is not Place.UNKNOWN else UNKNOWN
    if name == "size" and arguments.positional:
        return NUMBER
    entry = torch_ops.of_method(name) if owner.is_blank and is_tensor_only(name) else None
    if entry is not None:
        others = [value for value in arguments.all if value.kind is Kind.TENSOR]
        return from_entry(arguments.select(entry), common_place(others) if others else evaluator.usual_place)
    return arguments.derived
