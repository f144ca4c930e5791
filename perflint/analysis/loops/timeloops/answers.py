"""Recognises calls that wait for input from a person or another process."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind

_PROMPTS = frozenset({"input", "raw_input"})
_RECEIVES = frozenset({"recv", "recv_bytes"})


def awaits_an_answer(program: Program, node: ast.Call) -> bool:
    """Is it `input("> ")`, or `pipe.recv()`, which unlike torch.distributed's says neither what nor from whom?"""
    if isinstance(node.func, ast.Name):
        return node.func.id in _PROMPTS and all(program.value(each).kind is Kind.STRING for each in node.args)
    return isinstance(node.func, ast.Attribute) and node.func.attr in _RECEIVES and not (node.args or node.keywords)
