"""How a message shows a piece of the program."""

from __future__ import annotations

import ast

from perflint.analysis.program import Program

_LONG = 48


def shown(program: Program, node: ast.expr | ast.stmt) -> str:
    """The text of `node` on one line, in backquotes; of a long call, what is called."""
    text = " ".join(program.segment(node).split())
    if len(text) > _LONG and isinstance(node, ast.Call):
        text = f"{' '.join(program.segment(node.func).split())[-_LONG:]}(...)"
    return f"`{text if len(text) <= _LONG + 5 else text[:_LONG] + '...'}`"
