"""Aliases and effects throughout a program: what may be the same memory, what writes to it, and when."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Graph, Scope
from perflint.analysis.links import ParameterEffect
from perflint.analysis.memory.locations import ANYWHERE, Location, MemorySummary, Origin, Write, made
from perflint.analysis.memory.points_to import PointsTo
from perflint.analysis.memory.sharing import Sharing
from perflint.syntax.scopes import defaults_of, parameters_of
from perflint.syntax.walk import FUNCTIONS, Function

_DEEPEST = 24  # of calls in calls; beyond that, a function is as good as unknown


class Memory:
    """The points-to analyses of the scopes of one program, each computed when it is first asked for."""

    analysis: ClassVar[type[PointsTo]] = PointsTo

    def __init__(self, program: Program) -> None:
        self.program = program
        self._flow = program.get(Flow)
        self._points: dict[Scope, PointsTo] = {}
        self._summaries: dict[Function, MemorySummary] = {}
        self._active: set[Scope] = set()

    def graph(self, node: ast.AST) -> Graph:
        return self._flow.graph(node)

    def points_to(self, node: ast.AST) -> PointsTo:
        return self.points_of(self.program.scope_of(node))

    def writes_after(self, node: ast.expr, point: ast.AST) -> Iterator[Write]:
        """The writes that may run after `point` in its scope, and may change what `node` evaluates to there."""
        points = self.points_to(node)
        places = points.of(node)
        places |= points.cells.load(places, "data")
        for write in points.writes:
            if write.reaches(places) and (write.deferred or points.graph.runs_after(write.node, point)):
                yield write

    def writes_of_callers(self, node: ast.expr, point: ast.AST) -> Iterator[Write]:
        """The writes after `point` that may change what `node` evaluates to, in scopes that call its own.

        Left out are those of code that isn't known to anything at all.
        """
        places = self.points_to(node).of(node)
        level = [(self.program.function_of(node), places | self.points_to(node).cells.load(places, "data"))]
        seen = set[Function]()
        while level:
            function, places = level.pop()
            if function is None or function in seen:
                continue
            seen.add(function)
            for site in self.program.call_sites(function):
                points = self.points_to(site)
                found = points.passed(site, function, places)
                level.append((self.program.function_of(site), found))
                for write in points.writes:
                    is_later = write.deferred or points.graph.runs_after(write.node, point)
                    if is_later and write.to.origin is not Origin.ANYWHERE and write.reaches(found):
                        yield write

    def writes_by_other_parameters(self, node: ast.expr) -> Iterator[Write]:
        """The writes to `node`, or a part of it, if unknown callers give one tensor for two parameters."""
        points = self.points_to(node)
        scope = points.graph.scope
        if not isinstance(scope, FUNCTIONS) or self.program.get(Sharing).has_all_callers(scope):
            return
        given = {Location(Origin.PARAMETER, each) for each in parameters_of(scope) if each.arg not in ("self", "cls")}
        if not given.isdisjoint(points.of(node)):
            for write in points.writes:
                if write.to in given and not write.attribute and not write.deep:
                    yield write

    def summary(self, function: Function) -> MemorySummary:
        if function in self._active:
            return self._of_recursion(function)
        if len(self._active) > _DEEPEST:
            return self._of_unknown(function)
        if function not in self._summaries:
            points = self.points_of(function)
            self._summaries[function] = points.summary() if points.is_known else self._of_unknown(function)
        return self._summaries[function]

    def exported(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[ParameterEffect, ...] | None:
        """What a call of a function of the module does with its arguments; None where it may do anything else.

        That is, where the module may call something else by its name, where it writes to, keeps or returns what is no
        argument, or keeps one, and where it hands out a default, which all calls share.
        """
        is_plain = isinstance(function, ast.FunctionDef) and self.program.definition_around(function) is None
        if function.decorator_list or not is_plain:
            return None
        bindings = self.graph(self.program.tree).bindings.get(function.name, [])
        if [each.node for each in bindings] != [function]:
            return None
        summary = self.summary(function)
        given = [*summary.returns, *summary.holds]
        if summary.keeps or summary.is_generator:
            return None
        written = {each.to.root for each in summary.writes if not each.attribute or each.to.origin is Origin.PARAMETER}
        returned = {each.root for each in given if each.is_outside}
        parameters = parameters_of(function)
        kept = {each for each in parameters if each.arg in defaults_of(function)}
        kept = {each for each in kept if not isinstance(defaults_of(function)[each.arg], ast.Constant)}
        if any(each.deferred for each in summary.writes) or not written | returned <= {*parameters} - kept:
            return None
        stars = {function.args.vararg: "*", function.args.kwarg: "**"}
        found = [ParameterEffect(f"{stars.get(each, '')}{each.arg}", each in written, each in returned)
                 for each in parameters]  # fmt: skip
        alone = len(function.args.posonlyargs) + len(function.args.args)
        return (*found[:alone], ParameterEffect("*"), *found[alone:])

    def points_of(self, scope: Scope) -> PointsTo:
        if scope not in self._points:
            self._active.add(scope)
            self._points[scope] = self.analysis(self.program, self._flow.graph_of(scope), self.summary)
            self._active.remove(scope)
        return self._points[scope]

    def _of_unknown(self, function: Function) -> MemorySummary:
        """A function of which nothing is known: it may write to anything, and return it."""
        summary = self._of_recursion(function)
        return replace(summary, writes=summary.writes | {Write(function, ANYWHERE, deep=True)})

    def _of_recursion(self, function: Function) -> MemorySummary:
        """One that may write to all that it is given, and return it; what it does to others, its own analysis finds."""
        places = frozenset(Location(Origin.PARAMETER, each) for each in parameters_of(function))
        writes = frozenset(Write(function, each, deep=True) for each in places)
        return MemorySummary(places | {ANYWHERE, made(function)}, places, writes)
