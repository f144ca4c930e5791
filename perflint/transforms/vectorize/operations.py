"""A call of a function of torch or of a tensor's method, as the lifter reads it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint.transforms.operations import new
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.steps import Steps


@dataclass(frozen=True)
class Operation:
    """A call of what torch calls `name`, of a tensor's method or a function alike: the tensor is the first operand."""

    node: ast.Call
    name: str
    operands: list[ast.expr]
    is_method: bool

    def written(self, scope: Scope, value: Steps) -> ast.expr:
        """The call, of `value` in the place of the tensor."""
        return scope.code(self.node, {self.operands[0]: value.code})

    def told(self, scope: Scope, value: Steps, arguments: list[ast.expr], named: dict[str, ast.expr]) -> ast.expr:
        """The call, of `value` in the place of the tensor, with these arguments behind it."""
        words = [new(ast.keyword(name, given)) for name, given in named.items()]
        if isinstance(self.node.func, ast.Attribute) and self.is_method:
            return new(ast.Call(new(ast.Attribute(value.code, self.node.func.attr, ast.Load())), arguments, words))
        return new(ast.Call(scope.code(self.node.func), [value.code, *arguments], words))

    @property
    def sizes(self) -> list[ast.expr]:
        """What is given behind the tensor, one by one or as one tuple."""
        given = self.operands[1:]
        return given[0].elts if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List) else given
