"""Evaluates method calls, by the kind of the object."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.values.arguments import Arguments
from perflint.analysis.values.evaluate import Evaluator
from perflint.analysis.values.hints import is_tensor_only
from perflint.analysis.values.operators import common_place
from perflint.analysis.values.values import (
    DEVICE_TENSOR,
    GUESSED,
    GUESSED_TENSOR,
    NONE,
    NUMBER,
    NUMPY,
    OTHER,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    contains_tensor,
    element_of,
    join,
    join_all,
    mapping,
    sequence,
    sequence_of,
    tensor,
)
from perflint.syntax.walk import path_of

_SPELLED = {"decode": STRING, "batch_decode": sequence_of(STRING)}  # what tokenizers make of numbers


def method_call(evaluator: Evaluator, callee: Value, node: ast.Call, arguments: Arguments) -> Value:
    """What `owner.name(arguments)` gives."""
    owner = callee.owner or UNKNOWN
    name = callee.name
    if owner.kind is Kind.TENSOR:
        if owner.name == GUESSED and is_tensor_only(name):  # had it been a number, the call would have failed
            _rebind(evaluator, node, tensor(owner.place))
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
        plain = owner._replace(is_literal=False, literal=None)
        return sequence_of(plain) if name in ("split", "tolist") else plain
    if owner.kind is Kind.OTHER:
        return _on_other(owner, name)
    if owner.kind is Kind.LOADER and name.endswith("iterator"):  # of a project's own class of loaders
        return owner
    return _on_unknown(evaluator, owner, name, arguments)


def from_entry(entry: torch_ops.Operation, place: Place, *, sure: bool = True) -> Value:
    """The value of a call that the table describes."""
    if entry.result == "tensor":
        return tensor(place, sure=sure, dtype=entry.dtype)
    if entry.result in ("tuple", "tensors"):
        return sequence_of(tensor(place, sure=sure))
    if entry.result == "list":
        return sequence_of(NUMBER)
    if entry.result == "size":
        return sequence_of(NUMBER)
    simple = {"number": NUMBER, "bool": NUMBER, "str": STRING, "none": NONE, "numpy": NUMPY, "unknown": UNKNOWN}
    return simple.get(entry.result, Value(Kind.DEVICE, place) if entry.result == "device" else OTHER)


def moved_to(value: Value, arguments: Arguments) -> Place:
    """Where `.to(...)` puts a tensor that is at `value.place`."""
    target = arguments.get(0, "device")
    if target is None or (target.kind is Kind.LIBRARY and target.name.startswith("torch.")) or target.name == "dtype":
        return value.place
    if target.kind in (Kind.DEVICE, Kind.TENSOR):
        return target.place if target.place is not Place.UNKNOWN else Place.DEVICE
    if target.is_literal and isinstance(target.literal, str):
        return Place.HOST if target.literal.startswith("cpu") else Place.DEVICE
    return Place.DEVICE


_INTEGERS = frozenset("uint8 int8 int16 short int32 int int64 long".split())


def dtype_of(value: Value) -> str:
    """The type of numbers that `torch.bool`, `torch.long` and the like stand for; empty for all but masks and ints."""
    name = value.name.rpartition(".")[2] if value.kind is Kind.LIBRARY else ""
    return "bool" if name == "bool" else "int" if name in _INTEGERS else ""


def _converted(owner: Value, arguments: Arguments) -> str:
    """What `.to(...)` makes of the type of a tensor's numbers."""
    types = [value for value in arguments.all if value.kind in (Kind.LIBRARY, Kind.OTHER, Kind.TENSOR)]
    return dtype_of(types[0]) if types else owner.dtype


