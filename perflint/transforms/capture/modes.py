"""The modes of torch that a program switches on around its code."""

from __future__ import annotations

import ast

MODES = frozenset(
    "torch.no_grad torch.inference_mode torch.enable_grad torch.set_grad_enabled torch.autocast torch.amp.autocast"
    " torch.cuda.amp.autocast torch.autograd.no_grad".split()
)


def referred(node: ast.expr) -> ast.expr:
    """What a decorator or a context refers to, whether it is called or not."""
    return node.func if isinstance(node, ast.Call) else node
