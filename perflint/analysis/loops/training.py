"""Which calls compute gradients, and so mark a loop as one that trains."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind

_BACKWARD = frozenset({"backward", "manual_backward"})  # of tensors, and of accelerators, fabrics and their like
_FUNCTION = "torch.autograd.backward"


def runs_backward(program: Program, node: ast.Call) -> bool:
    """Is it `loss.backward()`, `torch.autograd.backward(loss)`, `accelerator.backward(loss)` or the like?"""
    if program.qualified(node.func) == _FUNCTION:
        return True
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr not in _BACKWARD:
        return False
    return program.value(func.value).kind is not Kind.LIBRARY
