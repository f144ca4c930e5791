"""Proves that sequences of unknown type are tensors, by what is done with them."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.loops.header import called
from perflint.analysis.loops.indices import spans_an_axis
from perflint.syntax.walk import Loop, own_nodes, path_of


def proven_tensors(program: Program, loop: Loop) -> frozenset[str]:
    """The paths that the function around `loop` treats as only a tensor, or a list of tensors, can be."""
    found = set()
    for node in own_nodes(program.function_of(loop) or program.tree):
        if isinstance(node, ast.Subscript) and spans_an_axis(node.slice):
            found.add(path_of(node.value))
        elif isinstance(node, ast.Call) and called(node).endswith("_like") and node.args:
            if program.qualified(node.func).startswith("torch."):
                found.add(_sequence(node.args[0]))
        elif (
            isinstance(node, ast.Call)
            and torch_ops.does(called(node), "unmistakable")
            and isinstance(node.func, ast.Attribute)
        ):
            found.add(_sequence(node.func.value))
    return frozenset(found - {""})


def _sequence(node: ast.expr) -> str:
    """Of `x` and of its step `x[0]`, x."""
    return path_of(node.value if isinstance(node, ast.Subscript) else node)
