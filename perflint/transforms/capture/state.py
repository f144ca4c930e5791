"""The state of a loop: what a step finds as the one before left it, what it writes to, and what is read after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.call_graph import CallGraph
from perflint.analysis.ir.graph import Definition, Outer, Value, sources_of
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.locations import Locations
from perflint.analysis.program import Program
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.aliases import ELSEWHERE, aliases, names_of, written_names
from perflint.transforms.blocked import Blocked, shown
from perflint.transforms.capture.calls import entry_of
from perflint.transforms.capture.course import Course
from perflint.transforms.capture.results import Collected
from perflint.transforms.names import taken_around

_ONLY_LOCAL = "and not handed from step to step: append it to a list that is stacked"
_ROWS = 2  # axes of a tensor of which steps fill the columns, such as tokens
_LISTED = "append to a list, and stack that"
_COPY = "made by `.clone()` before the loop"


class State:
    """The variables of the function around a loop, by what the loop does with them; raises Blocked.

    `stored` are those that a step binds, or to whose tensors it writes; `written` are the names in each statement by
    which it writes to tensors in place.
    """

    def __init__(self, program: Program, loop: PlainLoop, course: Course, found: Sequence[Collected]) -> None:
        if not isinstance(program.function_of(loop), ast.FunctionDef):
            raise Blocked("it is in no plain function: put the loop into a `def`", loop)
        self._program, self._loop, self._course = program, loop, course
        self._collected = {each.name: each.statement for each in found}
        self._graph = graph = program.get(Memory).graph(loop)
        self.taken = taken_around(program, loop)
        self.written = {each: list(written_names(program, each)) for each in loop.body}
        self.stored = set[str]().union(*map(self.set_by, loop.body))
        for name in sorted(self.stored & (graph.shared | graph.captured.keys())):
            reason = "which a step sets, is seen by other code at any time: give it that as an argument"
            raise Blocked(f"`{name}`, {reason}", next(iter(graph.captured.get(name, ())), loop))

    def set_by(self, statement: ast.stmt) -> set[str]:
        """The names that a statement of the loop binds, or to whose tensors it writes."""
        bound = (node for node in _names_in(statement) if _is_store(node) and node in self._graph.values)
        return {name.id for name in (*self.written[statement], *bound)}

    @cached_property
    def live_out(self) -> set[str]:
        """The variables that are live at the exit of the loop: read, or deleted, as it left them."""
        graph, loop = self._graph, self._loop
        written = {name.id for names in self.written.values() for name in names}
        found = graph.live_out(loop) | (written if graph.regions[loop].outer is not None else set())
        inside = set(own_nodes(loop))
        for node in (each for each in graph.places if isinstance(each, ast.Name) and each not in inside):
            is_kept = isinstance(node.ctx, ast.Del) or (node.id in written and graph.read(node) is not None)
            found.update([node.id] if is_kept and graph.runs_after(node, loop) else [])
        return found

    @cached_property
    def carried(self) -> list[str]:
        """The names that a step finds as the one before left them, in order; raises Blocked if graphs can't pass them.

        Those in which steps count are left out, and those of what they collect.
        """
        body, loop, course = self._loop.body, self._loop, self._course
        gone = {*self._collected, course.index, course.counter}
        exposed = {name: values for name, values in self._upward_exposed().items() if name not in gone}
        if not exposed:
            raise Blocked("no step needs what the one before computed, as far as names tell", loop)
        for name, entering in exposed.items():
            if any(isinstance(each, Outer) for value in entering for each in sources_of(value)):
                raise Blocked(f"`{name}` may not be set before the loop: give it a value there in any case", loop)
            if any(self._program.value(node).kind is Kind.NUMBER for node in _names_in(loop) if node.id == name):
                reason = "is counted on the host, and a replay would not count: use the number of the step"
                raise Blocked(f"`{name}` {reason}", _first_mention(body, name))
        if not course.counter and course.index in self.stored & self.live_out:
            reason = "which counts the steps, is set in them, and read after: use another name"
            raise Blocked(f"`{course.index}`, {reason}", _first_mention(body, course.index))
        late = course.late(loop)
        skipped = {name for each in late for name in self.set_by(each)} - self._collected.keys()
        for name in sorted((self.stored - exposed.keys() - gone | skipped) & self.live_out):
            reason = (
                "by what the test skips in the last step: set it before the test" if name in skipped else _ONLY_LOCAL
            )
            place = _first_mention(late if name in skipped else body, name)
            raise Blocked(f"`{name}` is read after the loop; it is set in each step {reason}", place)
        return list(exposed)

    def _upward_exposed(self) -> dict[str, list[Value]]:
        """The upward-exposed variables of a step, which it may read as the one before left them, by initial values."""
        graph, loop = self._graph, self._loop
        region = graph.regions[loop]
        reads = [name for each in loop.body for name in sorted(_names_in(each), key=_is_store) if name in graph.values]
        found = {
            name.id: [value] for each in self.written.values() for name in each if (value := self._value_on_entry(name))
        }
        values = set(map(graph.read, reads))
        for phi in graph.phis.get(region.header, []):
            if phi in values or any(user is not phi and user.block in region.blocks for user in phi.users):
                found[phi.name] = graph.initial_values(loop, phi)
        return {name.id: found[name.id] for name in reads if name.id in found}

    def _value_on_entry(self, name: ast.Name) -> Value | None:
        """The value of the variable there, unless the step has bound it by then."""
        value = self._graph.read(name)
        return None if isinstance(value, Definition) and self._graph.is_within(value.node, self._loop) else value

    @cached_property
    def copied(self) -> list[str]:
        """The names that a step writes to as the step before left them, in order, but for what it collects.

        Such a step may work on a copy instead, if nobody else knows the tensor; raises Blocked if somebody may.
        """
        found: dict[str, None] = {}
        for statement, names in self.written.items():
            for name in names if statement not in self._collected.values() else ():
                if self._value_on_entry(name) is not None:
                    self._check_own(name)
                    self._check_small(name)
                    found[name.id] = None
        return list(found)

    def memory_of(self, names: Sequence[str]) -> Locations:
        """What the variables may hold at any time."""
        return frozenset().union(*map(self._program.get(Memory).points_to(self._loop).outer, names))

    def _definitions(self, name: ast.Name) -> list[Definition]:
        """What gives the variable a value, anywhere in the function."""
        values = (each for each in self._graph.values.values() if isinstance(each, Definition))
        return [each for each in dict.fromkeys(values) if each.name == name.id and each.updates is None]

    def _check_own(self, name: ast.Name) -> None:
        """Raise Blocked where somebody else may know the tensor that a step writes to."""
        text, made = f"`{name.id}`", self._definitions(name)
        if any(isinstance(each.node, ast.arg) for each in made):
            raise Blocked(
                f"{text} may be the caller's, who would see what is written to it: write to a copy, {_COPY}", name
            )
        if not made:
            raise Blocked(
                f"{text} is written to in place, and belongs to the code around: write to a copy, {_COPY}", name
            )
        if any(self._program.value(each.node).kind is not Kind.TENSOR for each in made):
            raise Blocked(f"{text} is changed in place, and is not known to be a tensor from the start", name)
        places = self.memory_of([name.id])
        if any(place.is_outside for place in places):
            raise Blocked(
                f"{text} is written to in place, and may be what others know as well: write to a copy, {_COPY}", name
            )
        if others := sorted(aliases(self._program, name, places) - {name.id}):
            shared = "what is kept elsewhere" if ELSEWHERE in others else f"`{others[0]}`"
            raise Blocked(
                f"{text} is written to in place, and {shared} may share its memory: write to a copy, {_COPY}", name
            )

    def _check_small(self, name: ast.Name) -> None:
        """Raise Blocked where steps fill a tensor one after the other, which is too large to be copied in each."""
        around = self._program.parent(name)
        parts = own_nodes(around.slice) if isinstance(around, ast.Subscript) else ()
        if any(isinstance(part, ast.Name) and self._program.value(part).kind is Kind.NUMBER for part in parts):
            shapes = self._program.get(Shapes)
            given = [each.given for each in self._definitions(name)]
            ranks = [None if each is None else shapes.shape(each).rank for each in given]
            if any(rank is None or rank > _ROWS for rank in ranks):
                reason = "which is filled step by step, may be too large to copy in each"
                raise Blocked(f"`{name.id}`, {reason}: {_LISTED}", name)

    def check_collected(self) -> None:
        """Raise Blocked where a step finds what it collects under another name, which is filled after the loop."""
        points = self._program.get(Memory).points_to(self._loop)
        lists = {place for place in self.memory_of([*self._collected]) if not place.is_outside}
        for node in _names_in(self._loop):
            if node.id not in self._collected and not lists.isdisjoint(points.cells.reach(points.of(node))):
                raise Blocked(f"`{node.id}` may hold what the steps collect: read it after the loop", node)

    def check_later_writes(self) -> None:
        """Raise Blocked if what the loop leaves by two names, or collects, is written to later.

        The one name would show what was written by the other; results that are copied apart would not.
        """
        graph, loop, collected = self._graph, self._loop, self._collected.keys()
        points = self._program.get(Memory).points_to(loop)
        for write in [*points.writes]:
            if write.attribute or graph.is_within(write.node, loop) or not graph.runs_after(write.node, loop):
                continue
            for name in names_of(self._program, points, write, called=True):
                known = aliases(self._program, loop, frozenset({write.to})) | {name.id}
                if known & (self.stored | collected) and (others := known & (self.live_out | collected) - {name.id}):
                    shared = f"`{min(others)}` may share its memory"
                    raise Blocked(f"`{name.id}` may be written to in place when the loop is over, and {shared}", name)

    def check_skipped(self) -> None:
        """Raise Blocked where what the last step skips, after the test, leaves more than values that nobody reads."""
        program, course = self._program, self._course
        points = program.get(Memory).points_to(self._loop)
        seen = {*self._collected, *(node.id for node in _names_in(course.end.test))}
        for late in course.late(self._loop):
            if late in course.counting:
                continue
            for node in own_nodes(late):
                if isinstance(node, ast.Name) and node.id == course.index:
                    raise Blocked(f"`{node.id}` may be too large after the test: use it before the test", node)
                if isinstance(node, ast.Call) and program.get(CallGraph).has(node, _draws):
                    reason = "draws random numbers, which the last step doesn't: draw them before the test"
                    raise Blocked(f"{shown(program, node)} {reason}", node)
            collecting = {late, getattr(late, "value", late)} if late in self._collected.values() else set[ast.AST]()
            nodes, known = set(own_nodes(late)) - collecting, points.cells.reach(self.memory_of([*seen]))
            for write in [*points.writes]:
                if isinstance(write.node, ast.expr | ast.stmt) and write.node in nodes and write.reaches(known):
                    reason = "after the test, which the last step doesn't: do that before the test"
                    raise Blocked(f"{shown(program, write.node)} writes in place {reason}", write.node)


def _draws(program: Program, call: ast.Call) -> bool:
    """May a call of what is not analysed draw random numbers?"""
    value = program.value(call.func)
    if value.kind is Kind.MODULE and program.callee(call) is None:
        kind = torch_ops.class_kind(value.name) if value.name else None
        may_hold = kind not in ("module", "rnn-cell", "loss") and "dropout" in program.text.lower()
        return kind == "dropout" or may_hold
    entry = entry_of(program, call)
    return entry is not None and entry.does("random")


def _first_mention(body: list[ast.stmt], name: str) -> ast.AST:
    """Where statements set the name, or else use it."""
    found = [node for each in body for node in _names_in(each) if node.id == name]
    return next(filter(_is_store, found), found[0])


def _names_in(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in own_nodes(node) if isinstance(each, ast.Name))


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
