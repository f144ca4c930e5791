"""Traces the reads of a loop body: names, and steps of sequences."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod

from perflint.analysis.facts import Program
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.loops.dataflow import Draft, TimeSlice
from perflint.analysis.loops.found import Header
from perflint.analysis.loops.indices import is_next, picks_one, place, spans_an_axis, starts_alike
from perflint.analysis.loops.objects import is_parameter
from perflint.analysis.loops.trace import INDEX, INVARIANT, Trace, from_before, merged
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of


class Steps(ABC):
    """Where names and subscripts of one iteration come from; `loop_expressions.Expressions` extends this."""

    def __init__(self, program: Program, header: Header, written: set[str]) -> None:
        self.program = program
        self.header = header
        self.written = written
        self.flow = Draft()
        self.env: dict[str, Trace] = {}
        self.slots: dict[str, list[tuple[str, Trace, bool]]] = {}  # by base: where it is written, what, and always?
        self.contents: dict[str, Trace] = {}  # by list: what this iteration put into it
        self.places: dict[str, set[str]] = {}  # by base: every place where the body writes it, "" for the whole
        self.rows: set[str] = set()  # bases of which the loop replaces a list of rows, samples that go on
        self.conditional = 0  # depth of run-time tests around
        self.prepared: frozenset[str] = frozenset()  # objects that were set to a state before the loop
        self.last_writes: dict[str, int] = {}  # by name: the last line that binds it
        self.half_bound: set[str] = set()  # bound by one branch of a test only: else the iteration before's

    @abstractmethod
    def trace(self, node: ast.expr | None) -> Trace:
        """Where the value of `node` comes from."""

    def _is_index(self, node: ast.expr) -> bool:
        return path_of(node) in self.header.indices

    # -- names

    def _path(self, node: ast.Name | ast.Attribute) -> Trace:
        if is_metadata(node):
            return INVARIANT
        path = path_of(node)
        if not path:
            assert isinstance(node, ast.Attribute)
            return self.trace(node.value)
        if path in self.half_bound and self.last_writes.get(path, 0) > node.lineno:
            self.flow.reads.setdefault(path, []).append(node)
        while path:
            if path in self.env:
                return self.env[path]
            if path in self.written and any(owner in self.env for owner in _owners(path)):
                return self.env[next(owner for owner in _owners(path) if owner in self.env)]
            if path in self.header.indices:
                return INDEX
            if path in self.written:
                return self._carried(path, node)
            path = path.rpartition(".")[0]
        return INVARIANT

    def _carried(self, path: str, node: ast.expr) -> Trace:
        self.flow.reads.setdefault(path, []).append(node)
        return merged((from_before(path), self.contents.get(path, INVARIANT).number()))

    # -- subscripts

    def _subscript(self, node: ast.Subscript) -> Trace:
        index = self.trace(node.slice)
        base_path = path_of(node.value)
        points = [part for part in _axis_indices(node.slice) if not isinstance(part, ast.Slice)]
        point = merged(map(self.trace, points)) if points else index  # `x[:n, t]`: n says how many, not which
        plain = point.is_index and not point.carried and not point.slices
        own = any(self._is_index(part) for part in _axis_indices(node.slice)) and not index.carried
        if own or (plain and picks_one(node.slice, self._is_indexed)):
            step = self._step(node, base_path)
            if step is not None:
                return step
        if self._is_other_key(node, base_path) or self._is_own_part(node, base_path):
            return INVARIANT
        if isinstance(node.slice, ast.Constant | ast.UnaryOp) and "" not in self.places.get(base_path, {""}):
            self.flow.permuted.add(base_path)
        base = self.trace(node.value)
        if not base.varies:
            self.note_chunks(node.slice)
        constant = (
            node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int) else None
        )
        if constant is not None:
            definitions = frozenset((call, constant if part is None else part) for call, part in base.definitions)
            return base._replace(definitions=definitions)
        moved = base if isinstance(node.slice, ast.Slice) else base.number()
        return merged((moved, Trace(index.slices, index.carried, index.ops)))

    def _is_other_key(self, node: ast.Subscript, base: str) -> bool:
        """Is it an entry of a dictionary of which the loop writes other entries only?"""
        keys = self.places.get(base, set())
        return (
            isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
            and base not in self.env
            and bool(keys)
            and all(key[:1] in ("'", '"') for key in keys)
            and ast.unparse(node.slice) not in keys
        )

    def _is_own_part(self, node: ast.Subscript, base: str) -> bool:
        """Is it the part that the element names, as `x[key]` is, where the loop writes no other part?"""
        targets = {path_of(each) for each in (*(each.target for each in self.header.elements), *self.header.members)}
        key = path_of(node.slice)
        return key in targets - {""} and base not in self.env and self.places.get(base) == {key}

    def note_chunks(self, index: ast.expr) -> None:
        """Note that the loop takes, or fills, a range of steps at a time."""
        parts = _axis_indices(index)
        self.flow.chunks |= any(isinstance(part, ast.Slice) and self._strides(part) for part in parts)

    def _strides(self, part: ast.Slice) -> bool:
        """Do both ends of a slice move with the loop, by more than one step?"""
        if part.lower is None or part.upper is None or is_next(part.lower, part.upper):
            return False
        ends = [self.trace(part.lower), self.trace(part.upper)]
        return all(end.is_index or end.slices or end.carried for end in ends)

    def _is_indexed(self, node: ast.expr) -> bool:
        return self.trace(node).is_index

    def _step(self, node: ast.Subscript, base_path: str) -> Trace | None:
        """The trace of `x[t]` where x is a sequence; None where it is something else."""
        kind = self.program.value(node.value).kind
        if kind is Kind.MODULE or self.program.value(node).kind is Kind.MODULE:
            self.flow.members = True
            return INVARIANT
        if kind in (Kind.NUMPY, Kind.MAPPING, Kind.STRING, Kind.DATASET):
            return INVARIANT
        if is_parameter(self.program, node.value):
            self.flow.members = True
            return INVARIANT
        written = self.slots.get(base_path)
        if written is not None:
            return self._written_step(node, base_path, written)
        if self._is_made_here(node.value) and not self._is_only_replaced(self._whole(node), node):
            return None
        if not self._is_part_of_fixed(node.value) and self._depends(node.value):
            return None
        text = base_path or ast.unparse(node.value)
        axis, offset = place(node, self.header.indices)
        is_tensor = kind is Kind.TENSOR or (kind in (Kind.UNKNOWN, Kind.METHOD) and self._is_shown(node))
        self.flow.slices.append(TimeSlice(text, node, axis, offset, is_tensor))
        return Trace(slices=frozenset({text}))

    def _is_shown(self, node: ast.Subscript) -> bool:
        """Does its index, or what else the program does with it, show that a sequence is a tensor?"""
        return spans_an_axis(node.slice) or path_of(node.value) in self.flow.proven

    def narrowed(self, node: ast.Call) -> Trace | None:
        """The trace of `x.narrow(1, t, 1)` or `x.select(1, t)`, which pick a step of x; None where they don't."""
        if not isinstance(node.func, ast.Attribute) or len(node.args) < 2 or not self._is_index(node.args[1]):
            return None
        base, axis = node.func.value, node.args[0]
        if self.program.value(base).kind is not Kind.TENSOR or not path_of(base) or self._is_made_here(base):
            return None
        along = axis.value if isinstance(axis, ast.Constant) and isinstance(axis.value, int) else None
        self.flow.slices.append(TimeSlice(path_of(base), node, along, 0, True))
        return Trace(slices=frozenset({path_of(base)}))

    def _is_made_here(self, node: ast.expr) -> bool:
        """Does the loop bind or change the sequence, or an object that it is a part of?"""
        path = self._root(node)
        while path:
            if path in self.env or path in self.written:
                return True
            path = path.rpartition(".")[0]
        return False

    def _is_only_replaced(self, base: str, node: ast.Subscript) -> bool:
        """Does the loop change the sequence at nothing but the step that it reads?"""
        places = self.places.get(base)
        return (
            places is not None
            and base not in self.env
            and all(starts_alike(each, ast.unparse(node.slice)) for each in places)
        )

    def _whole(self, node: ast.Subscript) -> str:
        """Of `x[0][t]`, where 0 stands for what doesn't change in the loop, x; of other things their path."""
        return self._root(node.value) if self._is_part_of_fixed(node.value) else path_of(node.value)

    def _is_part_of_fixed(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Subscript) and bool(path_of(node.value)) and not self.trace(node.slice).varies

    def _depends(self, node: ast.expr) -> bool:
        return not isinstance(node, ast.Name | ast.Attribute) and self.trace(node).varies

    def _written_step(self, node: ast.Subscript, base: str, written: list[tuple[str, Trace, bool]]) -> Trace:
        """A step of what the loop itself writes step by step."""
        text = ast.unparse(node.slice)
        here = [each for each in written if each[0] == text or starts_alike(each[0], text)]
        if here:
            return self._rewritten_step(node, base, here)
        if place(node, self.header.indices)[1] is None:
            self.flow.permuted.add(base)
        return self._carried(base, node)

    def _rewritten_step(self, node: ast.Subscript, base: str, here: list[tuple[str, Trace, bool]]) -> Trace:
        """A step of what this iteration wrote there: the last that it certainly did, or else what was there before."""
        certain = next((number for number in reversed(range(len(here))) if here[number][2]), None)
        written = merged(trace for _, trace, _ in here[certain or 0 :])
        if certain is not None:
            return written
        self.flow.slices.append(TimeSlice(base, node, *place(node, self.header.indices), True))
        if written.carried:
            self.flow.forced.add(base)
        return merged((written, Trace(slices=frozenset({base}))))

    def _root(self, node: ast.expr) -> str:
        while isinstance(node, ast.Subscript | ast.Attribute) and not path_of(node):
            node = node.value
        return path_of(node)


def _owners(path: str) -> list[str]:
    """The objects that `a.b.c` is a part of: a.b and a."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def _axis_indices(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]
