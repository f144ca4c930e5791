"""Memory of what captured code sets or returns: a graph gives copies, which share memory with nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.autograd.effects import runs_backward, steps_optimizer
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Phi, Value, sources_of, updated_by
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.library import is_display
from perflint.analysis.memory.locations import Location, Locations, Origin, made
from perflint.analysis.memory.roles import FILLS
from perflint.analysis.program import Program
from perflint.analysis.values.shapes import gathers
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import PlainLoop, children, own_nodes, reachable, receiver_of, returned_values, root_of
from perflint.transforms.aliases import is_made_in
from perflint.transforms.capture.calls import entry_of
from perflint.transforms.capture.late import is_of_weights
from perflint.transforms.capture.region import Region
from perflint.transforms.rewrite import Blocked, shown

_NO_MEMORY = (Kind.NUMBER, Kind.STRING, Kind.NONE)


class ResultMemory:
    """The memory of what a region gives."""

    def __init__(self, program: Program, region: Region) -> None:
        self.program, self.region = program, region
        self._graph = program.get(Flow).graph(region.scope)
        self._points = program.get(Memory).points_to(region.scope)
        self._is_strict = region.pure and not region.acts  # models give tensors of their own

    def check(self, name: ast.Name, others: Sequence[ast.Name], *, is_only_read: bool) -> None:
        """Raise Blocked where it matters that `name` and `others` hold copies after the region."""
        points, value = self._points, self._graph.values[name]
        places = points.held(value)
        is_filled = self.region.pure and self.program.value(name).kind in (Kind.SEQUENCE, Kind.MAPPING)
        made_here = frozenset(each for each in places if is_display(each) and each.root in self.region.nodes)
        containers = places if is_filled else made_here
        parts = points.cells.reach(containers) - containers
        if any(place.is_outside and place.origin is not Origin.ANYWHERE for place in parts):
            raise Blocked(f"`{name.id}` may hold views of what was there: copy them", name)
        is_view = self._is_view(name)
        is_given = is_view and any(map(self._was_there, places)) and not self.is_part_of_output(name, [value])
        is_given |= any(map(self._may_be_weights, self._sources(name))) or self._may_be_gradient(name)
        is_unknown = self._is_strict and not points.is_known and not self.is_own(name)
        if is_unknown or (is_given and not is_only_read):
            raise Blocked(f"`{name.id}` may be a view of what was there: copy it", name)
        is_shared = is_given or any(self._may_share(name, each) for each in others)
        made = [*places, *(each for each in parts if not each.is_outside)]
        for write in [*points.writes]:  # asking what is written may evaluate more of them
            may_matter = write.is_in_sight or (is_view and is_shared)
            if steps_optimizer(self.program, write.node):
                may_matter = is_given or self._steps_own(write.node)
            if may_matter and write.node not in self.region.nodes and write.reaches(made):
                raise Blocked(f"`{name.id}` may be written to behind the step: write to a copy there", write.node)

    def _steps_own(self, call: ast.AST) -> bool:
        optimizer = receiver_of(call)
        places = self._points.of(optimizer) if optimizer is not None else ()
        return any(is_made_in(self._graph, self.region.around, each) for each in places)

    def _was_there(self, place: Location) -> bool:
        is_made = place.root in self.region.nodes and not place.is_outside
        return not is_made and place.origin is not Origin.ANYWHERE

    def _may_share(self, name: ast.Name, beside: ast.Name) -> bool:
        one, other = self._graph.values[name], self._graph.values[beside]
        if not self._points.is_known:
            start: list[ast.expr] = [name]
            names = {each.id for each in reachable(start, self._bases) if isinstance(each, ast.Name)}
            return beside.id in names or not self.is_own(name)
        if not isinstance(one, Definition) or not isinstance(other, Definition) or one.source is not other.source:
            return _meet(self._reached(one), self._reached(other))
        call = one.source
        if not isinstance(call, ast.Call):
            return True
        callee, steps = self.program.callee(call), (one.steps, other.steps)
        if callee is None or not all(len(each) == 1 and isinstance(each[0], int) for each in steps):
            return entry_of(self.program, call) is None
        points, places = self.program.get(Memory).points_of(callee), (one.steps[0], other.steps[0])
        for given in returned_values(callee):
            parts = given.elts if isinstance(given, ast.Tuple) else []
            found = [points.of(parts[at]) for at in places if isinstance(at, int) and at < len(parts)]
            if len(found) < 2 or _meet(*found):
                return True
        return False

    def _reached(self, value: Value) -> Locations:
        places = self._points.held(value)
        return places | self._points.cells.reach(places)

    def is_own(self, node: ast.expr) -> bool:
        for each in reachable([node], self._bases):
            if isinstance(each, ast.Call):
                is_computed = not self._is_strict or entry_of(self.program, each) is not None
            else:
                is_computed = isinstance(each, ast.Name | ast.BinOp | ast.UnaryOp)
            if not is_computed or (each not in self.region.nodes and each is not node):
                return False
        return True

    def _bases(self, node: ast.expr) -> Iterator[ast.expr]:
        if isinstance(node, ast.Name):
            for value in self._graph.definitions(node):
                source = value.source if self.region.sets(value) and value.updates is None else None
                yield source or ast.Constant(None)
        elif isinstance(node, ast.Call):
            entry = entry_of(self.program, node)
            if entry is not None and entry.shares:
                is_method = isinstance(node.func, ast.Attribute) and not self.program.qualified(node.func)
                given = [node.func.value] if isinstance(node.func, ast.Attribute) and is_method else node.args
                tensors = [each for each in given if self.program.value(each).kind not in _NO_MEMORY]
                yield from tensors or [ast.Constant(None)]

    def _sources(self, name: ast.Name) -> Iterator[ast.expr]:
        start: list[ast.expr] = [name]
        return reachable(start, self._choices)

    def _is_view(self, name: ast.Name) -> bool:
        for source in self._sources(name):
            entry = entry_of(self.program, source) if isinstance(source, ast.Call) else None
            is_part = isinstance(source, ast.Subscript | ast.Attribute)
            shares = entry is not None and entry.shares
            if is_part or self._may_hand_back(source) or shares:
                return True
        return False

    def _may_hand_back(self, source: ast.expr | None) -> bool:
        if not isinstance(source, ast.Call) or entry_of(self.program, source) is not None:
            return False
        callee = self.program.value(source.func)
        is_of_container = callee.owner is not None and callee.owner.kind in (Kind.SEQUENCE, Kind.MAPPING)
        return self.program.callee(source) is not None or callee.kind is Kind.LIBRARY or is_of_container

    def _may_be_weights(self, source: ast.expr) -> bool:
        given = arguments_of(source) if isinstance(source, ast.Call) and self._may_hand_back(source) else ()
        return any(is_of_weights(self.program, each) for each in given)

    def _may_be_gradient(self, name: ast.Name) -> bool:
        """May a replay's copy take the place of a gradient, in whatever holds it?"""
        start: list[ast.AST] = [name]
        read = (each for each in reachable(start, self._may_be_in) if isinstance(each, ast.Attribute))
        return any(each.attr == "grad" and not self.program.qualified(each) for each in read)

    def _may_be_in(self, node: ast.AST) -> Sequence[ast.AST]:
        if isinstance(node, ast.Name):
            return self._choices(node)
        entry = entry_of(self.program, node) if isinstance(node, ast.Call) else None
        is_new = isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) or (entry is not None and not entry.shares)
        return [] if is_new else children(node)

    def _choices(self, node: ast.expr) -> Sequence[ast.expr]:
        if isinstance(node, ast.Name):
            is_read = isinstance(node.ctx, ast.Load)
            values = self._graph.definitions(node) if is_read else sources_of(self._graph.values[node])
            return [each.source for each in values if self.region.sets(each) and each.source is not None]
        if isinstance(node, ast.Call):
            entry = entry_of(self.program, node) if isinstance(node.func, ast.Attribute) else None
            return [node.func.value] if entry and entry.does("keeping") else []  # type: ignore[attr-defined]
        if isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr | ast.Tuple | ast.List):
            return [each for each in children(node) if isinstance(each, ast.expr)]
        return []

    def is_part_of_output(self, node: ast.expr, values: Sequence[Value]) -> bool:
        """Is it a part of a call's result, `model(x).loss`, that is differentiated?"""
        sources = [each.source if self.region.sets(each) else None for each in values]
        parts = [each for each in sources if isinstance(each, ast.Attribute | ast.Subscript)]
        calls = (each for each in self.region.nodes if isinstance(each, ast.Call) and runs_backward(self.program, each))
        names = {each.id for call in calls for each in ast.walk(call.func) if isinstance(each, ast.Name)}
        roots = [each for each in map(root_of, parts) if isinstance(each, ast.expr)]
        is_new = len(roots) == len(values) > 0 and all(map(self.is_own, roots))
        return is_new and getattr(node, "id", "") in names


