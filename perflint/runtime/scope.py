"""The names that code looks up, what can be read of types, and where a walk has looked."""

from __future__ import annotations

import builtins
import dis
import enum
import random
import sys
from abc import ABC
from argparse import Namespace
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from types import CellType, CodeType, FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any, Generic, NamedTuple, Protocol

import torch
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

_LIBRARIES = frozenset({"torch", "numpy", "perflint"}) | sys.stdlib_module_names
_FIXED = frozenset(  # whose objects hold no numbers, or never change
    "_abc _io _thread _weakref io logging re threading weakref pathlib datetime decimal fractions uuid".split()
)
_BLANK = frozenset({object, type, ModuleType, SimpleNamespace, Namespace, Module, Generic, Protocol, ABC, enum.Enum})
_REFLECTION = frozenset({"__dict__", "attrgetter", "asdict", "astuple"})
_DYNAMIC = frozenset({"vars", "eval", "exec", "globals", "locals"})  # as globals: modules have an `eval` too
_SET_UP = frozenset({"__new__", "__init__", "__post_init__", "__init_subclass__", "__del__", "__repr__", "__str__"})
OF_MODULES = frozenset(vars(torch.nn.Module()))  # what every module has, and the walk looks at anyway
_EXCHANGE = frozenset({"process_group", "reducer", "logger"})  # of a DistributedDataParallel
_SWITCHES = frozenset({"require_backward_grad_sync", "require_forward_param_sync"})
_CALLED = ("forward", "__call__")
_ON_GLOBALS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_LOADS = frozenset({"LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"})
_BUILTINS = frozenset(dir(builtins))
_NUMBERS = (int, float, complex, str, bytes)
CONTAINERS = (list, tuple, dict, set, frozenset, deque)


class Kind(NamedTuple):
    """What the walk has to know of a type.

    `reads_all`: library code may read any attribute of its objects; `hides`: their state can't be read; `slots`:
    attributes outside of `__dict__`; `owners`: its classes of the user's.
    """

    is_fixed: bool
    reads_all: bool
    hides: bool
    is_array: bool
    is_number: bool
    has_dict: bool
    slots: tuple[str, ...]
    owners: tuple[type, ...]

    @staticmethod
    def of(kind: type) -> Kind:
        mro, has_dict = kind.__mro__, kind.__dictoffset__ != 0
        slots = [name for owner in mro for name in _slots(owner)]
        owners = tuple(owner for owner in mro if not is_library(owner))
        others = {owner for owner in mro if is_library(owner)} - _BLANK
        bases = {f"{owner.__module__}.{owner.__name__}" for owner in others}
        iterates = hasattr(kind, "__next__") and not any("__next__" in vars(owner) for owner in owners)
        draws = issubclass(kind, random.Random) or kind.__module__.startswith("numpy.random")
        return Kind(
            is_fixed=kind.__module__.partition(".")[0] in _FIXED,
            reads_all=bool(others) and not issubclass(kind, Optimizer),
            hides=iterates or draws or any(map(_is_opaque, others)),
            is_array=not bases.isdisjoint(("numpy.ndarray", "numpy.generic")),
            is_number=issubclass(kind, _NUMBERS),
            has_dict=has_dict,
            slots=tuple(dict.fromkeys(slots)),
            owners=owners,
        )


def _is_opaque(kind: type) -> bool:
    if issubclass(kind, (*_NUMBERS, *CONTAINERS)):
        return False
    return not (kind.__dictoffset__ or "__slots__" in vars(kind) or _slots(kind))


def _slots(kind: type) -> list[str]:
    found = [name for name, member in vars(kind).items() if type(member) is MemberDescriptorType]
    return [name for name in found if name[-2:] != "__"]


