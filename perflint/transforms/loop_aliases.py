"""Blocks the rewriting of a loop whose tensors are written to through aliases that the rewriting doesn't follow."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.ir.graph import Definition, Graph
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import Location, Write
from perflint.analysis.memory.points_to import PointsTo
from perflint.analysis.memory.python import FILLS
from perflint.analysis.program import Program
from perflint.syntax.walk import PlainLoop
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.written import in_place

_COPY = "write to a copy, made by `.clone()`"


def check_aliases(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked where a step writes to what it did not make by another name, or a kept result is written to later.

    A rewritten loop gives the same values, but which of them share memory is another matter.
    """
    memory = program.get(Memory)
    points, graph = memory.points_to(loop), memory.graph(loop)
    if not points.is_known:
        raise Blocked("the function around the loop is too large for its aliases to be told apart", loop)
    held = frozenset().union(*points.cells.held.values())
    for write in points.writes:
        is_made = _is_made_in(graph, loop, write.to)
        if write.attribute:
            continue
        if graph.is_within(write.node, loop):
            if not (write.deep or is_made or _is_seen(program, points, graph, loop, write)):
                raise Blocked(f"a step writes through an alias to a tensor that it did not make: {_COPY}", write.node)
        elif is_made and write.to in held and (write.deferred or graph.runs_after(write.node, loop)):
            if _names_result(program, graph, loop, write):
                continue  # which each of the rewritings looks at itself
            raise Blocked(
                f"what a step made is kept, and written to in place when the loop is over: {_COPY}", write.node
            )


def _is_made_in(graph: Graph, loop: PlainLoop, place: Location) -> bool:
    return not place.is_outside and isinstance(place.root, ast.AST) and graph.is_within(place.root, loop)


def _is_seen(program: Program, points: PointsTo, graph: Graph, loop: PlainLoop, write: Write) -> bool:
    """Is it a write to a container, or in plain sight: to a variable that the step finds as it is?"""
    if not isinstance(write.node, ast.stmt | ast.expr) or _fills(write.node) or _is_container(write.to):
        return True
    for name in in_place(program, program.statement_of(write.node)):
        value = graph.value(name)
        is_bound_here = isinstance(value, Definition) and graph.is_within(value.node, loop)
        if write.to in points.of(name) and (not is_bound_here or isinstance(name.ctx, ast.Store)):
            return True
    return False


def _fills(node: ast.AST) -> bool:
    """Is it a call of a method that tensors don't have in place, such as `append`?"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    operation = torch_ops.of_method(node.func.attr)
    return (operation is None or not operation.writes) and node.func.attr in FILLS


def _is_container(place: Location) -> bool:
    root = place.root.left if isinstance(place.root, ast.BinOp) else place.root
    return isinstance(root, ast.List | ast.ListComp | ast.Dict | ast.DictComp | ast.Set | ast.SetComp)


def _names_result(program: Program, graph: Graph, loop: PlainLoop, write: Write) -> bool:
    """Is it a write to a variable that the loop itself binds, or to an item of one that it fills?"""
    if not isinstance(write.node, ast.stmt | ast.expr):
        return False
    names = in_place(program, program.statement_of(write.node))
    values = {value for name in names for value in graph.definitions(name) if isinstance(value, Definition)}
    uses = (use for value in values for use in value.uses)
    return any(graph.is_within(node, loop) for node in (*(value.node for value in values), *uses))
