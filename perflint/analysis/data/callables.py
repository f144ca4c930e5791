"""What calling a value runs: functions of the file, and library code, also where one callable is composed of others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import FUNCTIONS, Function, method_of
from perflint.torch_ops import libraries

_DEPTH = 3  # of compositions of callables
_CHAIN = 8  # of methods
_OF_ANYTHING = ("builtins.", "copy.", "itertools.", "functools.", "operator.", "collections.")  # give what they get

Part = Function | str | None  # a function of the file, the name of a function or class of a library, or what is unknown


class Callables:
    """The parts of what one program calls: transforms, above all."""

    def __init__(self, program: Program, origins: Origins | None = None) -> None:
        self._program = program
        self._origins = origins or program.get(Origins)
        self._flow = program.get(Flow)

    def made_at(self, call: ast.Call) -> Callables:
        """Those of the object that `call` makes, whatever other objects of the class are given."""
        return Callables(self._program, self._origins.given_at(call))

    def of(self, node: ast.AST, depth: int = _DEPTH) -> list[Part]:
        """All that calling the value of `node` may run; an instance of a library's class goes by the class."""
        parts = dict.fromkeys(part for origin in self._origins.of(node) for part in self._behind(origin, depth))
        is_replaced = isinstance(node, ast.Attribute) and node.attr in self._set_from_outside
        return list(parts | dict.fromkeys([None] if is_replaced else []))

    @cached_property
    def _set_from_outside(self) -> set[str]:
        """The attributes that the program sets on other objects than self."""
        stores = (each for each in self._program.of_type(ast.Attribute) if isinstance(each.ctx, ast.Store))
        return {each.attr for each in stores if getattr(each.value, "id", "") != "self"}

    def is_made_by_library(self, node: ast.AST, depth: int = _CHAIN) -> bool:
        """Is it for sure what a library's function made, or a method of that, and no object of the program?"""
        origins = self._origins.of(node) if depth else []
        return bool(origins) and all(self._makes_its_own(each, depth) for each in origins)

    def is_generator(self, node: ast.AST, depth: int = _CHAIN) -> bool:
        """May it be a generator of random numbers that a library makes?"""
        return any(self._makes_generator(each, depth) for each in (self._origins.of(node) if depth else ()))

    def _makes_generator(self, origin: ast.AST, depth: int) -> bool:
        if not isinstance(origin, ast.Call):
            return False
        name = self._program.qualified(origin.func)
        if not name and isinstance(origin.func, ast.Attribute) and origin.func.attr in libraries.OF_STATE:
            return self.is_generator(origin.func.value, depth - 1)
        return libraries.makes_generator(name)

    def _makes_its_own(self, origin: ast.AST, depth: int) -> bool:
        if not isinstance(origin, ast.Call):
            return False
        name = self._program.qualified(origin.func)
        if not name and isinstance(origin.func, ast.Attribute):
            return self.is_made_by_library(origin.func.value, depth - 1)
        return libraries.is_pure(name) and not name.startswith(_OF_ANYTHING)

    def _behind(self, origin: ast.AST, depth: int) -> Iterator[Part]:
        value = self._program.value(origin)
        if isinstance(origin, FUNCTIONS):
            yield origin
        elif isinstance(origin, ast.Call):
            yield from self._of_object(origin, depth)
        elif value.kind is Kind.FUNCTION and isinstance(value.node, FUNCTIONS):
            yield value.node
        elif not (isinstance(origin, ast.Constant) and origin.value is None):  # which nobody calls
            yield self._program.qualified(origin) or None

    def _of_object(self, call: ast.Call, depth: int) -> Iterator[Part]:
        value = self._program.value(call.func)
        if value.kind is Kind.CLASS:
            yield method_of(value.node, "__call__")
        elif value.kind is Kind.LIBRARY:
            yield value.name if depth else None
            is_composed = libraries.composes(value.name)
            for argument in arguments_of(call) if depth else ():
                for part in self._items(argument):
                    inner = self.of(part, depth - 1) if part is not None else [None]
                    yield from inner if is_composed else (each for each in inner if isinstance(each, FUNCTIONS))
            if is_composed and self._is_recomposed(call):
                yield None
        else:
            yield None

    def _items(self, argument: ast.expr) -> Iterator[ast.AST | None]:
        """What a list of callables holds, or the callable itself; None for more that may be added to it."""
        for origin in self._origins.of(argument):
            if isinstance(origin, ast.List | ast.Tuple):
                yield from origin.elts
                if origin is not argument and not self._is_used_once(argument):
                    yield None
            else:
                yield origin

    def _is_used_once(self, node: ast.expr) -> bool:
        value = self._flow.graph(node).value(node) if isinstance(node, ast.Name) else None
        return value is not None and len(value.uses) == 1

    def _is_recomposed(self, call: ast.Call) -> bool:
        """May the program change what the composition made there is made of, by `its.transforms.insert(0, ...)`?"""
        mentions = (each for each in self._program.of_type(ast.Attribute) if each.attr == "transforms")
        wholes = (self._origins.of(each.value) for each in mentions if not self._program.qualified(each))
        return any(call in found or not all(isinstance(each, ast.Call) for each in found) for found in wholes)
