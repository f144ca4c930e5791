"""Names the functions of other files that a call may reach, and decodes the arguments of calls from there."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence

from perflint import torch_ops
from perflint.analysis.links import HotCall
from perflint.analysis.values.codes import ON_DEVICE, value_of, values_of
from perflint.analysis.values.values import Kind, Value

ELSEWHERE = sys.stdlib_module_names | {"torch", "torchvision", "torchaudio", "numpy", "pandas", "scipy", "tqdm", "PIL"}
# Methods of Python's and torch's own types say nothing of whose they are.
_COMMON_METHODS = frozenset(name for cls in (list, dict, set, str) for name in dir(cls)) | frozenset(
    "to size step close save load show write read flush print info debug warning error".split()
)

_SWITCHES = frozenset({"train", "eval"})  # which every module has


def named_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions that other files can call, by the name that they have there: `function` or `Class.method`."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            for method in statement.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{statement.name}.{method.name}", method


def _is_common(method: str) -> bool:
    return method in _COMMON_METHODS or torch_ops.of_method(method) is not None


def _may_be_of_project(method: str, owner: Value) -> bool:
    """Is a method of an object that is not known likely one that the project defines?"""
    if owner.kind is Kind.MODULE:
        return method not in _SWITCHES
    return owner.is_blank and not _is_common(method)


def receives_tensors(calls: Sequence[HotCall]) -> bool:
    """Is there a tensor on the device among the arguments of the calls?"""
    codes = (code for call in calls for code in (call.positional, *(code for _, code in call.keywords)))
    return any(not ON_DEVICE.isdisjoint(code) for code in codes)


def arguments_of(call: HotCall) -> tuple[tuple[Value, ...], dict[str, Value]]:
    """The values of the arguments of a call from another file."""
    return values_of(call.positional), {name: value_of(code) for name, code in call.keywords}


def targets_of(callee: Value, bases: Iterable[str]) -> Iterator[str]:
    """What a call of `callee` may reach in other files; of a method, `bases` are those of the class of its object.

    Of a class of this file itself, these are the methods that it inherits, not those that override its own.
    """
    if callee.name and callee.kind in (Kind.LIBRARY, Kind.UNKNOWN, Kind.MODULE):
        if callee.name.partition(".")[0] in ELSEWHERE or "." not in callee.name:
            return
        if callee.kind is not Kind.MODULE:
            yield callee.name
        if callee.kind is not Kind.LIBRARY:
            yield f"{callee.name}.forward"  # of an instance of that class
            yield f"{callee.name}.__call__"
        return
    owner = callee.owner
    if owner is None or callee.kind is not Kind.METHOD:
        return
    if isinstance(owner.node, ast.ClassDef):
        yield from (f"{base}.{callee.name}" for base in bases if not base.startswith(("torch.", "@")))
    elif "." in owner.name and owner.name.partition(".")[0] not in ELSEWHERE:
        yield f"{owner.name}.{callee.name}"
    elif _may_be_of_project(callee.name, owner):
        yield f"?{callee.name}"
