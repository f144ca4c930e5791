"""What a call reads: the key under which its graph is kept."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from perflint.runtime.scope import CONTAINERS, Kind, Scope, is_library, is_library_module, own

HOST_VALUES = 64  # elements of a host tensor that are part of the key by value
ITEMS = 1024  # items of a container that are part of the key
ARRAY_BYTES = 4096  # of a NumPy array that is part of the key
_PARTS = 200_000  # of one key
_DEPTH = 16  # of objects within objects
_ALIGNMENT = 16  # bytes; kernels are chosen by whether they may load as many at once
_SCALARS = frozenset(
    {int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, range, type(...)}
    | {torch.layout, torch.memory_format}
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Key:
    """A key that is hashed once."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._hash == other._hash and self.parts == other.parts


class Walk:
    """What one call reads. Two calls with equal keys launch the same kernels on the same state.

    `inputs` are the device tensors among the leaves of the arguments, each once; a graph reads copies of them.
    `state` are the tensors that it reads where they are: parameters, buffers, attributes, closures, globals.
    `devices` are the numbers of the devices that these are on; `objects` are those whose identity is in the key.
    `refusal` says what no graph can hold, if there is such a thing.
    """

    def __init__(self, scope: Scope, function: object, structure: Hashable, leaves: list[Any]) -> None:
        self.scope = scope
        self.inputs: list[Tensor] = []
        self.state: list[Tensor] = []
        self.modules: list[Module] = []
        self.objects: list[object] = []
        self.devices: set[int] = set()
        self.refusal: str | None = None
        self._parts: list[Any] = [structure, *modes()]
        self._caller = leaves[0] if leaves and isinstance(leaves[0], Module) else None
        self._seen: dict[int, int] = {}
        self._met: set[int] = set()
        self._classes: set[type] = set()
        self._name = "an argument"
        for leaf in leaves:
            if isinstance(leaf, Tensor) and type(leaf) is not Parameter and leaf.is_cuda:
                self._input(leaf)
            else:
                self._value(leaf, 0)
        self._value(function, 0)
        for cell in scope.cells:
            self._cell(cell)
        for space, name in scope.globals:
            self._name = name
            self._value(space.get(name), 0)

    def key(self, *more: Hashable) -> Key:
        """All that was read, and `more`."""
        return Key((*more, *self._parts))

    def _input(self, tensor: Tensor) -> None:
        first = self._seen.setdefault(id(tensor), len(self._seen))
        if first < len(self.inputs):
            self._parts.append(first)
            return
        if type(tensor) is not Tensor or tensor.layout is not torch.strided:
            self._refuse(f"an argument is a {type(tensor).__name__} of layout {tensor.layout}")
            return
        self.inputs.append(tensor)
        self.devices.add(tensor.get_device())
        self._parts += (tensor.shape, tensor.stride(), tensor.dtype)
        self._parts += (tensor.requires_grad and casts_once(tensor), tensor.data_ptr() % _ALIGNMENT)

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
            self._parts += (id(tensor), tensor.data_ptr(), tensor.requires_grad)
        elif tensor.numel() <= HOST_VALUES:
            self._parts += (tensor.dtype, tensor.shape, str(tensor.tolist()))
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
            self.modules.append(module)
            parts.append(module.training)
            for tensor in members["_parameters"].values():
                if tensor is not None:
                    self._tensor(tensor)
            for tensor in members["_buffers"].values():
                if tensor is not None:
                    self._tensor(tensor)
            if module is not self._caller:  # its own hooks run outside of its forward
                for name in _HOOKS:
                    if members.get(name):
                        self._refuse(f"{type(module).__name__} has {name[1:].replace('_', ' ')}")
            self._members(type(module), members, kind.reads_all, 1)
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
        self._parts += (type(array), array.dtype, array.shape)
        if array.dtype.hasobject or array.nbytes > ARRAY_BYTES:
            self._refuse(f"it reads `{self._name}`, a NumPy array of more than {ARRAY_BYTES} bytes or of objects")
        else:
            self._parts.append(array.tobytes())

    def _container(self, value: Any, depth: int) -> None:
        kind, size = type(value), len(value)
        self._parts += (kind, size)
        if size > ITEMS:
            self._refuse(f"it reads `{self._name}`, a {kind.__name__} of more than {ITEMS} items, which may change")
            return
        if kind not in CONTAINERS and self.scope.kind(kind).owners:
            self._attributes(value, depth)
        is_dict = isinstance(value, dict)
        for items in (tuple(dict.keys(value)), tuple(dict.values(value))) if is_dict else (tuple(value),):
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
        self._identity(value)
        if id(value) in self._met or isinstance(value, enum.Enum):
            return
        self._met.add(id(value))
        if isinstance(value, type):
            if not is_library(value):
                self._class(self.scope.kind(value), depth + 1)
        elif not _is_fixed(value):
            self._attributes(value, depth)

    def _attributes(self, value: Any, depth: int) -> None:
        """What an object's own attributes hold, and those of its class."""
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
            self._members(type(value), slots, kind.reads_all, depth + 1)
        if kind.owners:
            self._class(kind, depth)

    def _members(self, kind: type, members: Mapping[str, Any], is_open: bool, depth: int) -> None:
        number, names = self.scope.read_from(kind, members, is_open)
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
                self._parts.append(number)
                for name in names:
                    self._name = name
                    self._value(vars(owner)[name], depth + 1)

    def _is_deep(self, depth: int) -> bool:
        """Whether to go no further, which no graph is made for."""
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
        try:
            self._value(cell.cell_contents, depth)
        except ValueError:  # an empty cell: the name isn't bound yet
            self._parts.append(None)


def _is_fixed(value: object) -> bool:
    """Whether this is a function of a library, however it is made, or one of its modules."""
    if isinstance(value, ModuleType):
        return is_library_module(value)
    return type(value).__module__ in ("torch._ops", "builtins") and callable(value)


def casts_once(tensor: Tensor) -> str:
    """Whether autocast keeps its cast of a tensor that requires gradients: "leaf" if so."""
    return "leaf" if tensor.is_leaf and not tensor._is_view() else "inner"


def modes() -> tuple[Hashable, ...]:
    """The switches of the calling thread that decide which kernels run."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda") and (torch.get_autocast_dtype("cuda"), torch.is_autocast_cache_enabled()),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )
