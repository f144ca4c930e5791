"""Traces the data flow of one iteration of a loop over its SSA form, where writes in place make values too."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from functools import partial

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import lower, may_swallow
from perflint.analysis.ir.graph import Block, Definition, Phi, Value
from perflint.analysis.loops.calls import changed_paths
from perflint.analysis.loops.expressions import Expressions
from perflint.analysis.loops.flow import (
    CAT,
    INDEX,
    INVARIANT,
    MODEL,
    Header,
    Known,
    LoopFlow,
    State,
    Trace,
    from_before,
    merged,
)
from perflint.analysis.loops.header import WHOLE, proven_tensors
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import Loop, bindings_of, own_nodes, path_of, text_of, whole_of

_HEADS = {  # what a statement evaluates besides the blocks in it
    ast.For: ("iter",),
    ast.AsyncFor: ("iter",),
    ast.While: ("test",),
    ast.If: ("test",),
    ast.Assert: ("test",),
    ast.Return: ("value",),
    ast.withitem: ("context_expr",),
    ast.Match: ("subject",),
    ast.match_case: ("guard",),
}
_ROUNDS = 3  # over a body with loops inside, whose carried values go round


def loop_flow(program: Program, loop: Loop, header: Header) -> LoopFlow:
    changes = changed_paths(program, loop)
    graph = lower(loop, partial(may_swallow, program), lambda call: changes.get(call, ()))
    known, proven = Known(), proven_tensors(program, loop)
    for _ in range(_ROUNDS):
        body = Body(program, loop, header, graph, known)
        body.flow.proven = proven
        body.run()
        if not body.is_circular or body.known == known:
            break
        known = body.known
    return body.flow


class Body(Expressions):
    def run(self) -> None:
        for target, trace in self._given_by_header():
            self.targets[target] = trace
        if isinstance(self.loop, ast.While):
            self.trace(self.loop.test)
        for statement in self.loop.body:
            for node in own_nodes(statement):
                self._evaluate(node)
        self._finish()

    def _given_by_header(self) -> Iterator[tuple[ast.AST, Trace]]:
        for member in self.header.members:
            yield from ((part, INDEX) for part in ast.walk(member))
        for element in self.header.elements:
            self.add_slice(element.base, element.source, element.axis, 0, element.is_tensor)
            yield from ((part, Trace(slices=frozenset({element.base}))) for part in ast.walk(element.target))

    def _finish(self) -> None:
        flow = self.flow
        for name, phi in self.carried.items():
            left = [self._state(each, phi.block) for each in self.graph.back_edge_values(self.loop, phi)]
            if any(each.bound for each in left):
                flow.ends[name] = merged(each.trace for each in left)
        for name in sorted(self.written - self.carried.keys()):
            flow.ends[name] = merged(self._known(value).trace for value in self.graph.bindings[name][-1:])
        for name, slots in self.slots.items():
            bound = [flow.ends[name]] if name in self.carried and name in flow.ends else []
            flow.ends[name] = merged([*(trace for _, trace, _ in slots), *bound])
        grown = [each for each in flow.collected if each.how in ("append", "cat", "sum")]
        for name in {each.name for each in grown} & flow.reads.keys() - flow.ends.keys():
            own = [each for each in grown if each.name == name]
            kept = [from_before(name) for each in own if each.how == "sum"]
            flow.ends[name] = merged([*(each.trace for each in own), *kept])
        for name, places in self.places.items():
            is_whole = WHOLE in places or all(each.is_fixed for each in places)
            if not is_whole and name not in {*self.slots, *self.rows}:
                flow.painted.add(name)

    def _evaluate(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            parts = (part for target, _ in bindings_of(node) for part in ast.walk(target))
            made = [each for part in parts for each in self.made.get(part, ())]
            for each in made:
                self._known(each)
            if node.value is not None and not any(self._grown(each) for each in made):
                self.trace(node.value)
        elif isinstance(node, ast.Expr):
            self._expression(node.value)
        else:
            for name in _HEADS.get(type(node), ()):
                self.trace(getattr(node, name))

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Yield | ast.YieldFrom):
            if node.value is not None:
                self.collect("yield", "yield", node, self.trace(node.value))
        elif isinstance(node, ast.Call) and node in self.made and _keeps_quiet(node):
            for each in self.made[node]:
                self._known(each)
        else:
            self.trace(node)

    # -- values

    def state(self, value: Value, at: ast.AST) -> State:
        return self._state(value, self.graph.places[at][0])

    def _state(self, value: Value, at: Block) -> State:
        """Where what a variable holds in a block comes from; a loop inside has run at least once."""
        found = self._known(value)
        inner = self.inner.get(value.block) if isinstance(value, Phi) else None
        if inner is None or at in inner.blocks or not isinstance(value, Phi):
            return found
        parts = [(self._known(each), block in inner.blocks) for block, each in value.operands.items()]
        if any(each.bound for each, is_inside in parts if not is_inside):
            return found
        return _either([each for each, is_inside in parts if is_inside])

    def _known(self, value: Value) -> State:
        states = self.known.states
        if value in states:
            self.is_circular |= value in self.open
            return states[value]
        states[value] = self.before.states.get(value, State(INVARIANT))
        self.open.add(value)
        if isinstance(value, Phi):
            states[value] = self._joined(value)
        else:
            states[value] = self._bound(value) if isinstance(value, Definition) else State(INVARIANT)
        self.open.remove(value)
        return states[value]

    def _joined(self, phi: Phi) -> State:
        if self.carried.get(phi.name) is phi:
            return State(INDEX) if phi.name in self.header.indices else State(from_before(phi.name), carried=True)
        parts = [self._state(each, block) for block, each in phi.operands.items()]
        branch = self.graph.joins.get(phi.block)
        if branch is not None and len(parts) == 2 and parts[0].bound and parts[1].bound:
            self.meet(branch.test, parts[0].trace, parts[1].trace, phi.name)
        return _either(parts)

    def _bound(self, value: Definition) -> State:
        node = value.node
        if node in self.targets:
            return State(self.targets[node], True)
        if isinstance(node, ast.Call):
            return self._changed(value, node)
        if isinstance(node, ast.Subscript):
            return self._part(value, node, self.trace(value.source))
        if value.updates is not None:
            return self._augmented(value, value.updates)
        if grown := self._grown(value):
            how, parts = grown
            trace = merged(map(self.trace, parts))
            if value.name in self.header.indices:
                return State(INDEX)
            return self._grow(value, how, trace, State(from_before(value.name), carried=True))
        if value.name in self.header.indices and value.steps[:1] == ("each",):
            return State(INDEX)
        trace = self._given(value)
        is_total = any(each.name == value.name and each.how in ("sum", "cat") for each in self.flow.collected)
        is_total = is_total and not value.steps and (value.name in trace.carried or MODEL in trace.ops)
        if is_total and value.source is not None:
            self.note_read(value.name, value.source)  # what was added up goes on in another form
        return State(trace, True)

    def _given(self, value: Definition) -> Trace:
        trace = self.trace(value.source)
        if value.steps[:1] == ("each",) and value.source not in self.comprehended:
            return trace.through()
        return trace.part(next((step for step in value.steps if isinstance(step, int)), None))

    def _grown(self, value: Definition) -> tuple[str, list[ast.expr]] | None:
        """Is it `x = x + y + z` or `x = torch.cat([x, y])`: how it grows, and by what?"""
        source, path = value.source, value.name
        if isinstance(source, ast.BinOp) and isinstance(source.op, ast.Add | ast.Sub):
            parts, how = _addends(source), ""
        elif isinstance(source, ast.Call) and self._joins(source) and source.args:
            first = source.args[0]
            parts, how = first.elts if isinstance(first, ast.Tuple | ast.List) else [], "cat"
        else:
            return None
        old = next((part for part in parts if path_of(part) == path), None)
        if old is None or value.updates is not None or value.steps or self.is_bound(old):
            return None
        others = [part for part in parts if part is not old]
        return how or ("append" if self._is_list(others[0]) else "sum"), others

    def _joins(self, call: ast.Call) -> bool:
        operation = torch_ops.of_function(self.program.qualified(call.func))
        return operation is not None and operation.does("joining")

    def _is_list(self, node: ast.expr) -> bool:
        return isinstance(node, ast.List) or self.program.value(node).kind is Kind.SEQUENCE

    def _grow(self, value: Definition, how: str, trace: Trace, old: State) -> State:
        self.collect(value.name, how, self.program.statement_of(value.node), trace)
        if how == "append":
            return State(merged((old.trace, trace.through())), carried=True)
        return State(merged((trace, old.trace)).through(CAT if how == "cat" else "arithmetic"), True)

    def _augmented(self, value: Definition, updates: Value) -> State:
        """`x += y`."""
        old, trace = self.state(updates, value.node), self.trace(value.source)
        if old.bound:
            return State(merged((old.trace, trace)).through(), True, old.carried)
        if value.name in self.header.indices:
            self.collect(value.name, "sum", self.program.statement_of(value.node), trace)
            return State(INDEX)
        is_list = isinstance(value.node, ast.expr) and self.program.value(value.node).kind is Kind.SEQUENCE
        is_list = is_list or (value.source is not None and self._is_list(value.source))
        return self._grow(value, "append" if is_list else "sum", trace, old)

    def _part(self, value: Definition, target: ast.Subscript, trace: Trace) -> State:
        """`x[t] = y`, `x[t] += y` or `x[t].copy_(y)`."""
        old = self.state(value.updates, value.node) if value.updates is not None else State(INVARIANT)
        if isinstance(self.program.parent(target), ast.AugAssign) and not old.bound:
            self.collect(value.name, "sum", self.program.statement_of(target), trace)
            return old
        index = self.trace(self.step_index(target))
        self.note_chunks(target.slice)
        if self.program.value(target.slice).kind is Kind.SEQUENCE:
            self.rows.add(value.name)
        is_key = any(map(text_of, ast.walk(target.slice)))
        if index.is_index and not old.bound and not is_key:
            self.slots.setdefault(value.name, []).append((self.place(target), trace, self._is_certain(target)))
            self.collect(value.name, "slot", target, trace)
            return old
        given = Trace(index.slices, index.carried, index.ops)
        kept = old.trace._replace(kept=old.trace.kept - {value.name}) if old.bound else INVARIANT
        return State(merged((kept, trace, given)), True)

    def _is_certain(self, node: ast.AST) -> bool:
        """Is no test around but of the number of the iteration? Loops inside run at least once."""
        around = itertools.takewhile(lambda each: each is not self.loop, self.program.ancestors(node))
        tests = [each for each in around if isinstance(each, ast.If | ast.match_case)]
        return all(isinstance(each, ast.If) and self.tests_the_index(each.test) for each in tests)

    def _changed(self, value: Definition, call: ast.Call) -> State:
        """`x.append(y)`, `x.add_(y)`, or a call of an object that keeps a state called `value.name`."""
        assert isinstance(value.updates, Value) and isinstance(call.func, ast.Attribute | ast.Name)
        old, owner = self.state(value.updates, value.node), getattr(call.func, "value", call.func)
        if not (isinstance(call.func, ast.Attribute) and whole_of(owner) == value.name):
            return State(self.trace(call).through(), True)
        given = merged(map(self.trace, arguments_of(call)))
        if not torch_ops.writes_in_place(call.func.attr):
            return State(merged((old.trace, given if old.bound else given.through())), old.bound, old.carried)
        trace = given if _keeps_quiet(call) else self.trace(call)
        updates = torch_ops.does(call.func.attr, "updating")
        if updates and not old.bound:
            self.collect(value.name, "sum", call, trace)
            return old
        if isinstance(owner, ast.Subscript):
            return self._part(value, owner, trace)
        return State(merged((old.trace, trace)) if updates else trace, True)


def _addends(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [*_addends(node.left), node.right]
    return [node]


def _either(states: Sequence[State]) -> State:
    bound, carried = any(each.bound for each in states), any(each.carried for each in states)
    return State(merged(each.trace for each in states), bound, carried)


def _keeps_quiet(call: ast.Call) -> bool:
    """Does it change a tensor by what it is given alone, as `x.add_(y)` does?"""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return torch_ops.writes_in_place(name) and any(torch_ops.does(name, each) for each in ("updating", "replacing"))
