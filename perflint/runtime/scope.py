"""Finds what a function can read besides its arguments: closures, globals and the attributes that its code names."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

_LIBRARIES = frozenset({"torch", "numpy", "perflint"}) | sys.stdlib_module_names
_ALWAYS = frozenset({"p", "dropout", "momentum", "eps"})  # settings of torch's own modules that programs change
_OWN = frozenset(vars(torch.nn.Module()))  # what every module has, and the walk looks at anyway
_CALLED = ("forward", "__call__")
_ON_GLOBALS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


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
