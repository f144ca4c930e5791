"""Aliases and effects throughout a program: what may be the same memory, what writes to it, and when."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Graph, Scope
from perflint.analysis.memory.locations import ANYWHERE, Location, Origin, Summary, Write, made
from perflint.analysis.memory.points_to import PointsTo
from perflint.syntax.arguments import parameters_of
from perflint.syntax.walk import Function

_DEEPEST = 24  # of calls in calls; behind that, a function is as good as unknown


class Memory:
    """The points-to analyses of the scopes of one program, each worked out when it is first asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = program.get(Flow)
        self._points: dict[Scope, PointsTo] = {}
        self._summaries: dict[Function, Summary] = {}
        self._active: set[Scope] = set()

    def graph(self, node: ast.AST) -> Graph:
        """The IR of the scope whose own code holds `node`."""
        return self._flow.graph(node)

    def points_to(self, node: ast.AST) -> PointsTo:
        """The locations and writes of the scope whose own code holds `node`."""
        return self._of(self._program.function_of(node) or self._program.tree)

    def writes_after(self, node: ast.expr, point: ast.AST) -> Iterator[Write]:
        """The writes that may run after `point` in its scope, and may change what `node` evaluates to there."""
        points = self.points_to(node)
        places = points.of(node)
        places |= points.cells.load(places, "data")
        for write in points.writes:
            if write.reaches(places) and (write.deferred or points.graph.runs_after(write.node, point)):
                yield write

    def summary(self, function: Function) -> Summary:
        """What a call of `function` does."""
        if function in self._active:
            return _of_parameters(function)  # what it does to others, its own analysis finds
        if len(self._active) > _DEEPEST:
            return _unknown(function)
        if function not in self._summaries:
            points = self._of(function)
            self._summaries[function] = points.summary() if points.is_known else _unknown(function)
        return self._summaries[function]

    def _of(self, scope: Scope) -> PointsTo:
        if scope not in self._points:
            self._active.add(scope)
            self._points[scope] = PointsTo(self._program, self._flow.graph_of(scope), self.summary)
            self._active.remove(scope)
        return self._points[scope]


def _unknown(function: Function) -> Summary:
    """A function of which nothing is known: it may write to anything, and return it."""
    summary = _of_parameters(function)
    return replace(summary, writes=summary.writes | {Write(function, ANYWHERE, deep=True)})


def _of_parameters(function: Function) -> Summary:
    """A function that may write to all that it is given, and return any of it."""
    places = frozenset(Location(Origin.PARAMETER, each) for each in parameters_of(function))
    writes = frozenset(Write(function, each, deep=True) for each in places)
    return Summary(places | {ANYWHERE, made(function)}, places, writes)
