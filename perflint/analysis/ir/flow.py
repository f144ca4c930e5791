"""Definitions and uses throughout a program: the graphs of its scopes, each lowered when it is first asked for."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property

from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Definition, Graph, Scope, sources_of
from perflint.analysis.ir.lowering import lower


class Bindings:
    """Which bindings reach which names of one scope, as nodes: the ast.Name that is assigned, the ast.arg."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def shared(self) -> set[str]:
        """The names that an inner function reads, or that are not this scope's own."""
        return self.graph.shared | self.graph.captured.keys()

    def definitions(self, name: ast.Name) -> frozenset[ast.AST]:
        """The bindings whose values `name` may have: for one that is augmented, before that."""
        value = self.graph.read(name)
        found = sources_of(value) if value is not None else ()
        nodes = (each.node for each in found if isinstance(each, Definition))
        return frozenset(node for node in nodes if isinstance(node, ast.Name | ast.arg))

    @cached_property
    def uses(self) -> dict[ast.AST, list[ast.Name]]:
        """The names that each binding reaches."""
        found: defaultdict[ast.AST, list[ast.Name]] = defaultdict(list)
        for name in (each for each in self.graph.values if isinstance(each, ast.Name)):
            for definition in self.definitions(name):
                found[definition].append(name)
        return found


class Flow:
    """Where names come from, in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._graphs: dict[Scope, Graph] = {}
        self._bindings: dict[Scope, Bindings] = {}

    def graph(self, node: ast.AST) -> Graph:
        """The IR of the scope whose own code holds `node`."""
        return self.graph_of(self.program.function_of(node) or self.program.tree)

    def graph_of(self, scope: Scope) -> Graph:
        """The IR of `scope`."""
        if scope not in self._graphs:
            self._graphs[scope] = lower(scope)
        return self._graphs[scope]

    def bindings(self, node: ast.AST) -> Bindings:
        """The reaching definitions of the scope around `node`."""
        return self.bindings_of(self.program.function_of(node) or self.program.tree)

    def bindings_of(self, scope: Scope) -> Bindings:
        """The reaching definitions in `scope`."""
        if scope not in self._bindings:
            self._bindings[scope] = Bindings(self.graph_of(scope))
        return self._bindings[scope]

    def definitions(self, name: ast.Name) -> frozenset[ast.AST]:
        """The ast.Name or ast.arg nodes whose values `name` may have here; empty for names from further out."""
        return self.bindings(name).definitions(name)
