"""Infers the rank of a tensor whose sizes are unpacked: `b, n, c = x.shape`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.syntax.walk import own_nodes

_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def unpacked_rank(program: Program, flow: Flow, node: ast.expr) -> int | None:
    """The number of names that take the sizes of this very value whenever `node` is read; None where none do."""
    definitions = flow.definitions(node) if isinstance(node, ast.Name) else frozenset()
    if len(definitions) != 1:
        return None
    for use in flow.bindings(node).uses.get(next(iter(definitions)), []):
        unpacking = _unpacking(program, use)
        if unpacking is None or flow.definitions(use) != definitions:
            continue
        names = unpacking.targets[0]
        if isinstance(names, ast.Tuple) and _runs_with(program, unpacking, node):
            return len(names.elts)
    return None


def _unpacking(program: Program, tensor: ast.AST) -> ast.Assign | None:
    """The statement that gives each size of `tensor` a name."""
    sizes: ast.AST | None = program.parent(tensor)
    if not (isinstance(sizes, ast.Attribute) and sizes.attr in ("shape", "size")):
        return None
    if sizes.attr == "size":
        sizes = program.parent(sizes)
        if not isinstance(sizes, ast.Call) or sizes.args:
            return None
    parent = program.parent(sizes)
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Tuple):
        return None
    return None if any(isinstance(name, ast.Starred) for name in parent.targets[0].elts) else parent


def _runs_with(program: Program, unpacking: ast.stmt, node: ast.expr) -> bool:
    """Has `unpacking` run whenever `node` does, or will it in any case?"""
    block = program.block_of(unpacking)
    beside = next((each for each in _around(program, node) if each in block), None)
    if beside is None:
        return False
    between = block[block.index(beside) : block.index(unpacking)]  # empty where it has run
    return not any(isinstance(part, _LEAVES) for each in between for part in own_nodes(each))


def _around(program: Program, node: ast.expr) -> Iterator[ast.stmt]:
    """The statements that `node` is part of, from the inside out."""
    return (each for each in program.ancestors(node) if isinstance(each, ast.stmt))
