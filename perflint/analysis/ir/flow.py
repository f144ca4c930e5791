"""Definitions and uses throughout a program: the graphs of its scopes, each lowered when it is first asked for."""

from __future__ import annotations

import ast
from functools import partial

from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Definition, Graph, Scope
from perflint.analysis.ir.lowering import lower
from perflint.analysis.ir.managers import may_swallow


class Flow:
    """Where names come from, in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._graphs: dict[Scope, Graph] = {}

    def graph(self, node: ast.AST) -> Graph:
        """The IR of the scope whose own code holds `node`."""
        return self.graph_of(self.program.function_of(node) or self.program.tree)

    def graph_of(self, scope: Scope) -> Graph:
        """The IR of `scope`."""
        if scope not in self._graphs:
            self._graphs[scope] = lower(scope, partial(may_swallow, self.program))
        return self._graphs[scope]

    def definitions(self, name: ast.Name) -> frozenset[ast.AST]:
        """The ast.Name or ast.arg nodes whose values `name` may have here; empty for names from further out."""
        return self.graph(name).reaching(name)

    def assigned(self, name: ast.Name) -> list[ast.expr]:
        """The expressions whose values the variable may have there; none where it may have others, or parts of some."""
        values = self.graph(name).definitions(name)
        definitions = [each for each in values if isinstance(each, Definition) and each.updates is None]
        found = [each.source for each in definitions if each.source is not None and not each.steps]
        return found if len(found) == len(values) else []
