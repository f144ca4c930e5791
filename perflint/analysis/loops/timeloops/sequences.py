"""Recognises sequences over time by their origin: an RNN's output, padded, or built from the end."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.loops.calls import rnn_kind
from perflint.analysis.loops.dataflow import TimeSlice
from perflint.analysis.loops.header import called
from perflint.analysis.loops.objects import own_nodes_of_class
from perflint.syntax.walk import Loop, assigned_values, own_nodes, path_of

_PADS = frozenset({"pad_packed_sequence", "pad_sequence"})


def runs_along_time(program: Program, loop: Loop, step: TimeSlice) -> bool:
    """Is it a step along the axis that is time by the tensor's origin?"""
    call = _origin(program.function_of(loop) or program.tree, step.base, loop.lineno)
    return call is not None and step.axis is not None and _time_axis(program, call) == step.axis


def _origin(scope: ast.AST, base: str, line: int) -> ast.Call | None:
    """The call that gives `base` last before `line`, alone or as the first part of what it returns."""
    assigned = [node for node in own_nodes(scope) if isinstance(node, ast.Assign) and node.lineno <= line]
    binding = [each for each in assigned if base in map(path_of, _elements(each.targets[0]))]
    if not binding:
        return None
    last = max(binding, key=lambda each: each.lineno)
    value = last.value
    if path_of(_elements(last.targets[0])[0]) != base:
        return None
    if isinstance(value, ast.Subscript) and path_of(value.value) and _keeps_axes(value.slice):
        return _origin(scope, path_of(value.value), last.lineno - 1)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) and value.slice.value == 0:
        value = value.value
    return value if isinstance(value, ast.Call) else None


def _keeps_axes(index: ast.expr) -> bool:
    """Is it an index such as `:, :, :n`, which leaves each axis where it is?"""
    return all(isinstance(part, ast.Slice) for part in _elements(index))


def _elements(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) and target.elts else [target]


def _time_axis(program: Program, call: ast.Call) -> int | None:
    """The axis of what `call` gives that is time; None where there is none, or it is not known which."""
    made: ast.Call | None = call if called(call) in _PADS else None
    if made is None and rnn_kind(program, call.func) == "rnn":
        made = _construction(program, call.func)
    if made is None:
        return None
    flags = [keyword.value for keyword in made.keywords if keyword.arg == "batch_first"]
    if any(not isinstance(flag, ast.Constant) for flag in flags) or any(each.arg is None for each in made.keywords):
        return None
    return int(any(isinstance(flag, ast.Constant) and bool(flag.value) for flag in flags))


def _construction(program: Program, function: ast.expr) -> ast.Call | None:
    """The only call that makes the module, in its class or in the file."""
    owner = next((each for each in program.ancestors(function) if isinstance(each, ast.ClassDef)), None)
    is_own = path_of(function).startswith("self.") and owner is not None
    nodes = own_nodes_of_class(owner) if is_own and owner is not None else ast.walk(program.tree)
    assigned = (node for node in nodes if isinstance(node, ast.Assign))
    values = [each.value for each in assigned if any(path_of(part) == path_of(function) for part in each.targets)]
    return values[0] if len(values) == 1 and isinstance(values[0], ast.Call) else None


def is_prepended(program: Program, loop: Loop, base: str) -> bool:
    """Was it built from its end to its beginning, as returns are: by `insert(0, x)` or `appendleft`?"""
    scope = program.function_of(loop) or program.tree
    names = {base}
    for value in list(assigned_values(scope, base)):
        names |= {path_of(part) for part in ast.walk(value) if isinstance(part, ast.Name)}
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) in names:
            first = node.args[0] if node.args else None
            if node.func.attr == "appendleft" or (
                node.func.attr == "insert" and isinstance(first, ast.Constant) and first.value == 0
            ):
                return True
    return False
