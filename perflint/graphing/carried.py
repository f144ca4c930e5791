"""What one step of a loop hands to the next, and which of its names are seen behind the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.fixes.blocked import Blocked
from perflint.fixes.names import taken_around
from perflint.graphing.lists import StackedLists
from perflint.program.values import Kind
from perflint.program.walk import PlainLoop, own_nodes

if TYPE_CHECKING:
    from perflint.program import Program


class Names:
    """The names of the function around a loop: those that the loop stores, and those that are read behind it."""

    def __init__(self, program: Program, loop: ast.For) -> None:
        function = program.function_of(loop)
        if not isinstance(function, ast.FunctionDef):
            raise Blocked("it is in no plain function", loop)
        inside = set(own_nodes(loop))
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        self.taken = taken_around(program, loop)
        self.stored = {node.id for node in names if node in inside and isinstance(node.ctx, ast.Store)}
        self.before = arguments | {node.id for each in _in_front(program, loop) for node in _stores(each)}
        self.behind = {node.id for node in names if node not in inside and _is_behind(program, node, loop)}


def _in_front(program: Program, loop: ast.For) -> Iterator[ast.stmt]:
    """The assignments that have run whenever the loop starts."""
    child: ast.stmt = loop
    while not isinstance(child, ast.FunctionDef):
        block = program.block_of(child)
        yield from (each for each in block[: block.index(child)] if isinstance(each, ast.Assign | ast.AnnAssign))
        parent = program.parent(child)
        if not isinstance(parent, ast.stmt):
            return
        child = parent


def _is_behind(program: Program, node: ast.Name, loop: ast.For) -> bool:
    """Is it read when the loop is over: further down, or anywhere if a loop around starts it again?"""
    if not isinstance(node.ctx, ast.Load):
        return False
    again = any(isinstance(each, PlainLoop) for each in program.ancestors(loop))
    return again or node.lineno > (loop.end_lineno or loop.lineno)


def carried(program: Program, loop: ast.For, end: ast.If, lists: StackedLists, names: Names) -> list[str]:
    """The names that a step finds as the one before left them, in order; raises Blocked if graphs can't pass them."""
    gone = {each.id for append in lists.appends for each in _names(append)} & set(lists.names)
    index = {node.id for node in _names(loop.target)}
    exposed = [name for name in _exposed(loop.body) if name in names.stored and name not in gone | index]
    if not exposed:
        raise Blocked("no state is carried by name", loop)
    flow = program.time_loop(loop)
    growing = {each.name for each in flow.flow.collected if each.how == "cat"} if flow else set()
    for name in exposed:
        if name not in names.before:
            raise Blocked(f"`{name}` may not be set in front of the loop", loop)
        if name in growing:
            raise Blocked(f"`{name}` grows from step to step", loop)
        if any(program.value(node).kind is Kind.NUMBER for node in _names(loop) if node.id == name):
            raise Blocked(f"`{name}` is counted on the host", loop)
    late = {node.id for each in loop.body[loop.body.index(end) + 1 :] for node in _stores(each)}
    for name in sorted((names.stored | index) & names.behind - set(exposed) | late & names.behind):
        raise Blocked(f"`{name}` is read after the loop", loop)
    if late & {node.id for node in _names(end.test)} or late & set(lists.values):
        raise Blocked("what the test reads is set again after it", end)
    return exposed


def _exposed(body: list[ast.stmt]) -> list[str]:
    """The names that a step may read before it has set them, in the order in which they are read."""
    found: dict[str, None] = {}
    definite: set[str] = set()
    for statement in body:
        reads = [node.id for node in _names(statement) if isinstance(node.ctx, ast.Load)]
        if isinstance(statement, ast.AugAssign):
            reads += [node.id for node in _names(statement.target)]
        found.update(dict.fromkeys(name for name in reads if name not in definite))
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            definite |= {node.id for node in _stores(statement)}
        elif not isinstance(statement, ast.Expr | ast.AugAssign):
            kept = (node.id for node in _stores(statement))
            found.update(dict.fromkeys(name for name in kept if name not in definite))
    return list(found)


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in own_nodes(node) if isinstance(each, ast.Name))


def _stores(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in _names(node) if isinstance(each.ctx, ast.Store))
