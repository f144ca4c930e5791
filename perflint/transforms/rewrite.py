"""What a proof yields: a change of the program as data, written out when somebody asks; or why there is none."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.analysis.program import Program
from perflint.syntax.source import Edit, Source
from perflint.transforms.operations import Operation

if TYPE_CHECKING:
    import libcst  # which checks do without


@dataclass(frozen=True)
class Rewrite:
    source: Source
    operations: tuple[Operation, ...]

    def __call__(self) -> tuple[Edit, ...]:
        from perflint.transforms.render import render  # here: only who needs the text of fixes needs libcst

        return render(self.source, self.operations)


@dataclass(frozen=True)
class Codemod:
    source: Source
    change: Callable[[libcst.Module], libcst.Module]

    def __call__(self) -> tuple[Edit, ...]:
        from perflint.transforms.render import changed

        return changed(self.source, self.change)


def rewrite(program: Program, *operations: Operation) -> Rewrite:
    """The change of `program` that consists of `operations`."""
    return Rewrite(program.source, operations)


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
        called = " ".join(program.segment(node.func).split())
        if len(called) > _LONG and isinstance(node.func, ast.Attribute):
            called = f"(...).{node.func.attr}"
        text = f"{called}(...)"
    return f"`{text if len(text) <= _LONG + 5 else text[:_LONG] + '...'}`"
