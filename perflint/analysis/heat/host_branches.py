"""Recognises branches that run only for tensors on the host, where a read waits for nothing."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perflint.analysis.facts import Program
from perflint.syntax.walk import path_of

_MOVES = frozenset({"cuda", "to"})


def stays_on_host(program: Program, test: ast.expr, outcome: bool, branch: Sequence[ast.AST]) -> bool:
    """Does `branch`, which runs if `test` has this outcome, run only for a tensor on the host, and leave it there?"""
    tested = _of_host(program, test, outcome)
    return bool(tested) and not any(_leaves(part, tested) for part in branch)


def _of_host(program: Program, test: ast.expr, outcome: bool) -> str:
    """What is on the host if `test` has this outcome; empty if it names no host.

    What is not on CUDA may be on another accelerator.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _of_host(program, test.operand, not outcome)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if outcome else ast.Or):
        return next(filter(None, (_of_host(program, part, outcome) for part in test.values)), "")
    if isinstance(test, ast.Attribute) and test.attr == "is_cpu" and outcome:
        return path_of(test.value)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        equal = isinstance(test.ops[0], ast.Eq if outcome else ast.NotEq)
        path = path_of(test.left).removesuffix(".type")
        if equal and path.rpartition(".")[2] == "device" and _names_host(program, test.comparators[0]):
            return path.removesuffix(".device")
    return ""


def _names_host(program: Program, device: ast.expr) -> bool:
    if isinstance(device, ast.Call) and program.qualified(device.func) == "torch.device" and device.args:
        device = device.args[0]
    return isinstance(device, ast.Constant) and device.value == "cpu"


def _leaves(part: ast.AST, tested: str) -> bool:
    """Does `part` move anything, or make something else of what was tested?"""
    nodes = list(ast.walk(part))
    is_moved = any(isinstance(node, ast.Attribute) and node.attr in _MOVES for node in nodes)
    return is_moved or any(isinstance(node, ast.Assign) and _makes_another(node, tested) for node in nodes)


def _makes_another(statement: ast.Assign, tested: str) -> bool:
    targets = [each for target in statement.targets for each in ast.walk(target)]
    is_target = any(isinstance(getattr(each, "ctx", None), ast.Store) and path_of(each) == tested for each in targets)
    return is_target and not isinstance(statement.value, ast.Constant)
