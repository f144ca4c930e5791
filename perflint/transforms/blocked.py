"""Says why there is no fix."""

from __future__ import annotations

import ast


class Blocked(Exception):
    """No fix: `reason` is what stands in the way, at `node` where that is one place."""

    def __init__(self, reason: str, node: ast.AST | None = None) -> None:
        super().__init__(reason)
        self.reason, self.node = reason, node

    def __str__(self) -> str:
        line = getattr(self.node, "lineno", None)
        return self.reason if line is None else f"line {line}: {self.reason}"
