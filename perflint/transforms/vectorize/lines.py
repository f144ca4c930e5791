"""The statements that take the place of those of a loop's body."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Line:
    """The statements, as text, that take the place of one, or of its head alone, which ends on the line `head`.

    They stand as many blocks deeper than the loop did as `depth` says.
    """

    statement: ast.stmt
    texts: tuple[str, ...]
    depth: int = 0
    head: int = 0

    @property
    def last(self) -> int:
        """The last line of what they stand for."""
        return self.head or self.statement.end_lineno or self.statement.lineno

    def deeper(self) -> Line:
        """The same statements in one block more."""
        return replace(self, depth=self.depth + 1)
