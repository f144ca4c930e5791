"""What a call reads: the names that its code looks up, and the key under which its graph is kept."""

from __future__ import annotations

import dis
import enum
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

_LIBRARIES = frozenset({"torch", "numpy", "perflint"}) | sys.stdlib_module_names
_ALWAYS = frozenset({"p", "dropout", "momentum", "eps"})  # settings of torch's own modules that programs change
_OWN = frozenset(vars(torch.nn.Module()))  # what every module has, and the walk looks at anyway
_CALLED = ("forward", "__call__")
_ON_GLOBALS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
HOST_VALUES = 64  # elements of a host tensor that are part of the key by value
ITEMS = 32  # items of a container that are looked at one by one
_DEPTH = 4  # of objects within objects
_ALIGNMENT = 16  # bytes; kernels are chosen by whether they may load as many at once
_SCALARS = frozenset(
    {int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, range, type(...)}
)
_CONTAINERS = frozenset({list, tuple, dict, set})
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Scope:
    """The names that a function's code, and the code that it calls by name, looks up.

    It grows: `learn` adds the methods of objects met at run time. Nothing is guessed from types that were not met.
    """

    def __init__(self, *functions: object) -> None:
        self.names: frozenset[str] = _ALWAYS
        self.globals: tuple[tuple[dict[str, Any], str], ...] = ()
        self.cells: tuple[CellType, ...] = ()
        self._found: dict[tuple[type, int], tuple[str, ...]] = {}
        self._functions: set[FunctionType] = set()
        self._types: set[type] = set()
        starts = [start for start in map(plain_function, functions) if start]
        self._starts = frozenset(starts)  # where these are local functions, their cells differ from call to call
        self._read(starts)

    def learn(self, objects: Iterable[object]) -> bool:
        """Take in the methods of these objects' types; return whether anything is known now that was not before."""
        before = (self.names, len(self.globals), len(self.cells))
        self._types |= {kind for kind in map(type, objects) if not _is_library(kind)}
        while found := [f for f in self._methods() if f not in self._functions]:
            self._read(found)
            self._found.clear()
        return before != (self.names, len(self.globals), len(self.cells))

    def read_from(self, value: object, members: Mapping[str, Any]) -> tuple[str, ...]:
        """Those of an object's own attributes that the code names."""
        place = (type(value), id(value) if isinstance(value, ModuleType) else len(members))
        found = self._found.get(place)
        if found is None:
            found = tuple(name for name in members if name in self.names and name not in _OWN)
            self._found[place] = found
        return found

    def _methods(self) -> Iterator[FunctionType]:
        for kind in self._types:
            for owner in kind.__mro__:
                if _is_library(owner):
                    continue
                for name, member in vars(owner).items():
                    if (name in self.names or name in _CALLED) and (function := plain_function(member)):
                        yield function

    def _read(self, functions: list[FunctionType]) -> None:
        while functions:
            function = functions.pop()
            if function in self._functions:
                continue
            self._functions.add(function)
            self.names |= {name for code in codes(function.__code__) for name in code.co_names}
            for name in sorted(global_names(function.__code__) & function.__globals__.keys()):
                value = function.__globals__[name]
                helper = plain_function(value)
                if helper is not None and not _is_library(helper):
                    functions.append(helper)
                elif not _is_constant(value):
                    self.globals += ((function.__globals__, name),)
            if function not in self._starts:
                self.cells += function.__closure__ or ()


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def global_names(code: CodeType) -> set[str]:
    """The globals that a function's code reads or assigns: an attribute may have the name of another one."""
    instructions = (each for part in codes(code) for each in dis.get_instructions(part))
    return {each.argval for each in instructions if each.opname in _ON_GLOBALS}


def plain_function(value: object) -> FunctionType | None:
    """The Python function within a method, property, static method or wrapper."""
    for name in ("__func__", "fget", "__wrapped__"):
        value = getattr(value, name, None) or value if not isinstance(value, FunctionType) else value
    return value if isinstance(value, FunctionType) else None


