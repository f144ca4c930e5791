"""Aliases of the memory that a piece of a program writes to, which rewriting a loop must not change."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perflint.analysis.autograd.effects import steps_optimizer
from perflint.analysis.ir.graph import Definition, Graph
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.library import is_library
from perflint.analysis.memory.locations import Location, Locations, Origin, Write
from perflint.analysis.memory.points_to import PointsTo
from perflint.analysis.memory.roles import FILLS
from perflint.analysis.program import Program
from perflint.analysis.values.operations import operation
from perflint.syntax.walk import FUNCTIONS, PlainLoop, own_nodes, receiver_of, root_of
from perflint.transforms.rewrite import Blocked

ELSEWHERE = "<elsewhere>"  # stands for all that is no name of the function
_COPY = "write to a copy, made by `.clone()`"


def is_own(program: Program, region: ast.AST, node: ast.expr) -> bool:
    points, graph = program.get(Memory).points_to(node), program.get(Memory).graph(node)
    carried = frozenset().union(*map(points.held, graph.carried(region)))
    values = graph.definitions(root_of(node))
    given = {part for value in values if isinstance(value, Definition) for part in (value.source, value.node)}
    return all(
        is_made_in(graph, region, place) and (place not in carried or place.root in given) for place in points.of(node)
    )


def is_made_in(graph: Graph, region: ast.AST, place: Location) -> bool:
    if place.is_outside or not isinstance(place.root, ast.AST):
        return False
    return isinstance(region, (*FUNCTIONS, ast.Module)) or graph.is_within(place.root, region)


def written_names(program: Program, part: ast.AST, *, filled: bool = False) -> Iterator[ast.Name]:
    """The names by which `part` writes in place to tensors, or parts of them, directly.

    If `filled`, also those of lists that are filled, and of what calls write to by any name.
    """
    points = program.get(Memory).points_to(part)
    nodes = set(own_nodes(part))
    writes = [each for each in [*points.writes] if each.node in nodes and not (each.attribute or each.deep)]
    for name in nodes if filled else ():
        if isinstance(name, ast.Name) and any(each.reaches(points.of(name)) for each in writes):
            yield name
    for write in () if filled else writes:
        yield from names_of(program, points, write)


def names_of(program: Program, points: PointsTo, write: Write, *, called: bool = False) -> Iterator[ast.Name]:
    """The names by which a statement writes to a tensor; if `called`, those given to calls as well.

    Not of methods that tensors lack, such as `append`.
    """
    node = write.node
    found = operation(program, node)
    if not isinstance(node, ast.stmt | ast.expr) or _fills(program, node):
        return
    parts: Sequence[ast.AST] = [program.statement_of(node)]
    if isinstance(node, ast.Call) and not called:
        parts = [each for argument in found.does.writes for each in argument.of(node)] if found is not None else []
    for name in (each for part in parts for each in own_nodes(part) if isinstance(each, ast.Name)):
        around = program.parent(name)
        is_read = isinstance(name.ctx, ast.Load) or (isinstance(around, ast.AugAssign) and around.target is name)
        is_part = isinstance(node, ast.AugAssign) and node.target is around and isinstance(around, ast.Subscript)
        if is_read and (write.to in points.of(name) or (is_part and write.to in points.items_of(name))):
            yield name


def aliases(program: Program, node: ast.AST, places: Locations) -> set[str]:
    """The names of these locations, at any time, in the function around `node`.

    ELSEWHERE is among them if something other than a name of the function may hold one.
    """
    points = program.get(Memory).points_to(node)
    if not points.is_known:
        return {ELSEWHERE, *points.names}
    holders = {place for (place, _), held in points.cells.held.items() if not places.isdisjoint(held)}
    found = {ELSEWHERE} if any(place.is_outside for place in (*places, *holders)) else set()
    for name in points.names:
        known = points.outer(name)
        if not holders.isdisjoint(known) or any(one.may_be(other) for one in known for other in places):
            found.add(name)
    return found


def check_aliases(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked where a step writes to memory of others by another name, or a kept result is written later.

    A rewritten loop gives the same values, but they may share other memory.
    """
    memory = program.get(Memory)
    points, graph = memory.points_to(loop), memory.graph(loop)
    if not points.is_known:
        raise Blocked("the function around the loop is too large for its aliases to be distinguished", loop)
    held = frozenset().union(*points.cells.held.values())
    kept = {place for place in held if is_made_in(graph, loop, place)}
    for write in [*points.writes]:
        if write.attribute or steps_weights(program, write):
            continue
        is_made = is_made_in(graph, loop, write.to)
        if graph.is_within(write.node, loop):
            is_library_call = isinstance(write.node, ast.Call) and is_library(program, write.node)
            if write.deep and is_library_call and not _fills(program, write.node):
                raise Blocked(
                    "a step gives a library a function that may write to its tensors: call it by itself", write.node
                )
            if not (write.deep or is_made or _is_seen(program, points, graph, loop, write)):
                raise Blocked(f"a step writes through an alias to a tensor that it did not make: {_COPY}", write.node)
        elif write.reaches(kept) and (write.deferred or graph.runs_after(write.node, loop)):
            if any(_is_of_loop(graph, loop, name) for name in names_of(program, points, write)):
                continue  # which each of the rewritings looks at itself
            raise Blocked(
                f"what a step made is kept, and written to in place when the loop is over: {_COPY}", write.node
            )


def steps_weights(program: Program, write: Write) -> bool:
    """Is it an optimizer's step that, as far as is known, writes to models' weights alone?"""
    return write.to.origin is Origin.ANYWHERE and steps_optimizer(program, write.node)


def _is_seen(program: Program, points: PointsTo, graph: Graph, loop: PlainLoop, write: Write) -> bool:
    if not isinstance(write.node, ast.stmt | ast.expr) or _fills(program, write.node) or _is_container(write.to):
        return True
    for name in names_of(program, points, write, called=True):
        value = graph.value(name)
        is_bound_here = isinstance(value, Definition) and graph.is_within(value.node, loop)
        if not is_bound_here or isinstance(name.ctx, ast.Store):
            return True
    return False


def _fills(program: Program, node: ast.AST) -> bool:
    if receiver_of(node, *FILLS) is None:
        return False
    found = operation(program, node)
    return found is None or not found.does.writes


def _is_container(place: Location) -> bool:
    root = place.root.left if isinstance(place.root, ast.BinOp) else place.root
    return isinstance(root, ast.List | ast.ListComp | ast.Dict | ast.DictComp | ast.Set | ast.SetComp)


def _is_of_loop(graph: Graph, loop: PlainLoop, name: ast.Name) -> bool:
    values = [value for value in graph.definitions(name) if isinstance(value, Definition)]
    return any(graph.is_within(node, loop) for value in values for node in (value.node, *value.uses))
