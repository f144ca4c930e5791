"""Finds where a policy acts: the statements whose results decide what an environment is told to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Value, sources_of
from perflint.analysis.program import Effect, GradMode, Program
from perflint.syntax.walk import LOOPS, own_nodes, reachable
from perflint.transforms.capture.step_obstacles import is_model


def decisions(program: Program, step: ast.Call) -> Iterator[ast.Call]:
    """The calls that run models, record nothing, and compute what `step` gives an environment in the same loop."""
    graph = program.get(Flow).graph(step)
    loop = next((each for each in program.ancestors(step) if isinstance(each, LOOPS)), None)

    def computed_of(node: ast.AST) -> list[Value]:
        names = (each for each in own_nodes(node) if isinstance(each, ast.Name))
        return [value for name in names for value in graph.definitions(name)]

    def before(value: Value) -> list[Value]:
        if not isinstance(value, Definition):
            return []
        given = computed_of(value.source) if value.source is not None else []
        return [*given, *(sources_of(value.updates) if value.updates is not None else ())]

    values = reachable([each for given in step.args for each in computed_of(given)], before)
    names = [each.node for each in values if isinstance(each, Definition) and isinstance(each.node, ast.Name)]
    for inner in dict.fromkeys(map(program.statement_of, names)):
        if loop is None or not _is_in(program, inner, loop) or program.grad_mode(inner) is not GradMode.OFF:
            continue
        calls = (each for each in own_nodes(inner) if isinstance(each, ast.Call))
        runs = (each for each in calls if program.effects(each, Effect.RUNS_MODULE) or is_model(program, each.func))
        yield from islice(runs, 1)


def _is_in(program: Program, statement: ast.stmt, loop: ast.AST) -> bool:
    return next((each for each in program.ancestors(statement) if isinstance(each, LOOPS)), None) is loop