class Scope:
    """The names that a function's code, and what it calls, looks up.

    It grows: `learn` adds functions and types met at run time. Nothing is guessed of others.
    """

    def __init__(self, *functions: object) -> None:
        self.names: frozenset[str] = frozenset(_CALLED)
        self.reads_all = False  # the code computes the names of attributes
        self.globals: tuple[tuple[dict[str, Any], str], ...] = ()
        self.cells: tuple[CellType, ...] = ()
        self._found: dict[Hashable, tuple[int, tuple[str, ...]]] = {}
        self._numbers: dict[tuple[str, ...], int] = {}
        self._kinds: dict[type, Kind] = {}
        self._codes: dict[tuple[int, int], CodeType] = {}
        self._types: set[type] = set()
        self._classes: set[type] = set()
        self._met: list[FunctionType] = []
        for start in map(plain_function, functions):
            if start:
                self._read(start)

    def learn(self, objects: Iterable[object]) -> bool:
        before = (self.names, self.reads_all, len(self.globals), len(self.cells))
        for value in objects:
            self._types.add(type(value))
            if isinstance(value, type):
                self._classes.add(value)
        self._types |= self._kinds.keys()
        while found := [f for f in (*self._met, *self._methods()) if not self._knows(f)]:
            for function in found:
                is_method = function not in self._met
                self._read(function)
                if is_method:
                    self.cells += function.__closure__ or ()
            self._found.clear()
        self._met.clear()
        return before != (self.names, self.reads_all, len(self.globals), len(self.cells))

    def meet(self, function: FunctionType) -> None:
        if not self._knows(function):
            self._met.append(function)

    def kind(self, value: type) -> Kind:
        found = self._kinds.get(value)
        if found is None:
            found = self._kinds[value] = Kind.of(value)
        return found

    def read_from(self, kind: type, members: Mapping[str, Any], is_open: bool = False) -> tuple[int, tuple[str, ...]]:
        """An object's or class's own attributes that may be read, and a number for these names.

        `is_open`: code that isn't looked into reads all of them.
        """
        place = (kind, is_open, *members)
        found = self._found.get(place)
        if found is None:
            is_open, named, skipped = is_open or self.reads_all, self.names, OF_MODULES
            if issubclass(kind, Optimizer):  # whose settings and state are in the keys of steps
                is_open, skipped = False, frozenset({"state"})
            elif issubclass(kind, DistributedDataParallel):  # which counts its steps, and computes the same in each
                is_open, named, skipped = False, named | _SWITCHES, OF_MODULES | _EXCHANGE
            read = (name for name in members if name in named or (is_open and name[:2] != "__"))
            names = tuple(name for name in read if name not in skipped)
            found = self._found[place] = (self._numbers.setdefault(names, len(self._numbers)), names)
        return found

    def read_from_class(self, owner: type, is_open: bool) -> tuple[int, tuple[str, ...]]:
        """A class's attributes that may be read, but methods and descriptors."""
        members = vars(owner)
        place = (owner, is_open, "class", *members)
        found = self._found.get(place)
        if found is None:
            data = {
                name: member
                for name, member in members.items()
                if name[:2] != "__" and plain_function(member) is None and not hasattr(type(member), "__get__")
            }
            found = self._found[place] = self.read_from(owner, data, is_open)
        return found

    def _knows(self, function: FunctionType) -> bool:
        return (id(function.__code__), id(function.__globals__)) in self._codes

    def _methods(self) -> Iterator[FunctionType]:
        for kind in self._types | self._classes:
            for owner in kind.__mro__:
                if is_library(owner):
                    continue
                for name, member in vars(owner).items():
                    named = name in self.names
                    special = name[:2] == name[-2:] == "__" and (name not in _SET_UP or kind in self._classes)
                    if (named or special) and (function := plain_function(member)) and not is_library(function):
                        yield function

    def _read(self, function: FunctionType) -> None:
        if self._knows(function):
            return
        space = function.__globals__
        self._codes[id(function.__code__), id(space)] = function.__code__
        for code in codes(function.__code__):
            self.names |= {*code.co_names, *_texts(code.co_consts)}
            self.reads_all |= _computes_names(code)
        known = {name for of, name in self.globals if of is space}
        for name in sorted(global_names(function.__code__) - known):
            if name in space or name not in _BUILTINS:
                value = space.get(name)
                if not (isinstance(value, ModuleType) and is_library_module(value)):
                    self.globals += ((space, name),)


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def global_names(code: CodeType) -> set[str]:
    """The globals that a function's code reads or assigns, apart from attributes of the same name."""
    instructions = (each for part in codes(code) for each in dis.get_instructions(part))
    return {each.argval for each in instructions if each.opname in _ON_GLOBALS}


def _computes_names(code: CodeType) -> bool:
    if "getattr" in code.co_names:
        instructions = [each for each in dis.get_instructions(code) if each.opname != "PUSH_NULL"]
        for number, each in enumerate(instructions):
            if each.opname in _ON_GLOBALS and each.argval == "getattr":
                value, *rest = instructions[number + 1 :]
                name = next(each for each in rest if each.opname != "LOAD_ATTR")
                if value.opname not in _LOADS or name.opname != "LOAD_CONST":
                    return True
    return not (_REFLECTION.isdisjoint(code.co_names) and _DYNAMIC.isdisjoint(global_names(code)))


def _texts(constants: Iterable[object]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            if constant.isidentifier():
                yield constant
        elif isinstance(constant, tuple):
            yield from _texts(constant)


def plain_function(value: object) -> FunctionType | None:
    for name in ("__func__", "fget", "func", "__wrapped__"):
        if isinstance(value, FunctionType):
            return value
        if name != "func" or isinstance(value, cached_property):
            value = own(value, name) or value
    return value if isinstance(value, FunctionType) else None


def own(value: object, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def is_library(value: Any) -> bool:
    module = own(value, "__module__") if not isinstance(value, type) else value.__module__
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def is_library_module(value: ModuleType) -> bool:
    return value.__name__.partition(".")[0] in _LIBRARIES
