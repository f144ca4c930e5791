"""What one step of a loop hands to the next, and which of its names are seen behind the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.course import Course
from perflint.transforms.capture.results import Collected
from perflint.transforms.capture.written import in_place
from perflint.transforms.names import taken_around
from perflint.transforms.vectorize.scope import is_repeated

if TYPE_CHECKING:
    from perflint.analysis.program import Program


_ONLY_LOCAL = "and not handed from step to step: append it to a list that is stacked"


class Names:
    """The names of the function around a loop: those that the loop sets, and those that are read behind it.

    What a step writes to in place counts as set.
    """

    def __init__(self, program: Program, loop: PlainLoop) -> None:
        function = program.function_of(loop)
        if not isinstance(function, ast.FunctionDef):
            raise Blocked("it is in no plain function: put the loop into a `def`", loop)
        inside = set(own_nodes(loop))
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        self.taken = taken_around(program, loop)
        self.stored = {name for each in loop.body for name in set_by(program, each)}
        self.before = arguments | {node.id for each in _in_front(program, loop) for node in _stores(each)}
        self.behind = {node.id for node in names if node not in inside and _is_behind(program, node, loop)}
        _check_shared(program, function, self.stored)


def set_by(program: Program, statement: ast.stmt) -> set[str]:
    """The names that a statement binds, or to whose tensors it writes."""
    return {node.id for node in (*_stores(statement), *in_place(program, statement))}


def _check_shared(program: Program, function: ast.FunctionDef, stored: set[str]) -> None:
    """A name that functions inside read or set too is not the loop's to hand on: they know it by this function."""
    for node in ast.walk(function):
        names = set(node.names) if isinstance(node, ast.Global | ast.Nonlocal) else set()
        if isinstance(node, ast.Name) and program.function_of(node) is not function:
            names = {node.id}
        for name in sorted(stored & names):
            raise Blocked(
                f"`{name}`, which a step sets, is seen by other code at any time: give it that as an argument", node
            )


def _in_front(program: Program, loop: PlainLoop) -> Iterator[ast.stmt]:
    """The assignments that have run whenever the loop starts."""
    child: ast.stmt = loop
    while not isinstance(child, ast.FunctionDef):
        block = program.block_of(child)
        yield from (each for each in block[: block.index(child)] if isinstance(each, ast.Assign | ast.AnnAssign))
        parent = program.parent(child)
        if not isinstance(parent, ast.stmt):
            return
        child = parent


def _is_behind(program: Program, node: ast.Name, loop: PlainLoop) -> bool:
    """Is it read, or done away with, when the loop is over: further down, or anywhere if that may run later too?"""
    statement = program.statement_of(node)
    if isinstance(node.ctx, ast.Store) and not (isinstance(statement, ast.AugAssign) and statement.target is node):
        return False
    return is_repeated(program, loop) or node.lineno > (loop.end_lineno or loop.lineno)


def carried(program: Program, loop: PlainLoop, course: Course, found: Sequence[Collected], names: Names) -> list[str]:
    """The names that a step finds as the one before left them, in order; raises Blocked if graphs can't pass them."""
    gone = {each.name for each in found} | {course.index, course.counter}
    exposed = [name for name in _exposed(loop.body) if name in names.stored and name not in gone]
    if not exposed:
        raise Blocked("no step needs what the one before computed, as far as names tell", loop)
    for name in exposed:
        if name not in names.before:
            raise Blocked(f"`{name}` may not be set in front of the loop: give it a value there in any case", loop)
        if any(program.value(node).kind is Kind.NUMBER for node in _names(loop) if node.id == name):
            raise Blocked(
                f"`{name}` is counted on the host, and a replay would not count: use the number of the step",
                _first(loop.body, name),
            )
    if not course.counter and course.index in names.stored & names.behind:
        raise Blocked(
            f"`{course.index}`, which counts the steps, is set in them, and read after: use another name",
            _first(loop.body, course.index),
        )
    late = course.late(loop)
    skipped = {name for each in late for name in set_by(program, each)} - {each.name for each in found}
    for name in sorted((names.stored - set(exposed) - gone | skipped) & names.behind):
        reason = "by what the test skips in the last step: set it before the test" if name in skipped else _ONLY_LOCAL
        place = _first(late if name in skipped else loop.body, name)
        raise Blocked(f"`{name}` is read after the loop; it is set in each step {reason}", place)
    return exposed


def _first(body: list[ast.stmt], name: str) -> ast.AST:
    """Where statements set the name, or else use it."""
    found = [node for each in body for node in _names(each) if node.id == name]
    return next((node for node in found if isinstance(node.ctx, ast.Store)), found[0])


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
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return iter(())  # a name that is declared has no value yet
    return (each for each in _names(node) if isinstance(each.ctx, ast.Store))
