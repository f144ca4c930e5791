"""Traces the data flow through the statements of a loop body, for one iteration."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.loops.dataflow import LoopFlow, TimeSlice
from perflint.analysis.loops.expressions import Expressions
from perflint.analysis.loops.found import Element, Header
from perflint.analysis.loops.objects import prepared_objects
from perflint.analysis.loops.proofs import proven_tensors
from perflint.analysis.loops.trace import CAT, INDEX, INVARIANT, MODEL, Trace, from_before, merged
from perflint.analysis.loops.writes import is_fixed, last_writes, root_path, step_index, written_paths, written_places
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import FUNCTIONS, LOOPS, Loop, path_of


def loop_flow(program: Program, loop: Loop, header: Header) -> LoopFlow:
    """The data flow of one iteration of `loop`."""
    body = Body(program, header, written_paths(loop))
    body.flow.proven = proven_tensors(program, loop)
    body.prepared = prepared_objects(program, loop)
    body.places = written_places(loop, header.indices)
    body.last_writes = last_writes(loop)
    for element in header.elements:
        body.bind_element(element)
    for member in header.members:
        body.bind(member, INDEX)
    if isinstance(loop, ast.While):
        body.trace(loop.test)
    body.block(loop.body)
    return body.finish()


class Body(Expressions):
    """One iteration."""

    def finish(self) -> LoopFlow:
        """The flow, once every statement was traced."""
        painted = {
            base
            for base, places in self.places.items()
            if "" not in places and base not in {*self.slots, *self.rows} and not all(map(is_fixed, places))
        }
        ends = dict(self.env)
        for base, written in self.slots.items():
            ends[base] = merged([trace for _, trace, _ in written] + ([self.env[base]] if base in self.env else []))
        for each in self.flow.collected:
            if each.how in ("append", "cat") and each.name in self.flow.reads and each.name not in self.env:
                ends[each.name] = merged((ends.get(each.name, INVARIANT), each.trace))
        return self.flow.finished(ends, painted)

    def bind_element(self, element: Element) -> None:
        """Bind a target that is a step of a sequence."""
        self.flow.slices.append(TimeSlice(element.base, element.source, element.axis, 0, element.is_tensor))
        self.bind(element.target, Trace(slices=frozenset({element.base})))

    def bind(self, target: ast.expr, trace: Trace) -> None:
        """Bind every name in a target."""
        for part in ast.walk(target):
            if isinstance(part, ast.Name | ast.Attribute) and (path := path_of(part)):
                self.env[path] = trace

    def block(self, statements: list[ast.stmt]) -> None:
        """Trace statements one after the other."""
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Trace one statement."""
        if isinstance(node, ast.Assign):
            self._assign_all(node)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.assign(node.target, node.value, self.trace(node.value))
        elif isinstance(node, ast.AugAssign):
            self._augmented(node)
        elif isinstance(node, ast.Expr):
            self._expression(node.value)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, LOOPS):
            self._inner_loop(node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.trace(item.context_expr)
            self.block(node.body)
        elif isinstance(node, ast.Try):
            self.block(node.body)
            before = dict(self.env)
            for handler in node.handlers:
                self.env = dict(before)
                self.block(handler.body)
            self.env = before
            self.block([*node.orelse, *node.finalbody])
        elif isinstance(node, ast.Return | ast.Assert):
            self.trace(node.value if isinstance(node, ast.Return) else node.test)
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return

    # -- bindings

    def _assign_all(self, node: ast.Assign) -> None:
        for target in node.targets:
            grown = self._grown(target, node.value)
            if grown is not None:
                self._grow(path_of(target), grown, node)
                return
        trace = self.trace(node.value)
        for target in node.targets:
            self.assign(target, node.value, trace)

    def _grown(self, target: ast.expr, value: ast.expr) -> tuple[str, list[ast.expr]] | None:
        """Is it `x = x + y` or `x = torch.cat([x, y])`: how it grows, and by what?"""
        path = path_of(target)
        if not path or path in self.env:
            return None
        if (
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Add | ast.Sub)
            and path in (path_of(value.left), path_of(value.right))
        ):
            other = value.right if path_of(value.left) == path else value.left
            return ("append" if self._is_list(other) else "sum"), [other]
        if isinstance(value, ast.Call) and _joins(self.program.qualified(value.func)):
            parts = value.args[0].elts if value.args and isinstance(value.args[0], ast.Tuple | ast.List) else []
            if any(path_of(part) == path for part in parts):
                return "cat", [part for part in parts if path_of(part) != path]
        return None

    def _is_list(self, node: ast.expr) -> bool:
        return isinstance(node, ast.List) or self.program.value(node).kind is Kind.SEQUENCE

    def _grow(self, path: str, grown: tuple[str, list[ast.expr]], node: ast.stmt) -> None:
        how, parts = grown
        trace = merged(self.trace(part) for part in parts)
        self.collect(path, how, node, trace)
        if path in self.header.indices:
            return
        if how != "append":
            ops = (CAT,) if how == "cat" else ("arithmetic",)
            self.env[path] = merged((trace, from_before(path))).through(*ops)

    def _augmented(self, node: ast.AugAssign) -> None:
        path = path_of(node.target)
        if path and path not in self.env:
            how = (
                "append"
                if self._is_list(node.value) or self.program.value(node.target).kind is Kind.SEQUENCE
                else "sum"
            )
            self._grow(path, (how, [node.value]), node)
            return
        trace = self.trace(node.value)
        if path:
            self.env[path] = merged((self.env[path], trace)).number()
        elif (base := root_path(node.target)) and base not in self.env:
            self.collect(base, "sum", node, trace)
        else:
            self.assign(node.target, node.value, trace)

    def assign(self, target: ast.expr, value: ast.expr | None, trace: Trace) -> None:
        """Bind `target` to what `trace` tells of `value`."""
        if isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            if same and isinstance(value, ast.Tuple | ast.List):
                traces = [self.trace(part) for part in value.elts]
                for part, inner, found in zip(target.elts, value.elts, traces, strict=True):
                    self.assign(part, inner, found)
                return
            for position, part in enumerate(target.elts):
                definitions = frozenset(
                    (call, position if element is None else element) for call, element in trace.definitions
                )
                self.assign(part, None, trace._replace(definitions=definitions))
        elif isinstance(target, ast.Starred):
            self.assign(target.value, None, trace)
        elif isinstance(target, ast.Subscript):
            self._assign_part(target, trace)
        elif path := path_of(target):
            grown = any(each.name == path and each.how in ("sum", "cat") for each in self.flow.collected)
            if grown and value is not None and (path in trace.carried or MODEL in trace.ops):
                self.flow.reads.setdefault(path, []).append(value)  # what was added up goes on in another form
            self.env[path] = trace
            self.half_bound.discard(path)
            for known in [known for known in self.env if known.startswith(f"{path}.")]:
                del self.env[known]

    def _assign_part(self, target: ast.Subscript, trace: Trace) -> None:
        base, place = root_path(target), step_index(target, self.header.indices)
        index = self.trace(place)
        if not base:
            return
        self.note_chunks(target.slice)
        if self.program.value(target.slice).kind is Kind.SEQUENCE:
            self.rows.add(base)
        is_key = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(target.slice))
        if index.is_index and base not in self.env and not is_key:
            self.slots.setdefault(base, []).append((ast.unparse(place), trace, self.conditional == 0))
            self.collect(base, "slot", target, trace)
            return
        self.env[base] = merged((self.env.get(base, INVARIANT), trace, Trace(index.slices, index.carried, index.ops)))

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Yield | ast.YieldFrom):
            if node.value is not None:
                self.collect("yield", "yield", node, self.trace(node.value))
            return
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and torch_ops.writes_in_place(node.func.attr)
        ):
            base = root_path(node.func.value)
            if base in self.written:
                quiet = any(torch_ops.does(node.func.attr, trait) for trait in ("updating", "replacing"))
                given = arguments_of(node)
                trace = merged(self.trace(each) for each in given) if quiet else self.trace(node)
                self._changed_in_place(node, node.func, base, trace)
                return
        self.trace(node)

    def _changed_in_place(self, node: ast.Call, function: ast.Attribute, base: str, trace: Trace) -> None:
        if torch_ops.does(function.attr, "updating") and base not in self.env:
            self.collect(base, "sum", node, trace)
            return
        if isinstance(function.value, ast.Subscript):
            self._assign_part(function.value, trace)
        elif torch_ops.does(function.attr, "updating"):
            self.env[base] = merged((self.env[base], trace))
        else:
            self.env[base] = trace

    # -- control flow

    def _if(self, node: ast.If) -> None:
        self.trace(node.test)
        at_run_time = not self._tests_the_index(node.test)
        self.conditional += at_run_time
        before = self.env
        ends = []
        for branch in (node.body, node.orelse):
            self.env = dict(before)
            self.block(branch)
            if not (branch and isinstance(branch[-1], ast.Break | ast.Return | ast.Raise)):
                ends.append(self.env)
        self.conditional -= at_run_time
        self.env = self._join(node.test, ends[0], ends[1]) if len(ends) == 2 else ends[0] if ends else before

    def _join(self, test: ast.expr, one: dict[str, Trace], other: dict[str, Trace]) -> dict[str, Trace]:
        joined = {}
        for name in {**one, **other}:
            traces = [env[name] if name in env else self._unbound(name) for env in (one, other)]
            bound = name in one and name in other
            if not bound:
                self.half_bound.add(name)
            joined[name] = (
                self.meet(test, traces[0], traces[1], name) if bound and traces[0] != traces[1] else merged(traces)
            )
        return joined

    def _unbound(self, name: str) -> Trace:
        return INVARIANT if name in self.header.indices else from_before(name)

    def _inner_loop(self, node: Loop) -> None:
        if not isinstance(node, ast.While):
            self.bind(node.target, self.trace(node.iter).number())
        else:
            self.trace(node.test)
        before = dict(self.env)
        self.block(node.body)
        for name, trace in before.items():
            self.env[name] = merged((trace, self.env.get(name, INVARIANT)))
        self.block(node.body)
        for name, trace in before.items():
            self.env[name] = merged((trace, self.env.get(name, INVARIANT)))
        self.block(node.orelse)


def _joins(qualified: str) -> bool:
    operation = torch_ops.of_function(qualified)
    return operation is not None and operation.does("joining")
