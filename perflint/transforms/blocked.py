"""Says why there is no fix, and shows pieces of the program in messages."""

from __future__ import annotations

import ast

from perflint.analysis.program import Program


class Blocked(Exception):
    """No fix: `reason` is what stands in the way, at `node` where that is one place."""

    def __init__(self, reason: str, node: ast.AST | None = None) -> None:
        super().__init__(reason)
        self.reason, self.node = reason, node

    def __str__(self) -> str:
        line = getattr(self.node, "lineno", None)
        return self.reason if line is None else f"line {line}: {self.reason}"


_LONG = 48


def shown(program: Program, node: ast.expr | ast.stmt) -> str:
    """The text of `node` on one line, in backquotes; of a long call, what is called."""
    text = " ".join(program.segment(node).split())
    if len(text) > _LONG and isinstance(node, ast.Call):
        text = f"{' '.join(program.segment(node.func).split())[-_LONG:]}(...)"
    return f"`{text if len(text) <= _LONG + 5 else text[:_LONG] + '...'}`"