def _on_tensor(owner: Value, name: str, arguments: Arguments) -> Value:
    if name == "to":
        sure = owner.sure or "dtype" in arguments.keywords or len(arguments.positional) > 1
        return owner._replace(place=moved_to(owner, arguments), sure=sure, dtype=_converted(owner, arguments))
    if name == "cuda":
        return tensor(Place.DEVICE, sure=owner.sure, dtype=owner.dtype)
    if name == "cpu":
        return tensor(Place.HOST, sure=owner.sure, dtype=owner.dtype)
    if name == "byte":  # as which masks were written before there was torch.bool: uint8 selects like them
        return tensor(owner.place, dtype="bool")
    if name == "type" and not arguments.all:
        return STRING
    entry = torch_ops.of_method(name)
    if entry is None:
        return owner._replace(dtype="") if not owner.sure else UNKNOWN
    entry = arguments.select(entry)
    others = [value for value in arguments.all if value.kind is Kind.TENSOR]
    place = common_place([owner, *others]) if others and owner.place is not Place.UNKNOWN else owner.place
    if "like" in entry.traits and "device" in arguments.keywords:
        place = moved_to(owner, Arguments((arguments.keywords["device"],), {}, False))
    certain = owner.sure or owner.name != GUESSED
    sure = certain or (entry.result == "tensor" and (name == "argmax" or is_tensor_only(name)))
    result = from_entry(entry, place, sure=sure)
    if result.kind is Kind.TENSOR and not sure:
        result = result._replace(name=GUESSED)
    return (
        result._replace(dtype=owner.dtype)
        if not result.dtype and entry.shares and "cast" not in entry.traits
        else result
    )


_MAY_HOLD_TENSORS = (Kind.TENSOR, Kind.UNKNOWN, Kind.SEQUENCE, Kind.MAPPING)
MODULE_SELF = frozenset(
    "to cuda cpu train eval half float double bfloat16 requires_grad_ apply share_memory compile".split()
)


def _on_module(evaluator: Evaluator, owner: Value, name: str, node: ast.Call, arguments: Arguments) -> Value:
    if name in MODULE_SELF:
        return owner
    if name in ("parameters", "buffers"):
        return sequence_of(DEVICE_TENSOR)
    if name in ("named_parameters", "named_buffers"):
        return sequence_of(sequence((STRING, DEVICE_TENSOR)))
    if name in ("modules", "children"):
        return sequence_of(Value(Kind.MODULE, sure=False))
    if name in ("named_modules", "named_children", "items"):
        return sequence_of(sequence((STRING, owner.item or Value(Kind.MODULE, sure=False))))
    if name == "values":
        return sequence_of(owner.item or Value(Kind.MODULE, sure=False))
    if name in (
        "state_dict",
        "load_state_dict",
        "zero_grad",
        "register_buffer",
        "add_module",
        "append",
        "named_modules",
    ):
        if name == "register_buffer":
            _register_buffer(evaluator, owner, arguments)
        if name == "append" and arguments.positional:
            _rebind(
                evaluator,
                node,
                owner._replace(item=join(owner.item or arguments.positional[0], arguments.positional[0])),
            )
        return OTHER
    may_compute = arguments.open or any(value.kind in _MAY_HOLD_TENSORS for value in arguments.all)
    return tensor(evaluator.module_place, sure=False) if may_compute else UNKNOWN


def _register_buffer(evaluator: Evaluator, owner: Value, arguments: Arguments) -> None:
    """Know the attribute that a module gets: it moves with the module."""
    label, value = arguments.get(0, "name"), arguments.get(1, "tensor")
    info = evaluator.classes.get(owner.node) if owner.node is not None else None
    if info is not None and label is not None and isinstance(label.literal, str) and value is not None:
        moved = value._replace(place=evaluator.module_place) if value.kind is Kind.TENSOR else value
        info.assign(label.literal, moved)


def inner_on_device(arguments: Arguments) -> bool:
    """Is there a device tensor among the arguments, or in one?"""
    return any((inner := contains_tensor(value)) is not None and inner.on_device for value in arguments.all)


def _on_mapping(evaluator: Evaluator, owner: Value, name: str, node: ast.Call, arguments: Arguments) -> Value:
    if name in ("get", "pop", "setdefault") and arguments.positional:
        key = arguments.positional[0]
        if key.is_literal and key.literal in owner.keys and owner.items is not None:
            return owner.items[owner.keys.index(key.literal)]
        return owner.item or UNKNOWN
    if name == "items":
        return sequence_of(sequence((STRING, owner.item or UNKNOWN)))
    if name == "values":
        return sequence_of(owner.item or UNKNOWN)
    if name == "keys":
        return sequence_of(STRING)
    if name == "copy":
        return owner
    if name == "to":
        return _moved_mapping(owner)
    if name == "update":
        _update_mapping(evaluator, owner, node, arguments)
        return NONE
    return UNKNOWN


