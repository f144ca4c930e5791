"""Which assignments reach which names, throughout a program."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.ir.bindings import Bindings
from perflint.syntax.walk import Function


class Flow:
    """Where names come from, in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._bindings: dict[ast.AST, Bindings] = {}

    def bindings(self, node: ast.AST) -> Bindings:
        """The reaching definitions of the scope around `node`."""
        return self.bindings_of(self.program.function_of(node) or self.program.tree)

    def bindings_of(self, scope: Function | ast.Module) -> Bindings:
        """The reaching definitions in `scope`."""
        if scope not in self._bindings:
            self._bindings[scope] = Bindings(scope)
        return self._bindings[scope]

    def definitions(self, name: ast.Name) -> frozenset[ast.AST]:
        """The ast.Name or ast.arg nodes whose values `name` may have here; empty for names from further out."""
        return self.bindings(name).definitions.get(name, frozenset())
