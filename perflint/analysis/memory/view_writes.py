"""The writes to what is copied that may come while the copy is still read, so that no view can stand for it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from perflint import torch_ops
from perflint.analysis.autograd.found import Fate
from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Graph
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.hooks import registers_hooks
from perflint.analysis.memory.locations import Locations, Write, made
from perflint.analysis.memory.python import OPERATORS
from perflint.analysis.memory.roles import Consumer, Reading
from perflint.syntax.walk import Function


def shown_writes(
    program: Program, copy: ast.Call, source: ast.expr, reading: Reading, *, backward: bool
) -> Iterator[Write]:
    """The writes that a view of `source` in the place of `copy` may show, by any alias, and the copy does not.

    `backward`: the copy, or what is computed from it, may be kept for gradients, so that any later write counts.
    """
    memory = program.get(Memory)
    points, graph = memory.points_to(copy), memory.graph(copy)
    if registers_hooks(program):
        yield from (Write(copy, each) for each in points.of(source) if each.path)
    by_alias = (write for write in points.writes if write.reaches([made(copy)]))
    yield from (write for write in by_alias if write.deferred or not write.deep)
    kept = [each.node for each in reading.consumers if backward and not _is_linear(program, each)]
    any_counts = _is_carried(memory, copy)
    for write in memory.writes_after(source, copy):
        is_kept = bool(kept) and (write.is_in_sight or _is_differentiated_behind(program, graph, copy, write, kept))
        if any_counts or is_kept or _is_read_behind(graph, copy, write, reading):
            yield write
    for write in memory.writes_by_other_parameters(source):
        readers = [consumer for consumer in reading.consumers if consumer.node is not write.node]
        if _is_read_behind(graph, copy, write, replace(reading, consumers=tuple(readers))):
            yield replace(write, deferred=True)
    yield from _writes_elsewhere(program, memory, copy, reading)
    function = program.function_of(copy)
    if function is not None and kept:
        yield from _writes_before_backward(memory, function, points.of(source), {function})
    if function is not None and made(copy) in points.returned():
        yield from _writes_of_callers(memory, function, points.of(source), reading, set())


def _is_linear(program: Program, consumer: Consumer) -> bool:
    """Does autograd keep nothing of the operand of a consumer?"""
    node = consumer.node
    if isinstance(node, ast.BinOp | ast.AugAssign):
        operation = torch_ops.of_method(f"__{OPERATORS[type(node.op)]}__")
    elif isinstance(node, ast.Call):
        name = program.qualified(node.func)
        operation = torch_ops.of_function(name) if name else torch_ops.of_method(getattr(node.func, "attr", ""))
    elif isinstance(node, ast.Subscript):
        return consumer.operand is node.value or isinstance(node.ctx, ast.Store)
    else:
        return isinstance(node, ast.Compare)
    return operation is not None and operation.does("linear")


def _is_differentiated_behind(
    program: Program, graph: Graph, point: ast.AST, write: Write, kept: Iterable[ast.AST]
) -> bool:
    """May a backward pass through `kept`, which runs at `point`, come once the write has run?"""
    uses = [use for node in kept for use in program.graph_uses(node)]
    return any(
        write.is_in_sight if use.fate is not Fate.DIFFERENTIATED
        else use.node in graph.places and graph.reaches(write.node, use.node, avoiding=point)
        for use in uses
    )  # fmt: skip


def _writes_before_backward(
    memory: Memory, function: Function, places: Locations, seen: set[Function]
) -> Iterator[Write]:
    """The writes to `places` of those who call `function` before they differentiate what that gives."""
    for site in memory.program.call_sites(function):
        points, around = memory.points_to(site), memory.program.function_of(site)
        if not isinstance(site, ast.Call) or around in seen:
            continue
        found = points.passed(site, function, places)
        for write in points.writes:
            is_later = write.node is not site and points.graph.runs_after(write.node, site) and write.reaches(found)
            if is_later and _is_differentiated_behind(memory.program, points.graph, site, write, [site]):
                yield replace(write, deferred=True)
        if around is not None:
            yield from _writes_before_backward(memory, around, found, seen | {around})


def _writes_of_callers(
    memory: Memory, function: Function, places: Locations, reading: Reading, seen: set[Function]
) -> Iterator[Write]:
    """The writes to `places` of those who call `function`, which returns the copy, while they may read it."""
    seen.add(function)
    for site in memory.program.call_sites(function):
        points, graph = memory.points_to(site), memory.graph(site)
        around = memory.program.function_of(site)
        if not isinstance(site, ast.Call) or around is function:
            continue
        found = points.passed(site, function, places)
        any_counts = _is_carried(memory, site)
        for write in points.writes:
            is_later = write.deferred or (write.node is not site and graph.runs_after(write.node, site))
            if is_later and write.reaches(found) and (any_counts or _is_read_behind(graph, site, write, reading)):
                yield write
        if around is not None and around not in seen and made(site) in points.returned():
            yield from _writes_of_callers(memory, around, found, reading, seen)


def _writes_elsewhere(program: Program, memory: Memory, copy: ast.Call, reading: Reading) -> Iterator[Write]:
    """The writes of other functions that read the copy, to what they did not make, such as its source."""
    readers = {consumer.node: program.function_of(consumer.node) for consumer in reading.consumers}
    for node, function in readers.items():
        if function is not program.function_of(copy):
            for write in memory.points_to(node).writes:
                if write.to.is_outside and not write.attribute and write.node is not node:
                    yield replace(write, deferred=True)


def _is_carried(memory: Memory, copy: ast.Call) -> bool:
    """May an iteration of a loop around the copy find it as the one before left it?"""
    points, graph, own = memory.points_to(copy), memory.graph(copy), made(copy)
    loops = [node for node in graph.regions if graph.is_within(copy, node)]
    if any(own in points.held(phi) for loop in loops for phi in graph.carried(loop)):
        return True
    holders = (place for (place, _), held in points.cells.held.items() if own in held)
    return any(
        place.is_outside or not (isinstance(place.root, ast.AST) and graph.is_within(place.root, loop))
        for place in holders
        for loop in loops
    )


def _is_read_behind(graph: Graph, copy: ast.Call, write: Write, reading: Reading) -> bool:
    """May the copy be read once the write has run, or by it?"""
    return write.deferred or any(
        consumer.node is write.node or graph.reaches(write.node, consumer.node, avoiding=copy)
        for consumer in reading.consumers
    )
