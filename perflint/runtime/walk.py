"""What a call reads: the key under which its graph is kept."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from numbers import Number
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.utils import _device

from perflint.runtime.glance import Reads
from perflint.runtime.scope import CONTAINERS, OF_MODULES, Kind, Scope, is_library, is_library_module, own

HOST_VALUES = 64  # elements of a host tensor that are part of the key by value
ITEMS = 1024  # items of a container that are part of the key
ARRAY_BYTES = 4096  # of a NumPy array that is part of the key
_PARTS = 200_000
_DEPTH = 16  # of objects within objects
_ALIGNMENT = 16  # bytes; kernels are chosen by whether they may load as many at once
_SCALARS = frozenset(
    {int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, range, type(...)}
    | {torch.layout, torch.memory_format}
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_COMPILED, _NOT_COMPILED = "_torchdynamo_orig_callable", "_torchdynamo_disable"  # attributes that torch.compile sets
_PARTS_OF_MODULES = ("_parameters", "_buffers", "_modules")


class Key:
    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._hash == other._hash and self.parts == other.parts


class Arguments:
    """The leaves of a call's arguments: each of `inputs`, which a graph reads copies of, once.

    `parts` is what a key says of these and of plain values; `others` are objects to be walked.
    """

    def __init__(self, structure: Hashable, leaves: list[Any]) -> None:
        self.inputs: list[Tensor] = []
        self.others: list[Any] = []
        self.parts: list[Any] = [structure, *modes()]
        self.refusal: str | None = None
        self._seen: dict[int, int] = {}
        for leaf in leaves:
            if isinstance(leaf, Tensor) and type(leaf) is not Parameter and leaf.is_cuda:
                self._input(leaf)
            elif type(leaf) in _SCALARS or (isinstance(leaf, Number) and type(leaf).__module__ == "numpy"):
                self.parts += (type(leaf), leaf)
            else:
                self.others.append(leaf)

    def _input(self, tensor: Tensor) -> None:
        first = self._seen.setdefault(id(tensor), len(self._seen))
        if first < len(self.inputs):
            self.parts.append(first)
            return
        if type(tensor) is not Tensor or tensor.layout is not torch.strided:
            self.refusal = self.refusal or f"an argument is a {type(tensor).__name__} of layout {tensor.layout}"
            return
        self.inputs.append(tensor)
        self.parts += (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device())
        self.parts += (tensor.requires_grad and casts_once(tensor), tensor.data_ptr() % _ALIGNMENT)


class Walk:
    """What one call reads. Two calls with equal keys launch the same kernels on the same state.

    `inputs` are device tensors among the arguments' leaves, read from copies; `state` are those read in place:
    parameters, buffers, attributes, closures, globals. `devices` are their devices' numbers; `objects` have their
    identity in the key; `reads` says where all but arguments was found; `refusal` what no graph can hold.
    """

    def __init__(self, scope: Scope, function: object, structure: Hashable, leaves: list[Any]) -> None:
        self.scope = scope
        self.arguments = Arguments(structure, leaves)
        self.inputs, self.refusal = self.arguments.inputs, self.arguments.refusal
        self.state: list[Tensor] = []
        self.modules: list[Module] = []
        self.objects: list[object] = []
        self.devices = {tensor.get_device() for tensor in self.inputs}
        self.reads = Reads()
        self._parts: list[Any] = list(self.arguments.parts)
        is_forward = bool(leaves) and own(function, "__name__") == "forward"  # whose module's hooks run outside
        self._caller = leaves[0] if is_forward and isinstance(leaves[0], Module) else None
        self._met: set[int] = set()
        self._classes: set[type] = set()
        self._name = "an argument"
        for leaf in self.arguments.others:
            self.reads.thing(leaf, has_dict=False)
            self._value(leaf, 0)
        self._value(function, 0)
        for cell in scope.cells:
            self._cell(cell)
        for space, name in scope.globals:
            self._name = name
            self._global(space, name)

    def key(self, *more: Hashable) -> Key:
        return Key((*more, *self._parts))

    def _global(self, space: dict[str, Any], name: str) -> None:
        if name in space:
            self.reads.items(space, (name,))
        else:
            self.reads.computed(partial(space.__contains__, name))
        self._value(space.get(name), 0)

    def _tensor(self, tensor: Tensor) -> None:
        if type(tensor) not in (Tensor, Parameter) or tensor.layout is not torch.strided:
            self._refuse(f"it reads a {type(tensor).__name__} of layout {tensor.layout}")
            self.objects.append(tensor)
            self._parts.append(id(tensor))
        elif tensor.is_cuda:
            if id(tensor) not in self._met:
                self._met.add(id(tensor))
                self.state.append(tensor)
            self.devices.add(tensor.get_device())
            self._parts += (
                id(tensor),
                tensor.data_ptr(),
                tensor.shape,
                tensor.stride(),
                tensor.dtype,
                tensor.requires_grad,
            )
            self.reads.tensor(tensor)
        elif tensor.numel() <= HOST_VALUES:
            self._computed(partial(_values, tensor))
        else:
            self._refuse(f"it reads a host tensor of more than {HOST_VALUES} elements, whose values may change")

    def _module(self, root: Module) -> None:
        stack, scope, parts = [root], self.scope, self._parts
        while stack:
            module = stack.pop()
            parts.append(id(module))
            if id(module) in self._met:
                continue
            self._met.add(id(module))
            members, kind = module.__dict__, scope.kind(type(module))
            self.reads.thing(module, has_dict=True)
            for name in _PARTS_OF_MODULES:
                self.reads.container(members[name].values())
            self.modules.append(module)
            parts += (type(module), module.training)
            for tensor in members["_parameters"].values():
                if tensor is not None:
                    self._tensor(tensor)
            for tensor in members["_buffers"].values():
                if tensor is not None:
                    self._tensor(tensor)
            hooks = [name for name in _HOOKS if name in members]
            for name in hooks if module is not self._caller else ():
                self.reads.container(members[name])
                if members[name]:
                    self._refuse(f"{type(module).__name__} has {name[1:].replace('_', ' ')}")
            self._members(type(module), members, kind.reads_all, 1, ("training", *_PARTS_OF_MODULES, *hooks))
            if kind.owners:
                self._class(kind, 1)
            stack.extend(child for child in members["_modules"].values() if child is not None)

    def _value(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _SCALARS:
            self._parts += (kind, value)
        elif kind is tuple and len(value) <= ITEMS and _SCALARS.issuperset(kinds := tuple(map(type, value))):
            self._parts += (kinds, value)
        elif kind is FunctionType:
            self._function(value, depth)
        elif isinstance(value, CONTAINERS):
            self._container(value, depth)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, torch.jit.ScriptModule):
            self._identity(value)
            self._refuse(f"it calls a scripted module, {kind.__name__}")
        elif isinstance(value, Module):
            self._module(value)
        elif isinstance(value, torch.Generator):
            self._identity(value)
            self._refuse("it draws from a random generator of its own")
        elif kind is MethodType or kind is BuiltinFunctionType:
            self._parts.append(kind)
            if kind is MethodType:
                self._function(value.__func__, depth)
            else:
                self._parts.append(value.__name__)
            if value.__self__ is not None and not isinstance(value.__self__, ModuleType):
                self._value(value.__self__, depth)
        else:
            self._object(value, depth)

    def _function(self, function: Any, depth: int) -> None:
        if type(function) is not FunctionType or is_library(function):
            self._identity(function)
            return
        self._parts.append(id(function.__code__))
        self.reads.function(function)
        self.reads.container(function.__dict__.values())
        if _COMPILED in function.__dict__ and not function.__dict__.get(_NOT_COMPILED):
            self._refuse(f"it calls a compiled function, {function.__name__}")
        if self._is_deep(depth):
            return
        self.scope.meet(function)
        for cell in function.__closure__ or ():
            self._cell(cell, depth + 1)
        for defaults in (function.__defaults__, function.__kwdefaults__):
            if defaults:
                self._value(defaults, depth + 1)
        if wrapped := function.__dict__.get("__wrapped__"):
            self._value(wrapped, depth + 1)

    def _array(self, array: Any) -> None:
        if array.dtype.hasobject or array.nbytes > ARRAY_BYTES:
            self._refuse(f"it reads `{self._name}`, a NumPy array of more than {ARRAY_BYTES} bytes or of objects")
        else:
            self._computed(partial(_bytes, array))

    def _computed(self, compute: Callable[[], Hashable]) -> None:
        self._parts.append(compute())
        self.reads.computed(compute)

    def _container(self, value: Any, depth: int) -> None:
        kind, size = type(value), len(value)
        self._parts += (kind, size)
        if size > ITEMS:
            self._refuse(f"it reads `{self._name}`, a {kind.__name__} of more than {ITEMS} items, which may change")
            return
        if kind not in CONTAINERS and self.scope.kind(kind).owners:
            self._attributes(value, depth)
        for place in (dict.keys(value), dict.values(value)) if isinstance(value, dict) else (value,):
            self.reads.container(place)
            items = tuple(place)
            kinds = tuple(map(type, items))
            if _SCALARS.issuperset(kinds):
                self._parts += (kinds, items)
            elif self._is_deep(depth):
                return
            else:
                for item in items:
                    self._value(item, depth + 1)

    def _object(self, value: Any, depth: int) -> None:
        kind = self.scope.kind(type(value))
        if kind.is_array:
            self._array(value)
            return
        if kind.is_number:
            self._parts += (type(value), value)
        self._parts.append(type(value))
        self._identity(value)
        if id(value) in self._met or isinstance(value, enum.Enum):
            return
        self._met.add(id(value))
        self.reads.thing(value, has_dict=kind.has_dict and not isinstance(value, type))
        if isinstance(value, type):
            if not is_library(value):
                self._class(self.scope.kind(value), depth + 1)
        elif not _is_fixed(value):
            self._attributes(value, depth)

    def _attributes(self, value: Any, depth: int) -> None:
        kind = self.scope.kind(type(value))
        if kind.is_fixed or self._is_deep(depth):
            return
        if kind.hides:
            self._refuse(f"it reads `{self._name}`, a {type(value).__name__}, whose state can't be told")
        members = own(value, "__dict__") if kind.has_dict else None
        if type(members) is dict:
            if not kind.owners and "__wrapped__" in members:
                self._value(members["__wrapped__"], depth + 1)
                return
            self._members(type(value), members, kind.reads_all, depth + 1)
        if kind.slots:
            slots = {name: own(value, name) for name in kind.slots}
            self.reads.slots(value, kind.slots)
            self._named(*self.scope.read_from(type(value), slots, kind.reads_all), slots, depth + 1)
        if kind.owners:
            self._class(kind, depth)

    def _members(
        self, kind: type, members: Mapping[str, Any], is_open: bool, depth: int, also: tuple[str, ...] = ()
    ) -> None:
        number, names = self.scope.read_from(kind, members, is_open)
        if also and not self.scope.kind(kind).owners and OF_MODULES.issuperset(members.keys() - names):
            self.reads.whole(members)  # a module of torch's own, whose other members don't change
        else:
            self.reads.names(members, (*also, *names))
        self._named(number, names, members, depth)

    def _named(self, number: int, names: Iterable[str], members: Mapping[str, Any], depth: int) -> None:
        self._parts.append(number)
        for name in names:
            value = members[name]
            if type(value) in _SCALARS:
                self._parts += (type(value), value)
            else:
                self._name = name
                self._value(value, depth)

    def _class(self, kind: Kind, depth: int) -> None:
        for owner in kind.owners:
            if owner not in self._classes:
                self._classes.add(owner)
                number, names = self.scope.read_from_class(owner, kind.reads_all)
                self.reads.names(vars(owner), names)
                self._named(number, names, vars(owner), depth + 1)

    def _is_deep(self, depth: int) -> bool:
        if depth < _DEPTH and len(self._parts) < _PARTS:
            return False
        self._refuse(f"it reads more than is followed, at `{self._name}`")
        return True

    def _refuse(self, reason: str) -> None:
        self.refusal = self.refusal or reason

    def _identity(self, value: object) -> None:
        self._parts.append(id(value))
        self.objects.append(value)

    def _cell(self, cell: Any, depth: int = 0) -> None:
        self.reads.cell(cell)
        try:
            self._value(cell.cell_contents, depth)
        except ValueError:  # an empty cell: the name isn't bound yet
            self._parts.append(None)


def _values(tensor: Tensor) -> Hashable:
    return (tensor.dtype, tensor.shape, str(tensor.tolist()))


def _bytes(array: Any) -> Hashable:
    return (type(array), array.dtype, array.shape, array.tobytes())


def _is_fixed(value: object) -> bool:
    if isinstance(value, ModuleType):
        return is_library_module(value)
    return type(value).__module__ in ("torch._ops", "builtins") and callable(value)


def casts_once(tensor: Tensor) -> str:
    """ "leaf" if autocast keeps its cast of a tensor, which requires gradients."""
    return "leaf" if tensor.is_leaf and not tensor._is_view() else "inner"


def modes() -> tuple[Hashable, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda") and (torch.get_autocast_dtype("cuda"), torch.is_autocast_cache_enabled()),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        _device.CURRENT_DEVICE,
    )
