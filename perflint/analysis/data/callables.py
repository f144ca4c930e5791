"""Finds the functions of a file that calling a value may run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.data.draws import method_of
from perflint.analysis.data.loaders import Loaders
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import FUNCTIONS, Function

_DEPTH = 3  # of compositions of transforms


def callables(program: Program, node: ast.AST, depth: int = _DEPTH) -> Iterator[Function]:
    """The functions behind `node`: itself, `__call__` of its class, or those that a library wraps."""
    for origin in program.get(Loaders).origins.of(node):
        value = program.value(origin)
        if isinstance(origin, FUNCTIONS):
            yield origin
        elif isinstance(origin, ast.Call):
            yield from _of_object(program, origin, depth)
        elif value.kind is Kind.FUNCTION and isinstance(value.node, FUNCTIONS):
            yield value.node


def _of_object(program: Program, call: ast.Call, depth: int) -> Iterator[Function]:
    value = program.value(call.func)
    if value.kind is Kind.CLASS and isinstance(value.node, ast.ClassDef):
        method = method_of(value.node, "__call__")
        if method is not None:
            yield method
    elif value.kind is Kind.LIBRARY and depth:
        for argument in arguments_of(call):
            for part in argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]:
                yield from callables(program, part, depth - 1)
