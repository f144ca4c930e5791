"""Encodes values in a few characters, and names the functions of other files that a call may reach with these."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from perflint import torch_ops
from perflint.analysis.links import LOADERS, HotCall
from perflint.analysis.values.values import (
    CONTAINER_METHODS,
    ELSEWHERE,
    GUESSED,
    GUESSED_TENSOR,
    LIKELY_LOADER,
    LIKELY_MODULE,
    NUMBER,
    NUMPY,
    OR,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    sequence,
    sequence_of,
    tensor,
)

_UNKNOWN, _GUESS = "-", "g"
PINNED = "p"  # a loader whose batches lie in pinned memory
_DEPTH = 3  # of tuples in tuples
_PARTS = 8  # of a tuple, beyond which it is no result that callers take apart
_TENSORS = {
    (Place.DEVICE, True): "D",
    (Place.DEVICE, False): "d",
    (Place.HOST, True): "H",
    (Place.HOST, False): "h",
    (Place.UNKNOWN, True): "T",
    (Place.UNKNOWN, False): "t",
}
_MASKS = {"D": "B", "d": "b"}  # of truth values
_SIMPLE = {Kind.NUMBER: "n", Kind.STRING: "s", Kind.NUMPY: "a", Kind.MODULE: "m"}
_VALUES = {code: tensor(place, sure=sure) for (place, sure), code in _TENSORS.items()} | {
    **{mask: tensor(Place.DEVICE, sure=code == "D", dtype="bool") for code, mask in _MASKS.items()},
    _GUESS: GUESSED_TENSOR,
    "n": NUMBER,
    "s": STRING,
    "a": NUMPY,
    "m": LIKELY_MODULE,
    "l": LIKELY_LOADER,
    LOADERS: LIKELY_LOADER,
    PINNED: LIKELY_LOADER._replace(pinned=True),
}
_AT_HOME = str.maketrans("DdBbTt", "HhHhHh")
_TOLD = frozenset("DdBbHhTnsalp")  # what says more than a caller would guess
SHARED = frozenset({"m", "l", "p"})  # which functions are given once, and use in every step
_ON_DEVICE = frozenset({"D", "d", "B", "b", _GUESS})


def argument_code(value: Value) -> str:
    return _code(value, _DEPTH)


def class_name(value: Value) -> str:
    """The class of the object `value`, as its file knows it; one of its own after an @; else empty."""
    if isinstance(value.node, ast.ClassDef) and value.kind is Kind.MODULE and value.sure:
        return f"@{value.node.name}"
    head, _, last = value.name.rpartition(".")
    is_known = value.kind is Kind.UNKNOWN and bool(head) and last[:1].isupper()
    return value.name if is_known and head.partition(".")[0] not in ELSEWHERE else ""


def result_code(value: Value | None) -> str:
    """The code for what a function returns; empty where it tells nothing."""
    code = _code(value, _DEPTH) if value is not None else ""
    return code if not _TOLD.isdisjoint(code) else ""


def value_of(code: str, place: Place = Place.UNKNOWN) -> Value:
    codes = iter(code)
    return _read(next(codes, _UNKNOWN), codes, place)


def value_at_home(code: str) -> Value:
    return value_of(code.translate(_AT_HOME))


def _values_of(codes: str) -> tuple[Value, ...]:
    return tuple(_read_elements(iter(codes), Place.UNKNOWN))


def _code(value: Value, depth: int) -> str:
    if value.kind is Kind.TENSOR:
        return _tensor_code(value)
    if value.kind is Kind.SEQUENCE and depth:
        if value.items is not None and len(value.items) <= _PARTS:
            return f"({''.join(_code(item, depth - 1) for item in value.items)})"
        return f"[{_code(value.item or UNKNOWN, depth - 1)}]"
    if value.kind is Kind.MAPPING and depth:
        return f"{{{_code(value.item or UNKNOWN, depth - 1)}}}"
    if value.kind is Kind.LOADER:
        return PINNED if value.pinned else "l"
    return _SIMPLE.get(value.kind, _UNKNOWN)


def _tensor_code(value: Value) -> str:
    if value.name == GUESSED:
        return _GUESS if value.on_device else _UNKNOWN
    code = _TENSORS[value.place, value.sure]
    return _MASKS.get(code, code) if value.dtype == "bool" else code


def _read(code: str, codes: Iterator[str], place: Place) -> Value:
    if code == "(":
        return sequence(_read_elements(codes, place))
    if code == "[":
        return sequence_of(next(iter(_read_elements(codes, place)), UNKNOWN))
    if code == "{":
        return Value(Kind.MAPPING, sure=False, items=(), item=next(iter(_read_elements(codes, place)), UNKNOWN))
    value = _VALUES.get(code, UNKNOWN)
    return value._replace(place=place) if code in "Tt" else value


def _read_elements(codes: Iterator[str], place: Place) -> list[Value]:
    parts = []
    for code in codes:
        if code in ")]}":
            break
        parts.append(_read(code, codes, place))
    return parts


# Methods of Python's and torch's own types say nothing of whose they are.
_COMMON_METHODS = CONTAINER_METHODS | frozenset(
    "to size step close save load show write read flush print info debug warning error".split()
)

_SWITCHES = frozenset({"train", "eval"})  # which every module has


def named_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions that other files can call, by their name there: `function` or `Class.method`."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            for method in statement.body:
                if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield f"{statement.name}.{method.name}", method


def _is_common(method: str) -> bool:
    return method in _COMMON_METHODS or torch_ops.of_method(method) is not None


def _may_be_of_project(method: str, owner: Value, node: ast.Call) -> bool:
    if owner.kind is Kind.MODULE:
        return method not in _SWITCHES
    is_of_mapping = method != "update" or len(node.args) == 1 or node.keywords  # or `agent.update(buffer, step)`
    return owner.is_blank and not (_is_common(method) and is_of_mapping)


def receives_tensors(calls: Sequence[HotCall]) -> bool:
    codes = (code for call in calls for code in (call.positional, *(code for _, code in call.keywords)))
    return any(not _ON_DEVICE.isdisjoint(code) for code in codes)


def arguments_of(
    call: HotCall, owned: Callable[[str], Value] | None = None
) -> tuple[tuple[Value, ...], dict[str, Value]]:
    """What a call gives, with objects of classes of the file where `owned` gives them, by their names."""
    named = call.classes if owned is not None else ()
    classes = {at: owned(name) if owned and "." not in name else Value(Kind.UNKNOWN, name=name) for at, name in named}
    positional = tuple(classes.get(str(at), value) for at, value in enumerate(_values_of(call.positional)))
    return positional, {name: classes.get(name, value_of(code)) for name, code in call.keywords}


def targets_of(callee: Value, bases: Iterable[str], node: ast.Call) -> Iterator[str]:
    """What `node`, of `callee`, may reach in other files; of a method, `bases` are those of its object's class.

    Of a class of this file, these are the methods that it inherits, not those that override its own.
    """
    if callee.name and callee.kind in (Kind.LIBRARY, Kind.UNKNOWN, Kind.MODULE):
        for name in callee.name.split(OR):
            if name.partition(".")[0] in ELSEWHERE or "." not in name:
                continue
            if callee.kind is not Kind.MODULE:
                yield name
            if callee.kind is not Kind.LIBRARY:
                yield f"{name}.forward"  # of an instance of that class
                yield f"{name}.__call__"
        return
    owner = callee.owner
    if owner is None or callee.kind is not Kind.METHOD:
        return
    if isinstance(owner.node, ast.ClassDef):
        yield from (f"{base}.{callee.name}" for base in bases if not base.startswith(("torch.", "@")))
    elif "." in owner.name and owner.name.partition(".")[0] not in ELSEWHERE:
        yield from (f"{each}.{callee.name}" for each in owner.name.split(OR))
        if owner.kind is Kind.UNKNOWN and not (owner.sure or _is_common(callee.name)):
            yield f"?{callee.name}"  # of further classes, whose objects others may hand over
    elif _may_be_of_project(callee.name, owner, node):
        yield f"?{callee.name}"
