"""The abstract values of the inference: kind, place, dtype and elements."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, reduce
from typing import NamedTuple


class Kind(Enum):
    """What a value is."""

    __hash__ = object.__hash__  # Enum's own is a function of Python, and kinds are looked up all the time

    UNKNOWN = "unknown"
    NONE = "none"
    NUMBER = "number"  # a Python number or bool
    STRING = "string"
    TENSOR = "tensor"
    MODULE = "module"  # an instance of torch.nn.Module
    LOADER = "loader"  # iterating it yields batches
    DATASET = "dataset"
    OPTIMIZER = "optimizer"
    NUMPY = "numpy"  # an array or a scalar of numpy
    SEQUENCE = "sequence"  # list, tuple, set, generator
    MAPPING = "mapping"
    DEVICE = "device"  # a torch.device
    LIBRARY = "library"  # a module, class or function from elsewhere; `name` is its qualified name
    FUNCTION = "function"  # defined in this file (`node`); bound when `owner` is set
    METHOD = "method"  # a method, called `name`, of the library value `owner`
    CLASS = "class"  # defined in this file (`node`)
    INSTANCE = "instance"  # of a class defined in this file (`node`), or of the library class `name`
    OTHER = "other"  # known to be none of these


class Place(Enum):
    """Where a tensor lives."""

    __hash__ = object.__hash__  # as above

    UNKNOWN = "unknown"
    HOST = "host"
    DEVICE = "device"


Constant = None | bool | int | float | complex | str | bytes


class Value(NamedTuple):
    """What is known of a value.

    `sure` is False where the kind is likely (what an unknown call on device tensors gives, say), not proven. `items`
    are the parts of a tuple of known length or the values of a mapping, whose keys are then in `keys`; `item` is what
    iteration yields. `literal` holds a constant where `is_literal`. `periodic`: true once in many steps. `pinned`: a
    loader whose batches surely lie in pinned memory. The `owner` of a loader is the function of another file that made
    it, with its place in what that gives.
    """

    kind: Kind
    place: Place = Place.UNKNOWN
    sure: bool = True
    name: str = ""
    dtype: str = ""
    items: tuple[Value, ...] | None = None
    item: Value | None = None
    keys: tuple[Constant, ...] = ()
    node: ast.AST | None = None
    owner: Value | None = None
    is_literal: bool = False
    literal: Constant = None
    periodic: bool = False
    pinned: bool = False

    @property
    def is_blank(self) -> bool:
        return (self.kind is Kind.UNKNOWN and not self.name) or (self.kind is Kind.METHOD and not self.sure)

    @property
    def varying(self) -> Value:
        return self._replace(is_literal=False, literal=None) if self.is_literal else self

    @property
    def entries(self) -> dict[Constant, Value]:
        return dict(zip(self.keys, self.items or (), strict=False))

    def with_entries(self, entries: Mapping[str, Value], *, complete: bool) -> Value:
        return mapping([*self.entries.items(), *entries.items()], complete=complete)

    def entry(self, key: Value) -> Value:
        known = self.entries.get(key.literal) if key.is_literal else None
        return known or self.item or UNKNOWN

    @property
    def on_device(self) -> bool:
        return self.kind is Kind.TENSOR and self.place is Place.DEVICE


UNKNOWN = Value(Kind.UNKNOWN)
NONE = Value(Kind.NONE, is_literal=True)
NUMBER = Value(Kind.NUMBER)
STRING = Value(Kind.STRING)
OTHER = Value(Kind.OTHER)
PERIODIC = Value(Kind.NUMBER, periodic=True)
NUMPY = Value(Kind.NUMPY)
DEVICE_TENSOR = Value(Kind.TENSOR, Place.DEVICE)
_CONSTANTS = frozenset(f"{module}.{name}" for module in ("math", "numpy", "torch") for name in "pi e inf nan".split())
CONTAINER_METHODS = frozenset(name for kind in (list, dict, set, str) for name in dir(kind))
ELSEWHERE = sys.stdlib_module_names | {"torch", "torchvision", "torchaudio", "numpy", "pandas", "scipy", "tqdm", "PIL"}
OR = "|"  # between the names of several functions of a project, one of which is meant
GUESSED = "guessed"  # the name of a tensor that may be a number: what an unknown call gave, an untyped parameter
GUESSED_TENSOR = Value(Kind.TENSOR, Place.DEVICE, sure=False, name=GUESSED)
HOST_TENSOR = Value(Kind.TENSOR, Place.HOST)
LIKELY_HOST_TENSOR = Value(Kind.TENSOR, Place.HOST, sure=False)
TENSOR = Value(Kind.TENSOR)
LOADER = Value(Kind.LOADER, item=LIKELY_HOST_TENSOR)
LIKELY_LOADER = LOADER._replace(sure=False)
LIKELY_MODULE = Value(Kind.MODULE, sure=False)


@lru_cache(maxsize=256)
def tensor(place: Place, *, sure: bool = True, name: str = "", dtype: str = "") -> Value:
    return Value(Kind.TENSOR, place, sure, name, dtype)


@lru_cache(maxsize=1024, typed=True)
def literal(constant: Constant) -> Value:
    if constant is None:
        return NONE
    kind = Kind.STRING if isinstance(constant, str | bytes) else Kind.NUMBER
    return Value(kind, is_literal=True, literal=constant)


@lru_cache(maxsize=4096)
def library(name: str) -> Value:
    return NUMBER if name in _CONSTANTS else Value(Kind.LIBRARY, name=name)


def sequence(items: Iterable[Value]) -> Value:
    parts = tuple(items)
    return Value(Kind.SEQUENCE, items=parts, item=join_all(parts))


def sequence_of(item: Value) -> Value:
    """A sequence of unknown length, each part of which is like `item`."""
    return Value(Kind.SEQUENCE, item=item)


def mapping(entries: Iterable[tuple[Constant, Value]], *, complete: bool = True) -> Value:
    """A mapping with at least these entries; `complete`: and no others."""
    pairs = dict(entries)
    item = join_all(pairs.values()) if pairs else None
    return Value(Kind.MAPPING, sure=complete, items=tuple(pairs.values()), keys=tuple(pairs), item=item)


def join_all(values: Iterable[Value]) -> Value:
    return reduce(join, values) if (values := tuple(values)) else UNKNOWN


def join_handed(values: Sequence[Value]) -> Value:
    """What is known of a parameter by what callers hand over: a tensor, where one does, and by those who know."""
    tensors = [value for value in values if value.kind is Kind.TENSOR]
    known = [value for value in tensors if value.name != GUESSED]
    made = join_all(known or tensors or values)
    return made._replace(sure=made.sure and len(known) == len(tensors))


def join(a: Value, b: Value) -> Value:
    """What is known of a value that is `a` or `b`."""
    if a is b or (a == b and type(a.literal) is type(b.literal)):  # 0 is no 0.0, and no False
        return a
    if a.kind is b.kind:
        return _JOIN_SAME.get(a.kind, _join_plain)(a, b)
    for one, other in ((a, b), (b, a)):
        if one.kind is Kind.NONE:
            return other
        if one.kind is Kind.TENSOR and other.kind in (Kind.UNKNOWN, Kind.NUMBER):
            return one._replace(sure=False, name=GUESSED, dtype="")
        if one.kind is Kind.LOADER and other.kind in (Kind.UNKNOWN, Kind.SEQUENCE):
            return one._replace(sure=False)
        if one.kind is Kind.MODULE and other.kind is Kind.UNKNOWN:
            return one._replace(sure=False)
    return UNKNOWN


def _join_tensors(a: Value, b: Value) -> Value:
    made = tensor(
        a.place if a.place is b.place else Place.UNKNOWN,
        sure=a.sure and b.sure,
        name=GUESSED if GUESSED in (a.name, b.name) else "",
        dtype=a.dtype if a.dtype == b.dtype else "",
    )
    return made._replace(item=a.item) if a.item is not None and a.item == b.item else made


def _join_modules(a: Value, b: Value) -> Value:
    for one, other in ((a, b), (b, a)):
        if one == Value(Kind.MODULE, sure=False):
            return other._replace(sure=False)
    return _join_plain(a, b)._replace(name=_names(a, b))


def _join_sequences(a: Value, b: Value) -> Value:
    item = join(a.item or UNKNOWN, b.item or UNKNOWN)
    if a.item is None or b.item is None or a.items == () or b.items == ():  # an empty list says nothing of its items
        item = (a.item if b.items == () or b.item is None else b.item) or UNKNOWN
    items = None
    if a.items is not None and b.items is not None and len(a.items) == len(b.items):
        items = tuple(map(join, a.items, b.items))
    keys = a.keys if a.keys == b.keys and items is not None else ()
    return Value(Kind.SEQUENCE, items=items, item=item, sure=a.sure and b.sure, keys=keys)


def _join_mappings(a: Value, b: Value) -> Value:
    entries = a.entries
    for key, value in b.entries.items():
        entries[key] = join(entries[key], value) if key in entries else value
    items = [each.item for each in (a, b) if each.item is not None]
    return mapping(entries.items(), complete=a.sure and b.sure)._replace(item=join_all(items) if items else None)


def _join_libraries(a: Value, b: Value) -> Value:
    """Of two types of tensors, as in `kind = torch.cuda.FloatTensor if cuda else torch.FloatTensor`, the GPU's."""
    are_types = all(value.name.startswith("torch.") and value.name.endswith("Tensor") for value in (a, b))
    on_device = [value for value in (a, b) if value.name.startswith("torch.cuda.")]
    if are_types and len(on_device) == 1:
        return on_device[0]
    return _join_named(a, b)


