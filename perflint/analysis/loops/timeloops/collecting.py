"""Recognises loops whose results become one tensor."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.loops.dataflow import LoopFlow
from perflint.analysis.loops.header import called
from perflint.syntax.walk import Loop, own_nodes, path_of

_DEPTH = 2  # functions that hand the list on


def is_collected(program: Program, loop: Loop, flow: LoopFlow) -> bool:
    """Do the steps' results become one tensor: by slots, yields, a growing cat, or a stack or cat behind the loop?"""
    kept = {each.name for each in flow.collected if each.how == "append" and each.trace.varies}
    if any(each.how in ("slot", "cat", "yield") and each.trace.varies for each in flow.collected):
        return True
    scope = program.function_of(loop) or program.tree
    return any(_joins(program, scope, name, _DEPTH) for name in kept)


def _joins(program: Program, scope: ast.AST, name: str, depth: int) -> bool:
    """Is the list called `name` made into a tensor in `scope`, or in a function that gets it?"""
    calls = (node for node in own_nodes(scope) if isinstance(node, ast.Call))
    return any(_joins_in(program, call, name, depth) for call in calls)


def _joins_in(program: Program, call: ast.Call, name: str, depth: int) -> bool:
    for argument in call.args:
        if not any(path_of(part) == name for part in ast.walk(argument) if isinstance(part, ast.Name | ast.Attribute)):
            continue
        if called(call) == "pad_sequence" or torch_ops.does(called(call), "joining"):
            return True
        callee = program.callee(call) if depth and path_of(argument) == name else None
        given = program.arguments(call, callee).given if callee is not None else {}
        parameter = next((each for each, value in given.items() if value is argument), "")
        if callee is not None and parameter and _joins(program, callee, parameter, depth - 1):
            return True
    return False
