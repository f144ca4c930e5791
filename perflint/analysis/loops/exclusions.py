"""What around a loop, or in it, rules out a time axis: training, set-up code, objects, chunks, solvers."""

from __future__ import annotations

import ast
import re

from perflint import torch_ops
from perflint.analysis.autograd.effects import differentiates
from perflint.analysis.call_graph import CallGraph
from perflint.analysis.facts import Program
from perflint.analysis.loops.calls import sort_of
from perflint.analysis.loops.flow import Header
from perflint.analysis.loops.header import RANGES, proven_tensors
from perflint.analysis.values.values import Kind
from perflint.syntax.module import imports_framework
from perflint.syntax.walk import Function, Loop, name_called, nodes_of_body, path_of, receiver_of

_GRID_NAME = re.compile(r"^(time_?(steps|points|grid|span|range)|(sigmas|betas)(_\w+)?)$")
_ENVIRONMENT = re.compile(r"(^|_)envs?($|_)|environment", re.IGNORECASE)
_SETUP = frozenset({"__init__", "__getitem__"})


def never_over_time(program: Program, loop: Loop, header: Header) -> bool:
    """Does the loop train, differentiate or step an environment, or stand in setup code or a test?"""
    function = program.function_of(loop)
    if imports_framework(program.tree) or (function is not None and _is_setup(program, function)):
        return True
    return any(_has_another_end(program, node, header) for node in nodes_of_body(loop))


def _is_setup(program: Program, function: Function) -> bool:
    """Does it construct an object, or belong to a dataset or an optimizer?"""
    owner, name = program.class_of(function), getattr(function, "name", "")
    return name in _SETUP or (owner is not None and (owner.is_a("dataset") or owner.is_a("optimizer")))


def _has_another_end(program: Program, node: ast.AST, header: Header) -> bool:
    """Does it train, step something, fill an array or make a loader?"""
    if isinstance(node, ast.Assign):
        return _fills_array(program, node)
    if not isinstance(node, ast.Call):
        return False
    graph = program.get(CallGraph)
    if graph.has(node, differentiates) or graph.has(node, _steps_environment):
        return True
    return _steps(program, node) and not _is_told_the_step(node, header)


def _steps(program: Program, node: ast.Call) -> bool:
    """Does it step an environment, an optimizer or a scheduler, rather than a module of this file?"""
    stepped = receiver_of(node, "step")
    if stepped is None or program.value(stepped).kind is Kind.MODULE:
        return False
    callee = program.callee(node)
    return callee is None or program.class_of(callee) is not None


def _steps_environment(program: Program, node: ast.Call) -> bool:
    """Does it step something that is named as an environment is?"""
    stepped = receiver_of(node, "step")
    return stepped is not None and _ENVIRONMENT.search(path_of(stepped).rpartition(".")[2]) is not None


def _is_told_the_step(node: ast.Call, header: Header) -> bool:
    """Is it `search.step(t, scores, ...)`: given the number and more, as no environment, optimizer or scheduler is?"""
    return len(node.args) > 2 and path_of(node.args[0]) in header.indices


def _fills_array(program: Program, node: ast.Assign) -> bool:
    """Is an array of numpy given what nothing brings to the host, and what is there already, therefore?"""
    targets = [each.value for each in node.targets if isinstance(each, ast.Subscript)]
    calls = {name_called(each) for each in ast.walk(node.value) if isinstance(each, ast.Call)}
    return any(program.value(each).kind is Kind.NUMPY for each in targets) and not any(
        torch_ops.does(name, "to_host") for name in calls
    )


def solves(loop: Loop) -> bool:
    """Does it iterate over, or read, what is named after the times or noise levels of a solver?"""
    walked = [] if isinstance(loop, ast.While) else _sequences(loop.iter)
    read = [
        each.value for each in nodes_of_body(loop) if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load)
    ]
    return any(_GRID_NAME.search(path_of(node).rpartition(".")[2]) for node in (*walked, *read))


def may_compute(program: Program, loop: Loop) -> bool:
    """May the loop run a model, or operations on tensors? Where it can't, nobody has to follow its data."""
    nodes = list(ast.walk(loop))
    sorts = (sort_of(program, node) for node in nodes if isinstance(node, ast.Call))
    if any(sort.model or sort.launches for sort in sorts):
        return True
    kinds = {program.value(node).kind for node in nodes if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare)}
    return Kind.TENSOR in kinds or (Kind.UNKNOWN in kinds and bool(proven_tensors(program, loop)))


def _sequences(node: ast.expr) -> list[ast.expr]:
    """What `zip(x[1:], enumerate(y))` iterates over: x and y; not the bound of a range."""
    if isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        given = [] if name_called(node) in RANGES else [*owner, *node.args]
        return [part for each in given for part in _sequences(each)]
    return _sequences(node.value) if isinstance(node, ast.Subscript) else [node]
