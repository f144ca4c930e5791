"""Tells why operations on lists of parameters may differ from those on one after the other; empty where they don't."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint.analysis.data.origins import Origins
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import path_of

_CASTS = re.compile(
    r"half|float16|float64|double|set_default_dtype|torch_dtype|deepcopy__|__dict__|_modules|_parameters\[|setattr|assign="
    r"|vector_to_parameters|parametriz|swap_tensors|quantiz|amp\.initialize|register_|requires_grad=False\)|add_module|ModuleList\.|\.apply\("
    r"|^\s*[\w.]+\.(float|type|append|insert|extend)\(",
    re.MULTILINE,
)
_SAME = re.compile(r"to|cuda|cpu|eval|train|requires_grad_")  # methods that give the module itself, of the same types
_DEVICE = re.compile(r"(.*_)?(device|dev|gpu|cuda|cpu)(:\d+)?", re.IGNORECASE)


def shares(program: Program) -> str:
    """Why two parameters of one module, or two gradients, may be the same memory."""
    for value in _stored(program, "grad"):
        if not (isinstance(value, ast.Constant) and value.value is None):
            return "no two gradients are one tensor"
    is_tied = any(not isinstance(value, ast.BinOp) for value in _stored(program, "data"))
    for call in program.of_type(ast.Call):
        is_made = path_of(call.func).rpartition(".")[2] == "Parameter"
        is_tied |= is_made and bool(call.args) and not isinstance(call.args[0], ast.Call)
    return "no two parameters share memory" if is_tied else ""


def is_copy(program: Program, copy: ast.expr, source: ast.expr) -> bool:
    """Is one a deep copy of the other, with memory of its own and the same types, as far as the program goes?"""
    paths = [path_of(each) for each in (copy, source)]
    if not all(paths) or any(f"{one}.".startswith(f"{other}.") for one, other in (paths, paths[::-1])):
        return False
    origins = program.get(Origins)
    copied, known = origins.of(copy), origins.of(source)
    made = _same(copied[0]) if len(copied) == 1 and isinstance(copied[0], ast.expr) else None
    is_deep = isinstance(made, ast.Call) and program.qualified(made.func) == "copy.deepcopy" and len(made.args) == 1
    if not is_deep or len(known) != 1 or _CASTS.search(program.text) or any(_may_tie(program)):
        return False
    assert isinstance(made, ast.Call)
    return origins.of(made.args[0]) == known and (program.is_script or _is_made_here(program, made, copy, source))


def _is_made_here(program: Program, made: ast.Call, *modules: ast.expr) -> bool:
    """Is the copy made by the function or class that walks it, so that no other file gives another?"""
    function, maker = program.function_of(modules[0]), program.function_of(made)
    if function is None or maker is None:
        return function is maker
    parameters = {each.arg for each in parameters_of(function)} - {"self"}
    if any(path_of(each).partition(".")[0] in parameters for each in modules):
        return function is maker and path_of(modules[0]).partition(".")[0] not in parameters
    return function is maker or (program.class_of(function) or function) is program.class_of(maker)


def _same(value: ast.expr) -> ast.expr:
    """What `value` is, before methods that move it or set how it runs."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and _SAME.fullmatch(value.func.attr):
        words = (path_of(each).rpartition(".")[2] or getattr(each, "value", "") for each in arguments_of(value))
        if value.func.attr == "to" and not all(_DEVICE.fullmatch(str(word)) for word in words):
            break
        value = value.func.value
    return value


def _stored(program: Program, name: str) -> Iterator[ast.expr]:
    for node in program.of_type(ast.Assign):
        for target in node.targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            if any(isinstance(each, ast.Attribute) and each.attr == name for each in parts):
                yield node.value


def _may_tie(program: Program) -> Iterator[bool]:
    for node in program.of_type(ast.Assign):
        kind = program.value(node.value).kind
        for target in (each for every in node.targets for each in ast.walk(every)):
            if isinstance(target, ast.Subscript) and isinstance(target.ctx, ast.Store):
                yield Kind.MODULE in (kind, program.value(target.value).kind)
            elif isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store):
                is_made = isinstance(node.value, ast.Constant | ast.BinOp) or kind in (Kind.NUMBER, Kind.TENSOR)
                function = program.function_of(node)
                is_own = path_of(target.value) == "self"
                is_new = isinstance(node.value, ast.Call) or getattr(function, "name", "") == "__init__"
                yield target.attr != "data" and not is_made and not (is_own and is_new)