def _is_library(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _is_constant(value: object) -> bool:
    """Whether a global can be taken as fixed: a class, a library or one of its functions."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _LIBRARIES
    return isinstance(value, type) or (callable(value) and _is_library(value) and not hasattr(value, "parameters"))


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
        for leaf in leaves:
            if isinstance(leaf, Tensor) and type(leaf) is not Parameter and leaf.is_cuda:
                self._input(leaf)
            else:
                self._value(leaf, 0)
        if type(function) is FunctionType:
            for cell in function.__closure__ or ():
                self._cell(cell)
        else:
            self._value(function, 0)
        for cell in scope.cells:
            self._cell(cell)
        for space, name in scope.globals:
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
            self.refusal = f"an argument is a {type(tensor).__name__} of layout {tensor.layout}"
            return
        self.inputs.append(tensor)
        self.devices.add(tensor.get_device())
        self._parts += (tensor.shape, tensor.stride(), tensor.dtype)
        self._parts += (tensor.requires_grad and casts_once(tensor), tensor.data_ptr() % _ALIGNMENT)

    def _tensor(self, tensor: Tensor) -> None:
        if type(tensor) not in (Tensor, Parameter) or tensor.layout is not torch.strided:
            self.refusal = f"it reads a {type(tensor).__name__} of layout {tensor.layout}"
            self.objects.append(tensor)
            self._parts.append(id(tensor))
        elif tensor.is_cuda:
            self.state.append(tensor)
            self.devices.add(tensor.get_device())
            self._parts += (id(tensor), tensor.data_ptr(), tensor.requires_grad)
        elif tensor.numel() <= HOST_VALUES:
            self._parts += (tensor.dtype, tensor.shape, str(tensor.tolist()))
        else:
            self.refusal = f"it reads a host tensor of more than {HOST_VALUES} elements, whose values may change"

    def _module(self, root: Module) -> None:
        stack = [root]
        while stack:
            module = stack.pop()
            members = module.__dict__
            self.modules.append(module)
            self._parts += (id(module), members["training"])
            for tensor in members["_parameters"].values():
                if tensor is not None:
                    self._tensor(tensor)
            for tensor in members["_buffers"].values():
                if tensor is not None:
                    self._tensor(tensor)
            if module is not self._caller:  # its own hooks run outside of its forward
                for name in _HOOKS:
                    if members.get(name):
                        self.refusal = f"{type(module).__name__} has {name[1:].replace('_', ' ')}"
            for name in self.scope.read_from(module, members):
                self._parts.append(name)
                self._value(members[name], 1)
            stack.extend(child for child in members["_modules"].values() if child is not None)

    def _value(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _SCALARS:
            self._parts += (kind, value)
        elif kind in _CONTAINERS:
            self._container(value, depth)
        elif kind is FunctionType:
            self._parts.append(id(value.__code__))
            if depth < _DEPTH:
                for cell in value.__closure__ or ():
                    self._cell(cell, depth + 1)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, torch.jit.ScriptModule):
            self._identity(value)
            self.refusal = f"it calls a scripted module, {kind.__name__}"
        elif isinstance(value, Module):
            self._module(value)
        elif isinstance(value, torch.Generator):
            self._identity(value)
            self.refusal = "it draws from a random generator of its own"
        elif kind is MethodType:
            self._parts.append(id(value.__func__))
            self._value(value.__self__, depth)
        else:
            self._object(value, depth)

    def _container(self, value: Any, depth: int) -> None:
        self._parts += (type(value), len(value))
        if len(value) > ITEMS or depth >= _DEPTH:
            self._identity(value)
            return
        for item in value:
            self._value(item, depth + 1)
            if type(value) is dict:
                self._value(value[item], depth + 1)

    def _object(self, value: Any, depth: int) -> None:
        self._identity(value)
        if isinstance(value, type | enum.Enum) or depth >= _DEPTH:
            return
        members = getattr(value, "__dict__", None)
        if type(members) is dict:
            for name in self.scope.read_from(value, members):
                self._parts.append(name)
                self._value(members[name], depth + 1)

    def _identity(self, value: object) -> None:
        self._parts.append(id(value))
        self.objects.append(value)

    def _cell(self, cell: Any, depth: int = 0) -> None:
        try:
            self._value(cell.cell_contents, depth)
        except ValueError:  # an empty cell: the name isn't bound yet
            self._parts.append(None)


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