def _join_named(a: Value, b: Value) -> Value:
    """Of functions, or of objects of classes, of the project, the names of both."""
    names = _names(a, b)
    if OR in names or (names and _is_of_project(names)):
        return Value(a.kind, sure=a.kind is Kind.UNKNOWN and a.sure and b.sure, name=names)
    return _join_plain(a, b)


def _names(a: Value, b: Value) -> str:
    names = sorted({*OR.join((a.name, b.name)).split(OR)})
    return OR.join(names) if len(names) == 1 or all(map(_is_of_project, names)) else ""


def _is_of_project(name: str) -> bool:
    return "." in name and name.partition(".")[0] not in ELSEWHERE


def _join_plain(a: Value, b: Value) -> Value:
    return Value(
        a.kind,
        a.place if a.place is b.place else Place.UNKNOWN,
        a.sure and b.sure,
        name=a.name if a.name == b.name else "",
        item=None if a.item is None and b.item is None else join(a.item or UNKNOWN, b.item or UNKNOWN),
        node=a.node if a.node is b.node else None,
        owner=a.owner if a.owner == b.owner else None,
        periodic=a.periodic and b.periodic,
        pinned=a.pinned and b.pinned,
    )


_JOIN_SAME = {
    Kind.TENSOR: _join_tensors,
    Kind.SEQUENCE: _join_sequences,
    Kind.MAPPING: _join_mappings,
    Kind.MODULE: _join_modules,
    Kind.LIBRARY: _join_libraries,
    Kind.UNKNOWN: _join_named,
}


def element_of(value: Value) -> Value:
    if value.kind is Kind.TENSOR:
        return tensor(value.place, sure=value.sure, name=value.name, dtype=value.dtype)
    if value.kind in (Kind.SEQUENCE, Kind.LOADER):
        return value.item or UNKNOWN
    if value.kind is Kind.MODULE:
        return value.item or Value(Kind.MODULE, sure=False)
    if value.kind is Kind.MAPPING:
        return STRING
    if value.kind is Kind.DATASET:
        return LIKELY_HOST_TENSOR
    if value.kind in (Kind.STRING, Kind.NUMPY):
        return value.varying
    return UNKNOWN


def parts_of(value: Value, count: int) -> tuple[Value, ...]:
    """What unpacking `value` into `count` targets gives each."""
    if value.items is not None and value.kind is Kind.SEQUENCE and len(value.items) == count:
        return value.items
    part = element_of(value)
    if part.kind is Kind.LOADER and part.owner is not None:  # of the function that makes several
        return tuple(part._replace(owner=library(f"{part.owner.name}.{i}")) for i in range(count))
    return (part,) * count


def contains_tensor(value: Value, depth: int = 3) -> Value | None:
    """The first tensor in `value` or its parts, on the device if there is one."""
    if value.kind is Kind.TENSOR:
        return value
    if depth == 0 or value.kind not in (Kind.SEQUENCE, Kind.MAPPING):
        return None
    parts = [*(value.items or ()), *([value.item] if value.item is not None else [])]
    found = [inner for part in parts if (inner := contains_tensor(part, depth - 1)) is not None]
    return next((inner for inner in found if inner.on_device), found[0] if found else None)
