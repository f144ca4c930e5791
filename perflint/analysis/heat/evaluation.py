"""Recognises loops that evaluate a model batch by batch, even outside `torch.no_grad()`."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from perflint import torch_ops
from perflint.analysis.autograd.effects import runs_module
from perflint.analysis.call_graph import CallGraph
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import Loop, assigned_values

_BATCH = re.compile(r"(^|_)batch$")
_NUMBERS = frozenset({"builtins.float", "builtins.int"})
_PASSES_ON = re.compile(r"builtins\.enumerate$|tqdm")


def evaluates(program: Program, loop: Loop, nodes: Sequence[ast.AST]) -> bool:
    """Does each iteration run a model on a batch, by the name of it, or on one of many that it counts or iterates over?

    What counts batches may as well draw a picture: so its results have to come to the host each time.
    """
    if not isinstance(loop, ast.For):
        return False
    if _names_batch(program, loop.target):
        return any(_runs_model(program, node) for node in nodes)
    if not any(_brings_home(program, node) for node in nodes):
        return False
    if _counts_batches(program, loop.iter) or any(_fetches(program, node) for node in nodes):
        return any(_runs_model(program, node) or _may_run_model(program, node) for node in nodes)
    return any(_takes_item(program, node, loop.target) and _runs_model(program, node) for node in nodes)


def evaluates_each(program: Program, comprehension: ast.AST, generator: ast.comprehension) -> bool:
    """Does a comprehension run a model on each batch, by the name of it?"""
    return _names_batch(program, generator.target) and any(
        _runs_model(program, node) for node in ast.walk(comprehension)
    )


def _names_batch(program: Program, target: ast.expr) -> bool:
    names = [node for node in ast.walk(target) if isinstance(node, ast.Name) and _BATCH.search(node.id)]
    return any(program.value(name).kind is not Kind.NUMBER for name in names)


def _fetches(program: Program, node: ast.AST) -> bool:
    """Is it `next(batches)`, of an iterator that goes on where it was the last time?"""
    if not (isinstance(node, ast.Call) and node.args and program.qualified(node.func) == "builtins.next"):
        return False
    return isinstance(node.args[0], ast.Name | ast.Attribute)


def _passed_on(program: Program, iterated: ast.expr) -> ast.expr:
    """What is iterated over inside of `enumerate` and a bar of progress."""
    while isinstance(iterated, ast.Call) and iterated.args and _PASSES_ON.match(program.qualified(iterated.func)):
        iterated = iterated.args[0]
    return iterated


def _counts_batches(program: Program, iterated: ast.expr) -> bool:
    """Is it `range(len(data) // batch_size)`, also through a name, or `range(0, len(data), batch_size)`?"""
    iterated = _passed_on(program, iterated)
    if not (isinstance(iterated, ast.Call) and program.qualified(iterated.func) == "builtins.range"):
        return False
    if len(iterated.args) == 3:
        return "batch" in ast.unparse(iterated.args[2])
    bound = iterated.args[-1] if iterated.args else iterated
    scope = program.function_of(iterated) or program.tree
    values = assigned_values(scope, bound.id) if isinstance(bound, ast.Name) else ()
    return any(map(_divides, (bound, *values)))


def _divides(bound: ast.expr) -> bool:
    quotients = [node for node in ast.walk(bound) if isinstance(node, ast.BinOp)]
    return any(isinstance(node.op, ast.Div | ast.FloorDiv) for node in quotients)


def _takes_item(program: Program, node: ast.AST, target: ast.expr) -> bool:
    """Is it a call with what a loop iterates over itself, unless that is a number?"""
    if not (isinstance(node, ast.Call) and isinstance(target, ast.Name)):
        return False
    given = [each for each in node.args if isinstance(each, ast.Name) and each.id == target.id]
    return any(program.value(each).kind not in (Kind.NUMBER, Kind.STRING) for each in given)


def _runs_model(program: Program, node: ast.AST) -> bool:
    """Is it a call of a module, or of a method that may compute with it, or of a function of the file that does?"""
    return program.get(CallGraph).has(node, runs_module)


def _may_run_model(program: Program, node: ast.AST) -> bool:
    """Does a function that is not known give a tensor on the device?"""
    if not isinstance(node, ast.Call) or not program.value(node).on_device:
        return False
    callee = program.value(node.func)
    return callee.kind is Kind.UNKNOWN or bool(program.targets(node))


def _brings_home(program: Program, node: ast.AST) -> bool:
    """Is it `model(x).cpu()`, `float(model(x))` and the like, of what a model gave?"""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return torch_ops.does(node.func.attr, "to_host") and program.value(node.func.value).on_device
    return bool(node.args) and program.qualified(node.func) in _NUMBERS and program.value(node.args[0]).on_device
