"""A call of a function of torch or of a tensor's method, as the lifter reads it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint.transforms.text import atom
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.steps import Steps


@dataclass(frozen=True)
class Operation:
    """A call of what torch calls `name`, of a tensor's method or a function alike: the tensor is the first operand."""

    node: ast.Call
    name: str
    operands: list[ast.expr]
    is_method: bool

    def written(self, scope: Scope, value: Steps) -> str:
        """The call, of `value` in the place of the tensor."""
        return scope.text(self.node, {self.operands[0]: atom(value.text) if self.is_method else value.text})

    def told(self, scope: Scope, value: Steps, arguments: list[str]) -> str:
        """The call, of `value` in the place of the tensor, with these arguments behind it."""
        if isinstance(self.node.func, ast.Attribute) and self.is_method:
            return f"{atom(value.text)}.{self.node.func.attr}({', '.join(arguments)})"
        return f"{scope.text(self.node.func)}({', '.join([value.text, *arguments])})"

    @property
    def sizes(self) -> list[ast.expr]:
        """What is given behind the tensor, one by one or as one tuple."""
        given = self.operands[1:]
        return given[0].elts if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List) else given
