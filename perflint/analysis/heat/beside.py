"""Tells what runs as often as an optimizer steps or a model runs, in every step, and what is made before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perflint import torch_ops
from perflint.analysis.autograd.effects import runs_backward, runs_module
from perflint.analysis.data.origins import Origins
from perflint.analysis.facts import Program
from perflint.analysis.heat.rarity import makes_rare
from perflint.analysis.heat.scale import Heat
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import parameters_of
from perflint.syntax.walk import FUNCTIONS, LOOPS, children, integer, own_nodes, path_of, reachable


def runs_often(program: Program, node: ast.AST) -> bool:
    """Does `node` run in every step, or time step, other than to refresh what an attribute keeps?

    Code that the file runs but to try itself out on the host does not count.
    """
    return program.heat(node) is not Heat.ONCE and not program.is_tried_out(node) and not _refreshes(program, node)


def _refreshes(program: Program, node: ast.AST) -> bool:
    """Does `node` run to refresh what an attribute keeps?"""
    return any(isinstance(each, ast.If) and _is_kept(each) for each in program.ancestors(node))


def _is_kept(guard: ast.If) -> bool:
    """Does `guard` ask for what it sets itself: an attribute, or a part of what it tests?"""
    asked = {_asked_for(each) for each in ast.walk(guard.test)} - {""}
    stored = (each for each in ast.walk(guard) if isinstance(getattr(each, "ctx", None), ast.Store))
    return any(
        path_of(each.value) in asked
        if isinstance(each, ast.Subscript)
        else "." in path_of(each) and path_of(each) in asked
        for each in stored
    )


def _asked_for(test: ast.AST) -> str:
    """The variable or attribute that a part of a test is, or that it asks for by `hasattr(self, "x")`."""
    if isinstance(test, ast.Call) and path_of(test.func) == "hasattr" and len(test.args) == 2:
        name = test.args[1]
        return f"{path_of(test.args[0])}.{getattr(name, 'value', '')}"
    return path_of(test)


_DEPTH = 4  # of calls
_FEW = 4  # steps
_SELDOM = re.compile(
    r"^_*(init|reset|build|make|create|setup|load|prepare|from|main|test|infer|eval|vali)|metric|score|calculate", re.I
)


def steps_beside(program: Program, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Does a statement train once in each run of `node`: in one of its blocks, or in one around a call of its function?

    Unlike the heat of a place, this does not ask what the loops around it walk.
    """
    child = node
    for parent in program.ancestors(node):
        others = [each for each in program.block_of(child) if each is not child] if isinstance(child, ast.stmt) else []
        if any(program.trains_in(each) for other in others for each in _unlooped(other, ast.If)):
            return True
        if isinstance(parent, FUNCTIONS):
            return depth > 0 and any(steps_beside(program, site, depth - 1) for site in program.call_sites(parent))
        if isinstance(parent, ast.ClassDef) or (makes_rare(program, parent, child) and not _is_short(program, parent)):
            return False
        child = parent
    return False


def runs_model_beside(program: Program, node: ast.AST) -> bool:
    """Does the innermost loop around `node`, in its function, run a module in each iteration, other than of epochs?"""
    child = node
    for parent in program.ancestors(node):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)) or makes_rare(program, parent, child):
            return False
        if isinstance(parent, LOOPS) and child in parent.body:
            calls = (each for statement in parent.body for each in _unlooped(statement) if isinstance(each, ast.Call))
            is_epoch = isinstance(parent, ast.For) and "epoch" in ast.unparse(parent.target).lower()
            return not is_epoch and any(runs_module(program, each) for each in calls)
        child = parent
    return False


def computes_for_callers(program: Program, made: ast.expr) -> bool:
    """Is `made` put beside a tensor that the function is given, or in a loss, where only functions call that here?

    Such a function computes for whoever calls it, in other files as a rule in every step.
    """
    function = program.function_of(made)
    if not isinstance(function, ast.FunctionDef) or _SELDOM.search(function.name):
        return False
    if program.is_tried_out(made) or _refreshes(program, made):
        return False
    sites = program.call_sites(function)
    parameters = {each.arg for each in parameters_of(function)} - {"self", "cls", "model", "module", "net"}
    devices = (each for each in ast.walk(program.statement_of(made)) if isinstance(each, ast.Attribute))
    is_beside = any(each.attr == "device" and path_of(each.value) in parameters for each in devices)
    if not is_beside and not (parameters and made not in _looped(function) and _computes_loss(program, function)):
        return False
    return all(program.function_of(site) is not None for site in sites)


def _looped(function: ast.FunctionDef) -> set[ast.AST]:
    """The nodes of the function that its own loops run."""
    return {each for loop in own_nodes(function) if isinstance(loop, LOOPS) for each in ast.walk(loop)}


def _computes_loss(program: Program, function: ast.FunctionDef) -> bool:
    """Does the function compute one of torch's losses, other than in a loop of its own, and differentiate none?"""
    if any(isinstance(each, ast.Call) and runs_backward(program, each) for each in own_nodes(function)):
        return False
    calls = (each for statement in function.body for each in _unlooped(statement) if isinstance(each, ast.Call))
    return any(_is_loss(program, each) for each in calls)


def _is_loss(program: Program, call: ast.Call) -> bool:
    found, callee = operation(program, call), program.value(call.func)
    is_module = callee.kind is Kind.MODULE and torch_ops.class_kind(callee.name) == "loss"
    return is_module or (found is not None and "loss" in found.traits)


def _unlooped(statement: ast.AST, *without: type[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a statement that don't run in a loop of its own, nor in what else is left out."""
    stops = (*LOOPS, *FUNCTIONS, ast.ClassDef, *without)
    return reachable([statement], lambda node: () if isinstance(node, stops) else children(node))


def _is_short(program: Program, guard: ast.AST) -> bool:
    """Is it `if step % args.every == 0:` for a setting whose default, a field's of this file, is a few steps?"""
    test = guard.test if isinstance(guard, ast.If) else None
    modulo = test.left if isinstance(test, ast.Compare) else None
    period = modulo.right if isinstance(modulo, ast.BinOp) and isinstance(modulo.op, ast.Mod) else None
    fields = (each for each in program.of_type(ast.AnnAssign) if path_of(each.target) == getattr(period, "attr", ""))
    defaults = [integer(each.value) for each in fields if each.value is not None]
    return bool(defaults) and all(each is not None and 0 < each <= _FEW for each in defaults)


def made_before_steps(program: Program, node: ast.expr) -> bool:
    """Is all that `node` may be made outside of the steps that read it, or a part of what is? False if not known."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return made_before_steps(program, node.value)
    origins = [each for each in program.get(Origins).of(node) if each is not node]
    return bool(origins) and all(_is_before(program, each) for each in origins)


def _is_before(program: Program, origin: ast.AST) -> bool:
    """Is it made outside of the steps: a call, a comparison, or one of several such values?"""
    if isinstance(origin, ast.Call | ast.Compare):
        return program.heat(origin) is Heat.ONCE and not steps_beside(program, origin)
    parts = origin.iter if isinstance(origin, ast.For | ast.comprehension) else origin
    if isinstance(parts, ast.Call) and isinstance(parts.func, ast.Name):
        parts = parts.func  # `for _, mask in data("train_mask", "val_mask")`
    several = parts.elts if isinstance(parts, ast.List | ast.Tuple) else [parts]
    is_part = parts is not origin or isinstance(parts, ast.List | ast.Tuple | ast.Attribute | ast.Subscript)
    return is_part and all(isinstance(each, ast.expr) and made_before_steps(program, each) for each in several)