def _meet(some: Locations, others: Locations) -> bool:
    return any(one.may_be(other) for one in some for other in others)


_DISPLAYS = ast.Tuple | ast.List | ast.Dict | ast.Set | ast.IfExp | ast.BoolOp | ast.NamedExpr | ast.Starred
_NEW = ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare | ast.Constant


class _Given(NamedTuple):
    """What an expression gives, as it is, or seen by the expression `view`."""

    node: ast.AST
    view: ast.expr | None = None


def check_returned(program: Program, loop: PlainLoop, function: ast.FunctionDef) -> None:
    """Raise Blocked where a function returns a view of memory that its caller, or another result, knows.

    A tensor returned twice, or given, is the same one behind a replay.
    """
    known: dict[ast.AST, ast.expr | None] = {}
    for node, view in _Results(program, loop, function).ends():
        is_outside = view is not None and not isinstance(node, _NEW)
        if is_outside or known.setdefault(node, view) is not view:
            seen = view or known[node]
            assert seen is not None
            does = "is returned as a view, and a graph gives copies: return a copy"
            raise Blocked(f"{shown(program, seen)} {does}", seen)


class _Results:
    """Walks back from what a function returns to what made it."""

    def __init__(self, program: Program, loop: PlainLoop, function: ast.FunctionDef) -> None:
        memory = program.get(Memory)
        self._program, self._loop, self._function = program, loop, function
        self._points, self._graph = memory.points_to(loop), memory.graph(loop)

    def ends(self) -> Iterator[_Given]:
        """What makes the result, or was there before, once as it is, and for each view of it."""
        start = [_Given(each) for each in returned_values(self._function)]
        return (each for each in reachable(start, self._before) if not any(True for _ in self._before(each)))

    def _before(self, given: _Given) -> Iterator[_Given]:
        node, view = given
        if isinstance(node, ast.Name):
            yield from (each for value in self._values(node) for each in self._bound(value, view))
        elif isinstance(node, _DISPLAYS):
            yield from (_Given(each, view) for each in children(node) if isinstance(each, ast.expr))
            yield from (_Given(each, view) for each in self._put_into(node))
        elif isinstance(node, ast.ListComp):
            yield _Given(node.elt, view)
        elif isinstance(node, ast.Subscript) and not gathers(self._program, node):
            yield _Given(node.value, view if self._is_container(node.value) else view or node)
        elif isinstance(node, ast.Attribute):
            attribute = torch_ops.of_attribute(node.attr)
            if attribute is not None and attribute.shares:
                yield _Given(node.value, view or node)
        elif isinstance(node, ast.Call):
            yield from self._called(node, view)

    def _bound(self, value: Value, view: ast.expr | None) -> Iterator[_Given]:
        if not isinstance(value, Definition):
            yield _Given(ast.Name(value.name), view)
        elif value.updates is not None:  # a tensor stays the same, and a list gets more items
            if isinstance(value.source, _DISPLAYS | ast.ListComp):
                yield _Given(value.source, view)
        elif value.source is None:
            yield _Given(value.node, view)
        else:
            is_part = bool(value.steps) and self._program.value(value.source).kind is Kind.TENSOR
            yield _Given(value.source, view or value.source if is_part else view)

    def _values(self, name: ast.Name) -> Iterator[Value]:
        value = self._graph.read(name)
        values = [value] if value is not None else []
        is_behind = not self._graph.is_within(name, self._loop)
        if isinstance(value, Phi) and is_behind and value in self._graph.carried(self._loop):
            values = self._graph.back_edge_values(self._loop, value)
        return (source for each in values for source in updated_by(each))

    def _is_container(self, node: ast.expr) -> bool:
        places = self._points.of(node)
        return bool(places) and all(map(is_display, places))

    def _put_into(self, display: ast.expr) -> Iterator[ast.expr]:
        place = made(display)
        for node in own_nodes(self._function):
            filled = receiver_of(node, *FILLS)
            if filled is not None and isinstance(node, ast.Call) and place in self._points.of(filled):
                yield from arguments_of(node)
            elif isinstance(node, ast.Assign):
                slots = (each for each in node.targets if isinstance(each, ast.Subscript))
                yield from (node.value for each in slots if place in self._points.of(each.value))

    def _called(self, call: ast.Call, view: ast.expr | None) -> Iterator[_Given]:
        entry = entry_of(self._program, call)
        if entry is not None:
            is_itself = entry.in_place or entry.does("cast") or entry.does("move")
            shared = (each for argument in (*entry.views, *entry.may_return) for each in argument.of(call))
            yield from (_Given(each, view if is_itself else view or call) for each in shared)
        else:
            places = self._points.cells.reach(self._points.of(call)) - {made(call)}
            for each in (receiver_of(call) or call.func, *arguments_of(call)):
                if any(one.may_be(other) for one in places for other in self._points.of(each)):
                    yield _Given(each, view if self._is_container(each) else view or call)
