"""What a file's hot code calls in other files, and what it offers to theirs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perflint.links import HotCall, Links
from perflint.program.values import GUESSED, GUESSED_TENSOR, UNKNOWN, Kind, Place, Value, tensor

if TYPE_CHECKING:
    from perflint.program import Program

_ELSEWHERE = sys.stdlib_module_names | {"torch", "torchvision", "torchaudio", "numpy", "pandas", "scipy", "tqdm", "PIL"}
# Methods of Python's and torch's own types say nothing of whose they are.
_COMMON_METHODS = frozenset(name for cls in (list, dict, set, str) for name in dir(cls)) | {
    "to",
    "size",
    "step",
    "close",
}
_GUESS = "g"
_CODES = {
    (Place.DEVICE, True): "D",
    (Place.DEVICE, False): "d",
    (Place.HOST, True): "H",
    (Place.HOST, False): "h",
}
_ON_DEVICE = frozenset({"D", "d", _GUESS})
_VALUES = {code: tensor(place, sure=sure) for (place, sure), code in _CODES.items()} | {_GUESS: GUESSED_TENSOR}


def links_of(program: Program) -> Links:
    """The links of a file: it matters who calls any function that is not hot by itself."""
    functions = tuple(name for name, node in named_functions(program.tree) if program.is_cold(node))
    bases = tuple((node.name, base) for node in program.of_type(ast.ClassDef) for base in program.base_names(node))
    return Links(tuple(sorted(set(_hot_calls(program)))), functions, bases)


def functions_of(program: Program) -> tuple[str, ...]:
    """All functions that other files can call."""
    return tuple(name for name, _ in named_functions(program.tree))


def named_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions that other files can call, by the name that they have there: `function` or `Class.method`."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            for method in statement.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{statement.name}.{method.name}", method


def receives_tensors(calls: Sequence[HotCall]) -> bool:
    """Is there a tensor on the device among the arguments of the calls?"""
    codes = (code for call in calls for code in (call.positional, *(code for _, code in call.keywords)))
    return any(not _ON_DEVICE.isdisjoint(code) for code in codes)


def arguments_of(call: HotCall) -> tuple[tuple[Value, ...], dict[str, Value]]:
    """The values of the arguments of a call from another file."""
    positional = tuple(_VALUES.get(code, UNKNOWN) for code in call.positional)
    return positional, {name: _VALUES.get(code, UNKNOWN) for name, code in call.keywords}


def _hot_calls(program: Program) -> Iterator[HotCall]:
    for node in program.of_type(ast.Call):
        targets = list(_targets(program, node))
        heat = program.heat(node) if targets else 0
        if heat:
            positional = "".join(_code(program.value(argument)) for argument in node.args)
            keywords = tuple((k.arg, _code(program.value(k.value))) for k in node.keywords if k.arg is not None)
            for target in targets:
                yield HotCall(target, int(heat), positional, keywords)


def _targets(program: Program, node: ast.Call) -> Iterator[str]:
    """What the call may reach in other files."""
    callee = program.value(node.func)
    if callee.kind is Kind.LIBRARY or (callee.kind is Kind.UNKNOWN and callee.name):
        if callee.name.partition(".")[0] not in _ELSEWHERE:
            yield callee.name
        return
    owner = callee.owner
    if owner is None or not isinstance(node.func, ast.Attribute):
        return
    if isinstance(owner.node, ast.ClassDef):
        yield f"@{owner.node.name}.{node.func.attr}"
        if callee.kind is Kind.METHOD:
            outer = [base for base in program.base_names(owner.node) if not base.startswith(("torch.", "@"))]
            yield from (f"{base}.{node.func.attr}" for base in outer)
    elif "." in owner.name and owner.name.partition(".")[0] not in _ELSEWHERE:
        yield f"{owner.name}.{node.func.attr}"
    elif owner.kind is Kind.MODULE or (owner.is_blank and node.func.attr not in _COMMON_METHODS):
        yield f"?{node.func.attr}"


def _code(value: Value) -> str:
    if value.kind is not Kind.TENSOR:
        return "-"
    return _GUESS if value.name == GUESSED and value.on_device else _CODES.get((value.place, value.sure), "-")
