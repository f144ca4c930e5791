"""Whether a view could stand for a copy: no write to what is copied may come while the copy is still read."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Graph
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.hooks import registers_hooks
from perflint.analysis.memory.locations import Write, made
from perflint.analysis.memory.roles import Reading


def may_show_writes(program: Program, copy: ast.Call, source: ast.expr, reading: Reading, *, backward: bool) -> bool:
    """May a view of `source` in the place of `copy` show a write, by any alias, that the copy does not?

    `backward`: the copy, or what is computed from it, may be kept for gradients, so that any later write counts.
    """
    memory = program.get(Memory)
    points, graph = memory.points_to(copy), memory.graph(copy)
    if registers_hooks(program) and any(each.path for each in points.of(source)):
        return True
    if any(write.reaches([made(copy)]) and not write.deep for write in points.writes):
        return True  # by an alias of the copy itself
    writes = list(memory.writes_after(source, copy))
    if writes and (backward or _is_carried(memory, copy)):
        return True
    if any(_is_read_behind(graph, copy, write, reading) for write in writes):
        return True
    return _is_written_elsewhere(program, memory, copy, reading)


def _is_written_elsewhere(program: Program, memory: Memory, copy: ast.Call, reading: Reading) -> bool:
    """May another function, which reads the copy, write to its source: to anything that it did not make itself?"""
    readers = {consumer.node: program.function_of(consumer.node) for consumer in reading.consumers}
    return any(
        write.to.is_outside and not write.attribute and write.node is not node
        for node, function in readers.items()
        if function is not program.function_of(copy)
        for write in memory.points_to(node).writes
    )


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
