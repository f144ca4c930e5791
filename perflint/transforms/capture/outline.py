"""Makes the region of a training step a function before the loop: parameters, results, code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import starmap

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Outer, Phi, Value, sources_of
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.scopes import surely_bound_names
from perflint.syntax.walk import own_nodes, receiver_of
from perflint.transforms.aliases import is_own
from perflint.transforms.capture.host_part import Around, is_within, outermost_of
from perflint.transforms.capture.late import Late, only_reads
from perflint.transforms.capture.parts import Part
from perflint.transforms.capture.region import Region
from perflint.transforms.capture.results import ResultMemory
from perflint.transforms.capture.scope import check_leaf, check_scope, check_tape, is_cut, is_of_step, step_name
from perflint.transforms.host_code import item_of
from perflint.transforms.operations import (
    FIT,
    AddKeywords,
    InsertBefore,
    Operation,
    Replace,
    ReplaceStatements,
    again,
    assignment,
    expression,
    in_rows,
    new,
    reference,
    statement,
    tuple_of,
)
from perflint.transforms.rewrite import Blocked, Taken, check_alone, name_of_torch, shown

_OF_HOST = (Kind.NUMBER, Kind.STRING, Kind.NUMPY, Kind.LIBRARY, Kind.LOADER)
_OF_TENSORS = (Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING, Kind.UNKNOWN, Kind.METHOD)


class Outline:
    """The region as a function; raises Blocked where it can't be one."""

    def __init__(self, program: Program, region: Region, taken: Taken) -> None:
        self.program, self.region, self._taken = program, region, taken
        self._graph = program.get(Flow).graph(region.scope)
        names = (each for each in region.nodes if isinstance(each, ast.Name) and each in self._graph.values)
        self._names = sorted(names, key=lambda each: (each.lineno, each.col_offset))
        self._stores = [each for each in self._names if not isinstance(each.ctx, ast.Load)]
        self._stored = {each.id for each in self._stores}
        self._kept = {each.name for each in region.kept}
        self._late = {node for late in region.late for node in own_nodes(late.statement)}
        check_scope(program, region, self._outermost)
        self._check_writes()
        if not region.pure:
            check_tape(program, region, self._reads(), self._behind)

    @cached_property
    def _outermost(self) -> Around:
        return outermost_of(self.program, self.region.around)

    def _reads(self) -> Iterator[tuple[ast.Name, list[Value]]]:
        for name in self._names:
            value = self._graph.read(name)
            around = self.program.parent(name)
            is_updated = isinstance(around, ast.AugAssign) and around.target is name
            if value is not None and (isinstance(name.ctx, ast.Load) or is_updated):
                yield name, list(sources_of(value))

    @cached_property
    def parameters(self) -> list[str]:
        found: dict[str, ast.Name] = {}
        for name, values in self._reads():
            outer = [each for each in values if not self.region.sets(each)]
            is_given = name.id in self._stored or any(self._is_given(each, name) for each in outer)
            if outer and is_given and name.id not in found:
                self._check_parameter(name, outer)
                found[name.id] = name
        if self._owner:
            found.pop(self._owner, None)
        return sorted(found, key=lambda each: self.program.value(found[each]).kind is not Kind.TENSOR)

    @cached_property
    def _owner(self) -> str:
        around = self.region.around
        if not isinstance(around, ast.FunctionDef) or not isinstance(self.program.parent(around), ast.ClassDef):
            return ""
        first = next(iter((*around.args.posonlyargs, *around.args.args)), None)
        if first is None or any(isinstance(each, ast.Name) and each.id == first.arg for each in self._graph.uses):
            raise Blocked("what the method belongs to isn't known: give it a `self`", around)
        return first.arg

    def _is_given(self, value: Value, name: ast.Name) -> bool:
        if not isinstance(value, Definition):
            return False
        is_tensor = self.program.value(name).kind in _OF_TENSORS or name.id in self._kept
        around = self._outermost if is_tensor else self.region.around
        return is_within(self._graph, value.node, around)

    def _check_parameter(self, name: ast.Name, values: Sequence[Value]) -> None:
        value = self.program.value(name)
        if any(isinstance(each, Outer) for each in values):
            self._unset(name.id)
        check_leaf(self.program, name, values)
        sources = (each.source for each in values if isinstance(each, Definition) and each.source is not None)
        if any(receiver_of(node, "tolist") for source in sources for node in own_nodes(source)):
            raise Blocked(f"`{name.id}` holds other numbers in each call: a graph would be of use for no other", name)
        if value.kind in (Kind.MODULE, Kind.OPTIMIZER) and not isinstance(self.region.around, ast.FunctionDef):
            raise Blocked(f"`{name.id}` is another one in each iteration: make it in front of the loop", name)
        walked = getattr(self.region.around, "iter", None)
        is_loaded = any(isinstance(each, Definition) and each.source is walked for each in values)
        if value.kind is Kind.TENSOR and value.place is Place.HOST and is_loaded:
            raise Blocked(f"`{name.id}` lies on the host: move it to the device in front of the step", name)
        if value.kind in _OF_HOST and name.id in self._stored - self._kept:
            raise Blocked(f"`{name.id}` is computed on the host in each iteration: do that outside of the step", name)

    def _unset(self, name: str) -> ast.stmt | None:
        program, graph, around = self.program, self._graph, self._outermost
        reads = [each for each, values in self._reads() if any(isinstance(one, Outer) for one in values)]
        read = next((each for each in reads if each.id == name), None)
        if read is None:
            return None
        names = (each for each in graph.values if isinstance(each, ast.Name) and each.id == name)
        stores = [each for each in names if not isinstance(each.ctx, ast.Load)]
        block = program.block_of(around)
        first = next(each for each in block if each is around or not set(stores).isdisjoint(own_nodes(each)))
        is_before = any(graph.runs_after(first, each) for each in stores if each not in own_nodes(first))
        is_local = isinstance(program.function_of(around), ast.FunctionDef) and not graph.is_shared(name)
        is_local = is_local and not re.search(r"\b(Name|UnboundLocal)Error\b", program.text)
        if is_before or not is_local or isinstance(around, ast.FunctionDef) or any(map(_is_deleted, stores)):
            raise Blocked(f"`{name}` may not be set yet: give it a value in front of the loop in any case", read)
        return first

    @cached_property
    def _behind(self) -> list[ast.Name]:
        names = (each for each in self._graph.values if isinstance(each, ast.Name) and each not in self.region.nodes)
        values = ((each, self._graph.read(each)) for each in names)
        return [name for name, value in values if value is not None and any(map(self.region.sets, sources_of(value)))]

    @cached_property
    def _carried(self) -> list[tuple[Phi, list[Value]]]:
        """The parameters' phis at the head of the loop, each with what an iteration may leave for the next one."""
        graph, around = self._graph, self.region.around
        phis = (each for each in graph.carried(around) if each.name in self.parameters)
        return [(phi, [one for v in graph.back_edge_values(around, phi) for one in sources_of(v)]) for phi in phis]

    @cached_property
    def _left(self) -> set[ast.AST]:
        """Where the region sets what is read behind it, or by the next iteration."""
        read = (value for name in self._behind if (found := self._graph.read(name)) for value in sources_of(found))
        carried = (value for _, left in self._carried for value in left)
        return {each.node for each in (*read, *carried) if self.region.sets(each)}

    @cached_property
    def results(self) -> list[str]:
        found = {each.id for each in self._behind}
        around = self.program.function_of(self._outermost) or self.program.tree
        deleted = [node.id for node in own_nodes(around) if isinstance(node, ast.Name) and _is_deleted(node)]
        found.update(name for name in deleted if name in self._stored)
        found.update(phi.name for phi, left in self._carried if any(map(self.region.sets, left)))
        for each in self._stores:
            value = self._graph.value(each)
            is_shape = isinstance(value, Definition) and value.given is not None
            is_of_host = self.program.value(each).kind in _OF_HOST and each.id not in self._kept
            if each.id in found and is_of_host and not is_shape:
                raise Blocked(f"`{each.id}` is a value of the host: set it outside of the step", each)
        sure = surely_bound_names(self.region.captured) | set(self.parameters)
        for each in self._stores:
            if each.id in found - sure:
                reason = "is set in one branch only, and read behind the step: set it in the other one, too"
                raise Blocked(f"`{each.id}` {reason}", each)
        return list(dict.fromkeys(each.id for each in self._stores if each.id in found))

    @cached_property
    def _late_values(self) -> dict[ast.expr, str]:
        found = {}
        for late in self.region.late:
            old = late.statement
            target = getattr(old, "targets", [getattr(old, "target", None)])[0]
            name = target.id if isinstance(target, ast.Name) else "value"
            for read in (each for each in late.reads if each in self.region.values):
                is_alone = isinstance(old, ast.Assign) and old.value is read
                single = name[:-1] if name.endswith("s") else f"{name}_now" if isinstance(target, ast.Name) else name
                found[read] = name if is_alone else self._taken.fresh(single)
        return found

    @cached_property
    def _fetched(self) -> dict[str, tuple[str, ast.expr]]:
        found: dict[str, tuple[str, ast.expr]] = {}
        used = {each.id for each in self._names}
        for each in self.region.fetched:
            code = ast.dump(each.value)
            if code not in found:
                name = each.name if each.name not in used else self._taken.fresh(each.name)
                found[code] = (name, self._scale(each.value) if each.scales else again(each.value))
                used.add(name)
                self._taken.names.add(name)
        return found

    def _scale(self, number: ast.expr) -> ast.expr:
        for name in self._names:
            if name.id in self.parameters and self.program.value(name).kind is Kind.TENSOR:
                made = "{torch}.full((), {number}, device={name}.device)"
                return expression(made, torch=reference(name_of_torch(self.program)), number=number, name=name.id)
        reason = "is another number in each iteration: keep it in a tensor on the device, and write to that by `fill_`"
        raise Blocked(f"{shown(self.program, number)} {reason}", number)

    def _check_writes(self) -> None:
        points = self.program.get(Memory).points_to(self.region.scope)
        nodes = self.region.nodes
        writes = [each for each in [*points.writes] if each.node in nodes or (each.deferred and points.is_known)]
        inside = [each for each in writes if is_of_step(self.program, each)]
        for name, _ in self._reads():
            if name.id in self.parameters and any(each.reaches(points.of(name)) for each in inside):
                does = "is written to in place: make a new tensor instead"
                if self.program.value(name).kind is not Kind.TENSOR:
                    does = "is filled: make it right in front of the loop, empty"
                raise Blocked(f"`{name.id}`, of which a graph has a copy, {does}", name)
        memory, left = ResultMemory(self.program, self.region), self._left
        set_ = [each for each in self._stores if each.id in self.results and each in left]
        for name in set_:
            reads = [each for each in self._behind if each.id == name.id]
            is_behind = name.id not in self.parameters and self._late.isdisjoint(reads)
            is_only_read = is_behind and all(only_reads(self.program, each) for each in reads)
            others = [each for each in set_ if each.id != name.id]
            memory.check(name, others, is_only_read=is_only_read)
        for late in self.region.late:
            for tensor in late.tensors:
                later = (each for each in inside if self._graph.runs_after(each.node, late.statement))
                if any(each.reaches(points.of(tensor)) for each in later):
                    raise Blocked("it reads what the step writes to after that: read a copy", tensor)
                is_made = points.of(tensor) and is_own(self.program, self.region.around, tensor)
                values = list(self._graph.definitions(tensor)) if isinstance(tensor, ast.Name) else []
                if not (is_made or memory.is_own(tensor) or memory.is_part_of_output(tensor, values)):
                    raise Blocked("it reads what the step changes after that: read it behind the step", tensor)

    def operations(self, decorator: str) -> Iterator[Operation]:
        region = self.region
        for fetched in region.fetched:
            yield Replace(fetched.value, reference(self._fetched[ast.dump(fetched.value)][0]))
        for name in self.parameters:
            if (first := self._unset(name)) is not None:
                yield InsertBefore(first, (assignment(name, expression("None")),))
        for number in region.kept:
            yield from number.replaced(self.program)
        for call, tensor in region.unplaced:
            yield AddKeywords(call, (("device", expression("{tensor}.device", tensor=tensor)),))
        yield from starmap(Replace, region.sliced)
        for read, name in self._late_values.items():
            yield Replace(read, expression(f"{name}.item()") if item_of(read) is not None else reference(name))
        for part in region.parts:
            for late in part.late if not part.is_late else ():
                yield ReplaceStatements((late.statement,), tuple(self._named(late)))
        name = step_name(self.program, self.region, self._owner, self.results, self._taken)
        results = [*self.results, *self._late_values.values()]
        for made in region.sunk:
            check_alone(self.program, made)
            yield ReplaceStatements((made,), ())
        yield InsertBefore(self._outermost, (self._function(name, results, decorator),))
        early = (each.statement for each in region.parts if each.is_early)
        behind = (each.statement for each in region.late)
        old = tuple(each.statement for each in region.parts)
        yield ReplaceStatements(old, (*early, self._call(name, results), *behind))

    def _function(self, name: str, results: Sequence[str], decorator: str) -> ast.stmt:
        body = [*self.region.sunk, *(line for each in self.region.parts for line in self._captured(each))]
        if results:
            body.append(statement("return {result}", result=tuple_of(results)))
        function = statement("def step():\n    {*body}", body=body)
        assert isinstance(function, ast.FunctionDef)
        fetched = (name for name, _ in self._fetched.values())
        names = (*([self._owner] if self._owner else []), *self.parameters, *fetched)
        arguments = [new(ast.arg(each)) for each in names]
        function.name, function.args = name, new(ast.arguments([], arguments, None, [], [], None, []))
        function.decorator_list = [reference(decorator)]
        return function

    def _call(self, name: str, results: Sequence[str]) -> ast.stmt:
        fetched = (value for _, value in self._fetched.values())
        called = f"{self._owner}.{name}" if self._owner else name
        call = in_rows(new(ast.Call(reference(called), [*map(self._argument, self.parameters), *fetched], [])), FIT)
        if not results:
            return new(ast.Expr(call))
        return new(ast.Assign([tuple_of(results, ast.Store())], call))

    def _argument(self, name: str) -> ast.expr:
        reads = [each for each, _ in self._reads() if each.id == name]
        is_tensor = any(self.program.value(each).kind is Kind.TENSOR for each in reads)
        is_detached = is_tensor and all(is_cut(self.program, each) for each in reads)
        return expression(f"{name}.detach()") if is_detached else reference(name)

    def _captured(self, part: Part) -> Iterator[ast.stmt]:
        if part.is_late:
            for late in part.late:
                yield from self._named(late)
        elif not part.is_early:
            yield part.statement

    def _named(self, late: Late) -> Iterator[ast.stmt]:
        for read in late.reads:
            if read in self._late_values:
                value = self.region.values[read]
                yield assignment(self._late_values[read], again(value) if value is read else value)


def _is_deleted(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Del)
