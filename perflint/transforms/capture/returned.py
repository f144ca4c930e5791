"""Which of a function's results are views of memory that others know, of which a graph gives copies."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.ir.graph import Definition, Phi, Value, updated_by
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.library import is_display
from perflint.analysis.memory.locations import made
from perflint.analysis.memory.roles import FILLS
from perflint.analysis.program import Program
from perflint.analysis.values.shapes import gathers
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import PlainLoop, children, own_nodes, reachable, receiver_of, returned_values
from perflint.transforms.capture.calls import entry_of
from perflint.transforms.rewrite import Blocked, shown

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
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
            for each in (receiver, *arguments_of(call)):
                if any(one.may_be(other) for one in places for other in self._points.of(each)):
                    yield _Given(each, view if self._is_container(each) else view or call)
