"""Traces the expressions of a loop body: names, steps of sequences, and calls."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import replace
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Definition, Graph, Value
from perflint.analysis.loops.calls import LISTS, calls_one_of, is_metadata, is_method_of_tensors, sort_of
from perflint.analysis.loops.flow import (
    ARITHMETIC,
    INDEX,
    INVARIANT,
    Call,
    Collected,
    Header,
    Known,
    LoopFlow,
    State,
    TimeSlice,
    Trace,
    from_before,
    is_forced,
    merged,
)
from perflint.analysis.loops.header import RANGES, WHOLE, Place, is_next, picks_one, place
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import (
    COMPREHENSIONS,
    Loop,
    elements_of,
    name_called,
    nodes_of_body,
    path_of,
    receiver_of,
    spans_an_axis,
    whole_of,
)


class Expressions(ABC):
    """Where each expression of one iteration comes from; `body.Body`, which extends this, knows of variables."""

    def __init__(self, program: Program, loop: Loop, header: Header, graph: Graph, before: Known) -> None:
        self.program = program
        self.loop = loop
        self.header = header
        self.graph = graph
        self.flow = LoopFlow()
        region = graph.regions[loop]
        self.carried = {phi.name: phi for phi in graph.phis.get(region.header, [])}
        self.inner = {each.header: each for each in graph.regions.values() if each is not region}
        self.targets: dict[ast.AST, Trace] = {}  # of the header: what they are given
        self.made: defaultdict[ast.AST, list[Definition]] = defaultdict(list)  # by what binds them
        self.written: set[str] = set()  # by the body
        self.places: dict[str, set[Place]] = {}  # by base: every place where the body writes it
        self.slots: dict[str, list[tuple[Place, Trace, bool]]] = {}  # by base: where it is written, what, and always?
        self.rows: set[str] = set()  # bases of which the loop replaces a list of rows, samples that go on
        self.comprehended: dict[ast.expr | None, ast.comprehension] = {}
        self.is_circular = False  # does a loop inside carry what depends on itself?
        self.known = Known()
        self.before = before
        self.open: set[Value | ast.expr] = set()
        self._note_writes()

    @cached_property
    def counters(self) -> set[str]:
        others = (*self.program.ancestors(self.loop), *nodes_of_body(self.loop))
        ranges = (each for each in others if isinstance(each, ast.For) and name_called(each.iter) in RANGES)
        return self.header.indices | {path_of(each.target) for each in ranges}

    def _note_writes(self) -> None:
        inside = dict.fromkeys(nodes_of_body(self.loop))
        self.comprehended = {node.iter: node for node in inside if isinstance(node, ast.comprehension)}
        for name, bindings in self.graph.bindings.items():
            for each in bindings:
                self.made[each.node].append(each)
                if each.node not in inside or each.source in self.comprehended:
                    continue
                self.written.add(name)
                if isinstance(each.node, ast.Name | ast.Attribute):
                    self.places.setdefault(name, set()).add(WHOLE)
                part = each.node.func if isinstance(each.node, ast.Call) else each.node
                if isinstance(part, ast.Attribute) and torch_ops.writes_in_place(part.attr):
                    part = part.value
                if isinstance(part, ast.Subscript):
                    self.places.setdefault(name, set()).add(self.place(part))

    @abstractmethod
    def state(self, value: Value, at: ast.AST) -> State:
        """Where what a variable holds at a node comes from."""

    def trace(self, node: ast.expr | None) -> Trace:
        if node is None or isinstance(node, (ast.Constant, ast.Lambda)):
            return INVARIANT
        if node in self.known.traces:
            self.is_circular |= node in self.open
            return self.known.traces[node]
        self.known.traces[node] = self.before.traces.get(node, INVARIANT)
        self.open.add(node)
        self.known.traces[node] = self._trace(node)
        self.open.remove(node)
        return self.known.traces[node]

    def _trace(self, node: ast.expr) -> Trace:
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._read(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.IfExp):
            self.trace(node.test)
            return self.meet(node.test, self.trace(node.body), self.trace(node.orelse), "")
        if isinstance(node, ast.NamedExpr):
            return self.trace(node.value)
        if isinstance(node, COMPREHENSIONS):
            for generator in node.generators:
                for test in generator.ifs:
                    self.trace(test)
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            parts += [each.iter for each in node.generators if isinstance(node, ast.ListComp)]
            return merged(map(self.trace, parts))
        inner = merged(self.trace(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        if isinstance(node, (ast.Tuple, ast.List, ast.Starred, ast.Await)):
            return inner
        return self._arithmetic(node, inner)

    def _arithmetic(self, node: ast.expr, parts: Trace) -> Trace:
        kind = self.program.value(node).kind
        is_tensor = kind is Kind.TENSOR or (kind is Kind.UNKNOWN and bool(parts.slices & self.flow.proven))
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) and is_tensor:
            if parts.varies and not any(isinstance(each, ast.List) for each in ast.iter_child_nodes(node)):
                self.flow.operations.append(node)
            operands = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
            if any(self.program.value(each).kind is not Kind.TENSOR and self._is_index(each) for each in operands):
                self.flow.index_as_data = True
            return parts.through(ARITHMETIC)
        return parts.through()

    # -- names

    def _read(self, node: ast.Name | ast.Attribute) -> Trace:
        if is_metadata(node):
            return INVARIANT
        value = self.graph.value(node)
        if value is None:
            return self.trace(node.value) if isinstance(node, ast.Attribute) else INVARIANT
        found = self.state(value, node)
        if found.carried and (not found.bound or self._is_bound_behind(value.name, node)):
            self.note_read(value.name, node)
        return found.trace

    def _is_bound_behind(self, name: str, node: ast.expr) -> bool:
        """Is what is read not yet what the iteration leaves?"""
        places = self.graph.places
        return any(places[each.node][1] > places[node][1] for each in self.graph.bindings[name])

    def note_read(self, name: str, node: ast.expr) -> None:
        self.flow.reads.setdefault(name, []).append(node)

    def is_bound(self, node: ast.expr) -> bool:
        return self._state_of(node).bound

    def _state_of(self, node: ast.expr) -> State:
        value = self.graph.value(node)
        return State(INVARIANT) if value is None else self.state(value, node)

    def _is_index(self, node: ast.expr) -> bool:
        return path_of(node) in self.header.indices

    def place(self, node: ast.Subscript) -> Place:
        return place(self.step_index(node), self.header.indices)

    def step_index(self, node: ast.Subscript) -> ast.expr:
        part: ast.expr = node
        while isinstance(part, ast.Subscript):
            if any(self._is_index(each) for each in ast.walk(part.slice) if isinstance(each, ast.Name)):
                return part.slice
            part = part.value
        return node.slice

    # -- subscripts

    def _subscript(self, node: ast.Subscript) -> Trace:
        index = self.trace(node.slice)
        base_path = path_of(node.value)
        points = [part for part in elements_of(node.slice) if not isinstance(part, ast.Slice)]
        point = merged(map(self.trace, points)) if points else index  # `x[:n, t]`: n says how many, not which
        plain = point.is_index and not point.carried and not point.slices
        own = any(self._is_index(part) for part in elements_of(node.slice)) and not index.carried
        if own or (plain and picks_one(node.slice, lambda part: self.trace(part).is_index)):
            step = self._step(node, base_path)
            if step is not None:
                return step
        if self._is_own_part(node, base_path):
            return INVARIANT
        if isinstance(node.slice, ast.Constant | ast.UnaryOp) and WHOLE not in self.places.get(base_path, {WHOLE}):
            self.flow.permuted.add(base_path)
        base = self.trace(node.value)
        if not base.varies:
            self.note_chunks(node.slice)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return base.part(node.slice.value)
        moved = base if isinstance(node.slice, ast.Slice) else base.through()
        return merged((moved, Trace(index.slices, index.carried, index.ops)))

    def _is_own_part(self, node: ast.Subscript, base: str) -> bool:
        """Is it the part that the element names, as `x[key]` is, where the loop writes no other?"""
        targets = {path_of(each) for each in (*(each.target for each in self.header.elements), *self.header.members)}
        key = path_of(node.slice)
        written = {each.text for each in self.places.get(base, ())}
        return key in targets - {""} and not self.is_bound(node.value) and written == {key}

    def note_chunks(self, index: ast.expr) -> None:
        for part in elements_of(index):
            if isinstance(part, ast.Slice) and part.lower and part.upper and not is_next(part.lower, part.upper):
                ends = [self.trace(part.lower), self.trace(part.upper)]
                self.flow.chunks |= all(end.is_index or end.slices or end.carried for end in ends)

    def add_slice(self, base: str, node: ast.expr, axis: int | None, offset: int | None, is_tensor: bool) -> Trace:
        self.flow.slices.append(TimeSlice(base, node, axis, offset, is_tensor))
        return Trace(slices=frozenset({base}))

    def _step(self, node: ast.Subscript, base_path: str) -> Trace | None:
        kind = self.program.value(node.value).kind
        if Kind.MODULE in (kind, self.program.value(node).kind):
            self.flow.members = True
            return INVARIANT
        if kind in (Kind.NUMPY, Kind.MAPPING, Kind.STRING, Kind.DATASET):
            return INVARIANT
        if base_path in self.slots:
            return self._written_step(node, base_path)
        if self._is_made_here(node.value) and not self._is_only_replaced(node):
            return None
        is_made = not isinstance(node.value, ast.Name | ast.Attribute) and self._part_of_fixed(node.value) is None
        if is_made and self.trace(node.value).varies:
            return None
        shown = spans_an_axis(node.slice) or base_path in self.flow.proven  # that it is no list
        is_tensor = kind is Kind.TENSOR or (kind in (Kind.UNKNOWN, Kind.METHOD) and shown)
        _, axis, offset = place(node.slice, self.header.indices)
        return self.add_slice(base_path or ast.unparse(node.value), node, axis, offset, is_tensor)

    def _is_made_here(self, node: ast.expr) -> bool:
        path = whole_of(node)
        while path and path not in self.graph.bindings:
            path = path.rpartition(".")[0]
        return bool(path)

    def _is_only_replaced(self, node: ast.Subscript) -> bool:
        whole = self._part_of_fixed(node.value) or node.value
        places = self.places.get(path_of(whole))
        here = place(node.slice, self.header.indices)
        return places is not None and not self.is_bound(whole) and all(each.is_same_step(here) for each in places)

    def _part_of_fixed(self, node: ast.expr) -> ast.expr | None:
        """Of `x[0]`, where 0 stands for what doesn't change in the loop, x."""
        is_fixed = isinstance(node, ast.Subscript) and bool(path_of(node.value)) and not self.trace(node.slice).varies
        return node.value if is_fixed and isinstance(node, ast.Subscript) else None

    def _written_step(self, node: ast.Subscript, base: str) -> Trace:
        picked = place(node.slice, self.header.indices)
        here = [each for each in self.slots[base] if each[0].is_same_step(picked)]
        if not here:
            if picked.offset is None:
                self.flow.permuted.add(base)
            self.note_read(base, node)
            return from_before(base)
        certain = [number for number, each in enumerate(here) if each[2]]
        written = merged(trace for _, trace, _ in here[certain[-1] if certain else 0 :])
        if certain:
            return written
        if written.carried:
            self.flow.forced.add(base)
        return merged((written, self.add_slice(base, node, picked.axis, picked.offset, True)))

    # -- calls

    def _call(self, node: ast.Call) -> Trace:
        if is_metadata(node):
            return self._length(node)
        sort = sort_of(self.program, node)
        arguments = [(position, value, self.trace(value)) for position, value in enumerate(node.args)]
        arguments += [(-1, keyword.value, self.trace(keyword.value)) for keyword in node.keywords]
        if arguments and not sort.launches and (grown := self._grown_by(node)):
            self.collect(grown, "append", node, merged(trace for _, _, trace in arguments))
            return INVARIANT
        if sort.model:  # a name such as "step_1" is no data
            arguments = [each for each in arguments if self.program.value(each[1]).kind is not Kind.STRING]
        owner = self._owner(node)
        if sort.unsure and owner.varies and isinstance(node.func, ast.Attribute):
            sort = replace(sort, model=False)  # a method of what the loop makes, rather than of what stays
        given = merged([owner, *(trace for _, _, trace in arguments)])
        self._note_members(node, owner)
        function = self.program.value(node.func)
        if function.kind is Kind.LIBRARY and function.name.startswith("numpy."):
            self.flow.host |= given.slices
        if any(trace.is_index for _, _, trace in arguments) and sort.model:
            self.flow.index_as_data = True
        result = self._through_object(node, given.through(*sort.ops()))
        direct = tuple((name, position) for position, value, trace in arguments for name in self._direct(value, trace))
        self.flow.calls.append(Call(node, sort, result, direct))
        if sort.launches and given.varies:
            self.flow.operations.append(node)
        if sort.view:
            inner = arguments[0][2] if function.kind is Kind.LIBRARY and arguments else owner
            return result._replace(definitions=inner.definitions)
        return result._replace(definitions=frozenset({(id(node), None)}))

    def _grown_by(self, node: ast.Call) -> str:
        """The list that `node` puts something into, whose own result nobody uses."""
        is_effect = isinstance(self.program.parent(node), ast.Expr | ast.IfExp | ast.BoolOp | ast.ListComp)
        grown = receiver_of(node, *LISTS) if is_effect else None
        return whole_of(grown) if grown is not None else ""

    def _length(self, node: ast.Call) -> Trace:
        """`len(outputs)` of a list that the loop grows counts its iterations."""
        if name_called(node) != "len" or not node.args:
            return INVARIANT
        is_carried = self._state_of(node.args[0])[1:] == (False, True)
        is_grown = any(each.name == path_of(node.args[0]) for each in self.flow.collected)
        return INDEX if is_carried or is_grown else INVARIANT

    def _owner(self, node: ast.Call) -> Trace:
        if (owner := receiver_of(node)) is None:
            is_fixed = isinstance(node.func, ast.Name) and not self.is_bound(node.func)
            return INVARIANT if is_fixed else self.trace(node.func)
        is_fixed = self.program.value(owner).kind in (Kind.LIBRARY, Kind.MODULE) and not self.is_bound(owner)
        return INVARIANT if is_fixed else self.trace(owner)

    def _note_members(self, node: ast.Call, owner: Trace) -> None:
        """Is another one called in each iteration, here or in the called function of this file?"""
        callee = self.program.callee(node)
        if callee is not None:
            given = self.program.arguments(node, callee).given.items()
            self.flow.members |= any(self.trace(each).is_index and calls_one_of(callee, name) for name, each in given)
        if "checkpoint" in name_called(node) and node.args and self.trace(node.args[0]).slices:
            self.flow.members = True  # the layer is passed to torch.utils.checkpoint
        if isinstance(node.func, ast.Attribute):
            value, root, name = self.program.value(node.func.value), whole_of(node.func.value), name_called(node)
            is_object = value.kind in (Kind.MODULE, Kind.INSTANCE) or root in map(path_of, self.header.members)
            is_object |= value.kind is Kind.UNKNOWN and bool(owner.slices) and not is_method_of_tensors(name)
            self.flow.members |= is_object and owner.varies and not owner.carried
        elif isinstance(node.func, ast.Call):
            self.flow.members |= name_called(node.func) == "getattr" and owner.is_index
        else:
            self.flow.members |= (owner.is_index or bool(owner.slices)) and not owner.carried

    def _direct(self, value: ast.expr, trace: Trace) -> list[str]:
        if isinstance(value, ast.Tuple | ast.List):
            return [name for part in value.elts for name in self._direct(part, trace)]
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant | ast.Name):
            key = value.slice
            is_fixed = isinstance(key.value, int) if isinstance(key, ast.Constant) else not self.trace(key).slices
            return self._direct(value.value, trace) if is_fixed else []  # where the loop iterates over keys
        path = path_of(value)
        return [path] if path in trace.carried and self._state_of(value).carried else []

    def _through_object(self, node: ast.Call, result: Trace) -> Trace:
        owner = whole_of(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        for name in (each.name for each in self.made.get(node, ()) if each.name != owner):
            self.note_read(name, node)
            result = merged((result, Trace(carried=frozenset({name}))))
        return result

    # -- notes

    def collect(self, name: str, how: str, node: ast.AST, trace: Trace) -> None:
        held = next((each.updates for each in self.made.get(node, ()) if each.name == name), None)
        if how == "append" and held is not None and self.state(held, node).bound:
            return
        if not any(each.node is node and each.how == how for each in self.flow.collected):
            self.flow.collected.append(Collected(name, how, node, trace))

    def meet(self, test: ast.expr, one: Trace, other: Trace, name: str) -> Trace:
        known = name if name in self.flow.reads else ""
        if not self.tests_the_index(test) and (is_forced(one, other, known) or is_forced(other, one, known)):
            self.flow.forced.add(name or "?")
        return merged((one, other))

    def tests_the_index(self, test: ast.expr) -> bool:
        parts = list(ast.walk(test))
        computes = any(isinstance(part, ast.Call) and not is_metadata(part) for part in parts)
        return not computes and any(isinstance(part, ast.Name) and part.id in self.counters for part in parts)