def _moved_mapping(owner: Value) -> Value:
    parts = [part._replace(place=Place.DEVICE) if part.kind is Kind.TENSOR else part for part in owner.items or ()]
    return owner._replace(items=tuple(parts), item=join_all(parts) if parts else owner.item)


def _update_mapping(evaluator: Evaluator, owner: Value, node: ast.Call, arguments: Arguments) -> None:
    entries = dict(zip(owner.keys, owner.items or (), strict=False))
    complete = owner.sure
    for other in arguments.positional:
        complete &= other.kind is Kind.MAPPING and other.sure
        entries.update(zip(other.keys, other.items or (), strict=False))
    entries.update(arguments.keywords)
    _rebind(evaluator, node, mapping(entries.items(), complete=complete and not arguments.open))


def _on_sequence(evaluator: Evaluator, owner: Value, name: str, node: ast.Call, arguments: Arguments) -> Value:
    if name in ("append", "add", "insert", "appendleft") and arguments.positional:
        _grow(evaluator, owner, node, arguments.positional[-1])
        return NONE
    if name == "extend" and arguments.positional:
        _grow(evaluator, owner, node, element_of(arguments.positional[0]))
        return NONE
    if name in ("pop", "popleft"):
        return owner.item or UNKNOWN
    if name in ("copy", "union"):
        return owner
    return NUMBER if name in ("index", "count", "numel") else UNKNOWN


def _grow(evaluator: Evaluator, owner: Value, node: ast.Call, item: Value) -> None:
    empty = owner.items == () or owner.item is None
    _rebind(evaluator, node, sequence_of(item if empty else join(owner.item or UNKNOWN, item)))


def _rebind(evaluator: Evaluator, node: ast.Call, value: Value) -> None:
    """After a method changed its object: give the object's name, or attribute of self, the new value."""
    if isinstance(node.func, ast.Attribute) and path_of(node.func.value):  # not so for `add = rows.append`
        evaluator.assign(node.func.value, value)


def _on_other(owner: Value, name: str) -> Value:
    if owner.name == "distribution":
        entry = torch_ops.of_distribution(name)
        return from_entry(entry, owner.place) if entry is not None else UNKNOWN
    if owner.name == "numpy.random":
        return NUMPY
    if owner.name == "argparse.ArgumentParser" and name in ("parse_args", "parse_known_args"):
        namespace = Value(Kind.OTHER, name="argparse.Namespace")
        return namespace if name == "parse_args" else sequence((namespace, sequence_of(STRING)))
    return UNKNOWN


def _on_unknown(evaluator: Evaluator, owner: Value, name: str, arguments: Arguments) -> Value:
    if name == "prepare" and len(arguments.positional) > 1:  # accelerate's and fabric's: what goes in comes out
        return sequence(arguments.positional)
    if name == "prepare" and arguments.positional:
        return arguments.positional[0]
    if name in MODULE_SELF and owner.kind is Kind.UNKNOWN and owner.name:
        return owner
    if name in ("cuda", "to") and owner.kind is Kind.UNKNOWN:
        place = Place.DEVICE if name == "cuda" else moved_to(Value(Kind.TENSOR, Place.UNKNOWN), arguments)
        return tensor(place, sure=False) if place is not Place.UNKNOWN else UNKNOWN
    if name == "size" and arguments.positional:
        return NUMBER
    entry = torch_ops.of_method(name) if owner.is_blank and is_tensor_only(name) else None
    if entry is not None:
        others = [value for value in arguments.all if value.kind is Kind.TENSOR]
        return from_entry(arguments.select(entry), common_place(others) if others else evaluator.usual_place)
    return GUESSED_TENSOR if inner_on_device(arguments) else UNKNOWN
