"""The modes of torch that a program switches on around its code."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.fixes.names import imported_name

if TYPE_CHECKING:
    from perflint.program import Program

MODES = frozenset(
    "torch.no_grad torch.inference_mode torch.enable_grad torch.set_grad_enabled torch.autocast torch.amp.autocast"
    " torch.cuda.amp.autocast torch.autograd.no_grad".split()
)
_NO_GRADIENTS = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad"})


def called(node: ast.expr) -> ast.expr:
    """What a decorator or a context refers to, whether it is called or not."""
    return node.func if isinstance(node, ast.Call) else node


def without_gradients(program: Program, node: ast.AST) -> bool:
    """Are no gradients recorded at `node`, as the code around it says?"""
    function = program.function_of(node)
    decorators = getattr(function, "decorator_list", ())
    return program.without_gradients(node) or any(
        imported_name(program, called(each)) in _NO_GRADIENTS for each in decorators
    )
