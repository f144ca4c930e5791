"""Finds another time loop that runs the same models as a loop without evidence of its own."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.loops.dataflow import LoopFlow
from perflint.syntax.walk import Loop, PlainLoop, path_of


def has_twin(program: Program, loop: Loop, flow: LoopFlow) -> bool:
    """Does another loop of the class, or of the file, hand the same models a state in the same place, over time?"""
    handed = _handed(flow)
    if not handed:
        return False
    return any(handed & _handed(other.flow) for node in _others(program, loop) if (other := program.time_loop(node)))


def _handed(flow: LoopFlow) -> set[tuple[str, int]]:
    """The models that get a state as it is, and at which position."""
    models = [call for call in flow.calls if call.sort.model and path_of(call.node.func)]
    return {(path_of(call.node.func), position) for call in models for _, position in call.direct}


def _others(program: Program, loop: Loop) -> list[PlainLoop]:
    """The loops in methods of the same class, or outside of classes: neither around `loop` nor inside."""
    related = {id(each) for each in (*program.ancestors(loop), *ast.walk(loop))}
    owner = _owner(program, loop)
    return [each for each in program.plain_loops() if id(each) not in related and _owner(program, each) is owner]


def _owner(program: Program, node: ast.AST) -> ast.ClassDef | None:
    return next((each for each in program.ancestors(node) if isinstance(each, ast.ClassDef)), None)
