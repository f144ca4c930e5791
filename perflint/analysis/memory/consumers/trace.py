"""How a tensor came to where it is."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from perflint.analysis.memory.consumers.roles import OutOfSight

_NESTED = 3

Key = int | str | None  # which part of a container; None for any


@dataclass(frozen=True)
class Trace:
    """How the tensor came to where it is.

    `calls` led into the function; `inside` leads to it within a container, the outermost first; `tensor` is the
    expression that put it there.
    """

    calls: tuple[ast.Call, ...] = ()
    inside: tuple[Key, ...] = ()
    tensor: ast.expr | None = None

    def into(self, key: Key, node: ast.expr) -> Trace:
        """Put `node` into a container, at `key`."""
        if len(self.inside) >= _NESTED:
            raise OutOfSight
        return replace(self, inside=(key, *self.inside), tensor=self.tensor if self.inside else node)

    def out(self) -> Trace:
        """Take what holds the tensor out of the outermost container."""
        return replace(self, inside=self.inside[1:])
