"""Recognises samplers and solvers of differential equations, which step through times or noise levels."""

from __future__ import annotations

import ast
import re

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.loops.dataflow import TimeSlice
from perflint.analysis.loops.found import Header
from perflint.analysis.loops.header import RANGES, called
from perflint.syntax.walk import Loop, assigned_values, nodes_of_body, own_nodes, path_of

_GRID_NAME = re.compile(r"^(time_?(steps|points|grid|span|range)|(sigmas|betas)(_\w+)?)$")


def solves(loop: Loop) -> bool:
    """Does it walk through, or read, what is named after the times or noise levels of a solver?"""
    walked = [] if isinstance(loop, ast.While) else _sequences(loop.iter)
    read = [
        each.value for each in nodes_of_body(loop) if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load)
    ]
    return any(_GRID_NAME.search(path_of(node).rpartition(".")[2]) for node in (*walked, *read))


def numbers_noise(loop: Loop, header: Header) -> bool:
    """Does each step fill a tensor with its number, as samplers tell a denoiser the level of the noise?"""
    numbers = header.indices | {path_of(each.target) for each in header.elements} | set(map(path_of, header.members))
    fills = (node for node in nodes_of_body(loop) if isinstance(node, ast.Call) and _fills(called(node)))
    return any(path_of(argument) in numbers for node in fills for argument in node.args)


def is_grid(program: Program, step: TimeSlice) -> bool:
    """Is the sequence a grid of numbers rather than data: made so, or each repeated for the batch?"""
    scope = program.function_of(step.node) or program.tree
    attributes = (node for node in own_nodes(scope) if isinstance(node, ast.Attribute))
    if any(node.attr in ("expand", "repeat") and node.value is step.node for node in attributes):
        return True
    return any(_is_line(called(value)) for value in assigned_values(scope, step.base))


def _sequences(node: ast.expr) -> list[ast.expr]:
    """What `zip(x[1:], enumerate(y))` walks through: x and y; not the bound of a range."""
    if isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        given = [] if called(node) in RANGES else [*owner, *node.args]
        return [part for each in given for part in _sequences(each)]
    return _sequences(node.value) if isinstance(node, ast.Subscript) else [node]


def _fills(name: str) -> bool:
    operation = torch_ops.of_name(name)
    return operation is not None and operation.does("filling") and not operation.in_place


def _is_line(name: str) -> bool:
    operation = torch_ops.of_name(name)
    return operation is not None and operation.does("line") and not operation.does("random")
