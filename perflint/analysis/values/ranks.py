"""Tells how many axes a tensor has by the statements around it: those that unpack its sizes, and tests."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.shape_rules import sized
from perflint.syntax.walk import integer, operands, own_nodes, receiver_of

_RESHAPES = frozenset({"restriding", "strided"})
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def unpacked_rank(program: Program, node: ast.expr, uses: Sequence[ast.expr]) -> int | None:
    """The number of names that take the sizes at one of `uses` whenever `node` is read; None where none do."""
    for use in uses if not program.get(_reshapes_in_place) else ():
        unpacking = _unpacking(program, use)
        if unpacking is not None and _runs_with(program, unpacking, node):
            names = unpacking.targets[0]
            return len(names.elts) if isinstance(names, ast.Tuple) else None
    return None


def tested_rank(program: Program, node: ast.expr, uses: Sequence[ast.expr]) -> int | None:
    """The rank by a test at one of `uses` that has passed where `node` is read: `if x.dim() == 3:`."""
    child: ast.AST = node
    for around in program.ancestors(node) if uses and not program.get(_reshapes_in_place) else ():
        if isinstance(around, ast.If) and child in around.body:
            for test in operands(around.test, ast.And):
                asked = ranked(test)
                if asked is not None and asked[0] in uses:
                    return asked[1]
        child = around
    return None


def _reshapes_in_place(program: Program) -> bool:
    """Does the program give a tensor that it has another number of axes: `x.unsqueeze_(0)`, `x.data = y`?"""
    named = (each.func.attr for each in program.of_type(ast.Call) if isinstance(each.func, ast.Attribute))
    does = (torch_ops.of_method(name) for name in {*named} if name.endswith("_"))
    if any(each is not None and each.traits & _RESHAPES and not each.does("permuting") for each in does):
        return True
    return any(each.attr == "data" and isinstance(each.ctx, ast.Store) for each in program.of_type(ast.Attribute))


def ranked(test: ast.expr) -> tuple[ast.expr, int] | None:
    """The tensor, and the number of its axes, of `x.dim() == 3`; None of another test."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    tested, rank = receiver_of(test.left, "dim"), integer(test.comparators[0])
    return (tested, rank) if tested is not None and rank is not None else None


def _unpacking(program: Program, tensor: ast.AST) -> ast.Assign | None:
    """The statement that gives each size of `tensor` a name."""
    around = program.ancestors(tensor)
    sizes = next(around)
    if isinstance(sizes, ast.Attribute) and sizes.attr == "size":
        sizes = next(around)
    parent = next(around, None)
    if not isinstance(parent, ast.Assign) or not isinstance(sizes, ast.expr) or sized(sizes) is not tensor:
        return None
    names = parent.targets[0]
    is_plain = isinstance(names, ast.Tuple) and not any(isinstance(name, ast.Starred) for name in names.elts)
    return parent if is_plain else None


def _runs_with(program: Program, unpacking: ast.stmt, node: ast.expr) -> bool:
    """Has `unpacking` run whenever `node` does, or will it in any case?"""
    block = program.block_of(unpacking)
    statements = (each for each in program.ancestors(node) if isinstance(each, ast.stmt))
    beside = next((each for each in statements if each in block), None)
    if beside is None:
        return False
    between = block[block.index(beside) : block.index(unpacking)]  # empty where it has run
    return not any(isinstance(part, _LEAVES) for each in between for part in own_nodes(each))
