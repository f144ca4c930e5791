"""What of a dataset workers can't unpickle, or can't share with the process that made it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.syntax.module import is_main_guard
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import bindings_of, method_of, name_called, path_of

_HANDLES = frozenset(
    {"builtins.open", "h5py.File", "lmdb.open", "sqlite3.connect", "zipfile.ZipFile", "tarfile.open", "netCDF4.Dataset"}
)


class Pickling:
    """The obstacles, in words, of one program's datasets; empty where there is none."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = program.get(Origins)

    def defined_inside(self, node: ast.AST) -> str:
        """Where a class is defined that workers can't import; empty where they can."""
        if self._program.function_of(node) is not None:
            return "inside a function"
        return "under the main guard" if any(map(is_main_guard, self._program.ancestors(node))) else ""

    def kept_by(self, node: ast.ClassDef) -> str:
        """An open file or a lambda that objects of a class keep."""
        return self._handle(node) or self._lambda(node)

    def _handle(self, node: ast.ClassDef) -> str:
        """An open file that the constructor keeps."""
        init = method_of(node, "__init__")
        for each in ast.walk(init) if init is not None else ():
            for target, value in bindings_of(each):
                while isinstance(value, ast.Subscript):  # a part of it
                    value = value.value
                names = {self._program.qualified(made.func) for made in self._origins.calls(value)}
                if isinstance(target, ast.Attribute) and names & _HANDLES:
                    return f"{node.name} keeps an open file in self.{target.attr}, which workers cannot share"
        return ""

    def _lambda(self, node: ast.ClassDef) -> str:
        """A lambda that an attribute keeps, alone or in a container, be it read by items or not."""
        for each in ast.walk(node):
            for target, value in bindings_of(each):
                parts = [value] if path_of(target).startswith("self.") else []
                for part in parts:
                    if isinstance(part, ast.Lambda):
                        return f"{node.name} keeps a lambda, which cannot be pickled for workers"
                    is_factory = isinstance(part, ast.Call) and name_called(part) in ("defaultdict", "partial")
                    if isinstance(part, ast.Dict | ast.List | ast.Tuple | ast.Set | ast.IfExp) or is_factory:
                        parts += [inner for inner in ast.iter_child_nodes(part) if isinstance(inner, ast.expr)]
        return ""

    def lambda_in(self, nodes: Iterable[ast.AST]) -> str:
        """A lambda, or a function that is defined inside another, that `nodes` give, also in a composed transform."""
        for node in nodes:
            for part in self._nested_origins(node):
                if isinstance(part, ast.Lambda):
                    return "a lambda in the dataset cannot be pickled for workers"
                if isinstance(part, ast.FunctionDef) and self._program.function_of(part) is not None:
                    return f"{part.name}() is defined inside a function, so that workers cannot unpickle it"
        return ""

    def _nested_origins(self, node: ast.AST, depth: int = 3) -> Iterator[ast.AST]:
        for origin in self._origins.of(node):
            yield origin
            if isinstance(origin, ast.Call) and depth and "transforms" in self._program.qualified(origin.func):
                for argument in arguments_of(origin):
                    for each in argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]:
                        yield from self._nested_origins(each, depth - 1)
            elif isinstance(origin, ast.List | ast.Tuple) and depth:
                for each in origin.elts:
                    yield from self._nested_origins(each, depth - 1)
