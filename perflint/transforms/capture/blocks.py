"""Finds the blocks of statements that take a step of training, again and again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.autograd.effects import runs_backward
from perflint.analysis.program import Program
from perflint.syntax.walk import FUNCTIONS, LOOPS, integer
from perflint.transforms.capture.parts import steps

_OFTEN = 20  # steps: fewer are over before a graph is of use


def training_blocks(program: Program) -> Iterator[tuple[list[ast.stmt], ast.Call]]:
    """The blocks that hold a backward pass and the step of an optimizer behind it, each with its first such pass."""
    seen: set[ast.stmt] = set()
    for call in sorted(program.of_type(ast.Call), key=lambda each: (each.lineno, each.col_offset)):
        if runs_backward(program, call) and (program.hot_by(call) is not None or is_often_run(program, call)):
            block = _block_of(program, call)
            if block and block[0] not in seen:
                seen.add(block[0])
                yield block, call


def is_often_run(program: Program, node: ast.AST) -> bool:
    """Does a loop of its function run it often, as one over epochs with all of the data in one batch?"""
    loop = next((each for each in program.ancestors(node) if isinstance(each, (*LOOPS, *FUNCTIONS))), None)
    if not isinstance(loop, LOOPS) or program.is_tried_out(node):
        return False
    counted = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
    is_range = isinstance(counted, ast.Call) and program.qualified(counted.func) == "builtins.range"
    steps = integer(counted.args[-1]) if isinstance(counted, ast.Call) and is_range and counted.args else None
    return steps is None or steps >= _OFTEN


def _block_of(program: Program, call: ast.Call) -> list[ast.stmt]:
    """The innermost block around a backward pass that steps an optimizer behind it."""
    statement: ast.AST | None = program.statement_of(call)
    while statement is not None and not isinstance(statement, (*FUNCTIONS, ast.Module)):
        if isinstance(statement, ast.stmt):
            block = program.block_of(statement)
            if any(steps(program, each) for each in block[block.index(statement) :]):
                return block
        statement = program.parent(statement)
    return []
