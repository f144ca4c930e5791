"""Whether a view may stand for a copy: the writes that may come meanwhile, and code that relies on the layout."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Graph
from perflint.analysis.ir.occurrences import occurrences
from perflint.analysis.links import Fate, Manner
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.memory.dispatch import registers_hooks
from perflint.analysis.memory.locations import Locations, Write, made
from perflint.analysis.memory.roles import NEW, OPERATORS, Consumer, Reading
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of
from perflint.syntax.walk import Function, bindings_of, path_of, receiver_of
from perflint.torch_ops import libraries


def shown_writes(
    program: Program, copy: ast.Call, source: ast.expr, reading: Reading, *, backward: bool
) -> Iterator[Write]:
    """The writes that a view of `source` in the place of `copy` may show, by any alias, and the copy does not.

    `backward`: the copy, or what is computed from it, may be kept for gradients, so that any later write counts.
    """
    memory = program.get(Memory)
    points, graph = memory.points_to(copy), memory.graph(copy)
    if registers_hooks(program):
        yield from (Write(copy, each) for each in points.of(source) if each.path)
    by_alias = (write for write in points.writes if write.reaches([made(copy)]))
    yield from (write for write in by_alias if write.deferred or not write.deep)
    readers = [each.node for each in reading.consumers]
    kept = [each.node for each in reading.consumers if backward and not _is_linear(program, each)]
    passes = _passes(program, graph, kept)
    any_counts = _is_carried(memory, copy)
    for write in memory.writes_after(source, copy):
        is_any = any_counts or write.deferred or (bool(kept) and write.is_in_sight)
        if is_any or _is_read_behind(graph, copy, write, [*readers, *passes]):
            yield write
    for write in memory.writes_by_other_parameters(source):
        others = [each for each in readers if each is not write.node]
        if write.deferred or _is_read_behind(graph, copy, write, others):
            yield write._replace(deferred=True)
    yield from _writes_elsewhere(program, memory, copy, reading)
    if (function := program.function_of(copy)) is not None:
        callers = _Callers(memory, reading, bool(kept), {function})
        yield from callers.writes(function, points.of(source), is_returned=made(copy) in points.returned())


@dataclass(frozen=True)
class _Callers:
    """The writes of those who call the function of a copy, while they, or the gradients, may read the copy."""

    memory: Memory
    reading: Reading
    is_kept: bool  # for gradients
    seen: set[Function]

    def writes(self, function: Function, places: Locations, *, is_returned: bool) -> Iterator[Write]:
        """The writes to what is at `places` in `function`, which returns the copy or something computed from it."""
        memory = self.memory
        for site in _may_call(memory.program, function) if is_returned or self.is_kept else ():
            points, graph = memory.points_to(site), memory.graph(site)
            found = points.passed(site, function, places)
            readers = [each.node for each in self.reading.consumers] if is_returned else []
            passes = _passes(memory.program, graph, [site]) if self.is_kept else []
            is_carried = is_returned and _is_carried(memory, site)
            for write in points.writes:
                if (write.node is site and not write.deferred) or not write.reaches(found):
                    continue
                if write.deferred:
                    yield from [write] if is_returned or passes else ()
                elif not graph.runs_after(write.node, site):
                    continue
                elif is_carried or _is_read_behind(graph, site, write, readers):
                    yield write
                elif _is_read_behind(graph, site, write, passes):
                    yield write._replace(deferred=True)
            around = memory.program.function_of(site)
            if around is not None and around not in self.seen:
                self.seen.add(around)
                yield from self.writes(around, found, is_returned=is_returned and made(site) in points.returned())


def _may_call(program: Program, function: Function) -> Iterator[ast.Call]:
    yield from program.call_sites(function)
    for call in program.of_type(ast.Call) if program.class_of(function) is not None else ():
        is_named = isinstance(call.func, ast.Attribute) and call.func.attr == getattr(function, "name", "")
        if is_named and program.callee(call) is None and not program.qualified(call.func):
            yield call


def _is_linear(program: Program, consumer: Consumer) -> bool:
    node = consumer.node
    if isinstance(node, ast.BinOp | ast.AugAssign):
        operation = torch_ops.of_method(f"__{OPERATORS[type(node.op)]}__")
    elif isinstance(node, ast.Call):
        name = program.qualified(node.func)
        operation = torch_ops.of_function(name) if name else torch_ops.of_method(getattr(node.func, "attr", ""))
    elif isinstance(node, ast.Subscript):
        return consumer.operand is node.value or isinstance(node.ctx, ast.Store)
    else:
        return isinstance(node, ast.Compare)
    return operation is not None and operation.does("linear")


def _passes(program: Program, graph: Graph, kept: Iterable[ast.AST]) -> list[ast.AST]:
    uses = [use for node in kept for use in program.graph_uses(node)]
    return [use.node for use in uses if use.fate is Fate.DIFFERENTIATED and use.node in graph.places]


def _writes_elsewhere(program: Program, memory: Memory, copy: ast.Call, reading: Reading) -> Iterator[Write]:
    """The writes of other functions that read the copy, to what they did not make, such as its source."""
    readers = {consumer.node: program.function_of(consumer.node) for consumer in reading.consumers}
    for node, function in readers.items():
        if function is not program.function_of(copy):
            for write in memory.points_to(node).writes:
                if write.to.is_outside and not write.attribute and write.node is not node:
                    yield write._replace(deferred=True)


def _is_carried(memory: Memory, copy: ast.Call) -> bool:
    points, graph, own = memory.points_to(copy), memory.graph(copy), made(copy)
    loops = [node for node in graph.regions if graph.is_within(copy, node)]
    if any(own in points.held(phi) for loop in loops for phi in graph.carried(loop)):
        return True
    holders = (place for (place, _), held in points.cells.held.items() if own in held)
    return any(
        place.is_outside or not (isinstance(place.root, ast.AST) and graph.is_within(place.root, loop))
        for place in holders
        for loop in loops
    )


def _is_read_behind(graph: Graph, copy: ast.Call, write: Write, readers: Iterable[ast.AST]) -> bool:
    """May one of `readers` run once the write has run, or be what writes, before the copy is made anew?"""
    return any(node is write.node or graph.reaches(write.node, node, avoiding=copy) for node in readers)


_PUTTING = frozenset({"append", "extend", "insert", "add", "setdefault"})


def asks_for_layout(program: Program, node: ast.expr) -> bool:
    """Does code ask for the layout of the tensor, or of what is computed from it: here, or where it is returned to?"""
    return _Uses(program).asks(node)


class _Uses:
    """One walk from a tensor. What functions return to other files may be asked for anything there."""

    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._seen: set[ast.AST] = set()

    def asks(self, node: ast.expr) -> bool:
        if node in self._seen:
            return False
        self._seen.add(node)
        parent = self._program.parent(node)
        if isinstance(parent, ast.keyword):
            parent = self._program.parent(parent)
        if isinstance(parent, ast.Attribute):
            return self._is_asked_by(parent)
        if isinstance(parent, ast.Call):
            return self._is_asked_in(parent, node)
        if isinstance(parent, ast.NamedExpr) and self.asks(parent):
            return True
        if parent is not None and (targets := bindings_of(parent)):
            return any(node in (target, value) and self._is_asked_of(target) for target, value in targets)
        if isinstance(parent, ast.Return):
            function = self._program.function_of(node)
            is_shown = self._program.is_called(function, Manner.CALLED)
            return is_shown or any(map(self.asks, self._program.call_sites(function)))
        if isinstance(parent, ast.Subscript) and parent.slice is node:
            return False
        return isinstance(parent, ast.expr) and self.asks(parent)

    def _is_asked_by(self, attribute: ast.Attribute) -> bool:
        name = attribute.attr
        if torch_ops.does(name, "strided") or name == "__array_interface__":
            return True
        if torch_ops.does(name, "layout_blind") or torch_ops.does(name, "measuring"):
            return False
        call = self._program.parent(attribute)
        is_method = isinstance(call, ast.Call) and call.func is attribute
        return self.asks(call if is_method and isinstance(call, ast.Call) else attribute)

    def _is_asked_in(self, call: ast.Call, node: ast.expr) -> bool:
        callee = self._program.callee(call)
        if callee is not None:
            parameter = self._program.receiver(node, call, callee)
            readers = self._flow.graph_of(callee).readers(parameter) if parameter is not None else []
            return any(map(self.asks, readers))
        name = path_of(call.func).rpartition(".")[2]
        if self._program.qualified(call.func).startswith("torch.") and torch_ops.does(name, "strided"):
            return True
        found = operation(self._program, call)
        if found is not None:
            return not found.does.does("layout_blind") and self.asks(call)
        holder = receiver_of(call, *_PUTTING)
        if isinstance(holder, ast.Name | ast.Attribute):
            return any(map(self.asks, self._held(holder)))
        return self._may_be_asked_by(call)

    def _may_be_asked_by(self, call: ast.Call) -> bool:
        """May code of which nothing is known ask for it, or is it asked of what a call gives?"""
        program, called = self._program, self._program.value(call.func)
        package, _, name = called.name.partition(".") if called.kind is Kind.LIBRARY else ("", "", "")
        if package == "builtins" and name in NEW:
            return False
        is_given_code = any(program.value(each).kind is Kind.FUNCTION for each in arguments_of(call))
        of_torch = called.kind is Kind.MODULE and torch_ops.of_forward(called.name) is not None
        is_known = of_torch or (libraries.is_pure(called.name) if package else False)
        return is_given_code or not is_known or self.asks(call)

    def _is_asked_of(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Tuple | ast.List):
            return any(map(self._is_asked_of, target.elts))
        if isinstance(target, ast.Starred):
            return self._is_asked_of(target.value)
        return any(map(self.asks, self._uses(target)))

    def _uses(self, target: ast.expr) -> Iterable[ast.expr]:
        if isinstance(target, ast.Name):
            return self._flow.graph(target).readers(target)
        if isinstance(target, ast.Attribute):
            found = self._program.attributes.get(target.attr, ())
            return [each for each in found if isinstance(each.ctx, ast.Load)]
        return self._held(target.value) if isinstance(target, ast.Subscript) else []

    def _held(self, holder: ast.expr) -> Iterable[ast.expr]:
        function = self._program.scope_of(holder)
        path = path_of(holder)
        return [each for each in occurrences(function, path) if each is not holder] if path else []
