"""Orders the statements of a training step: before its graph, in it, and after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perflint.analysis.autograd.effects import KNOWN, ModuleCalls, runs_module, steps_optimizer
from perflint.analysis.call_graph import CallGraph
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.loops.parameters import parameter_update
from perflint.analysis.memory.aliases import Memory
from perflint.analysis.program import Effect, Program
from perflint.analysis.values.values import Kind, Place
from perflint.syntax.walk import elements_of, own_nodes
from perflint.torch_ops import libraries
from perflint.transforms.aliases import written_names
from perflint.transforms.capture.calls import MODES, entry_of
from perflint.transforms.capture.host_part import (
    Around,
    Fetched,
    draws,
    draws_on_device,
    is_within,
    unwrapped,
    zeroes,
)
from perflint.transforms.capture.late import Late, changed_by, is_private
from perflint.transforms.capture.step_obstacles import DISTRIBUTION
from perflint.transforms.rewrite import Blocked

_NAMES = (ast.Attribute, ast.Name)
_HOLDING_NONE = frozenset({Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING, Kind.STRING, Kind.NUMBER, Kind.NUMPY})
_MODES = frozenset(each.rpartition(".")[2] for each in MODES)
_FORMS = frozenset({"restriding", "permuting", "adopting", "strided"})  # of what changes more than values


@dataclass
class Part:
    """One statement of a block: in the graph, unless `blocked` says why not.

    `is_early`: it goes before the graph, for this `reason`. `late` are those in it, or it alone, which go after;
    `fetched` are expressions evaluated before.
    """

    statement: ast.stmt
    blocked: Blocked | None = None
    reason: Blocked | None = None
    is_early: bool = False
    late: list[Late] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)

    @property
    def is_late(self) -> bool:
        return any(each.statement is self.statement for each in self.late)


def steps(program: Program, statement: ast.stmt) -> bool:
    """Does it step an optimizer, or update parameters by their gradients itself?"""
    return any(steps_optimizer(program, node) or _descends(program, node) for node in own_nodes(statement))


def _descends(program: Program, node: ast.AST) -> bool:
    reads = isinstance(node, ast.For) and any(getattr(each, "attr", "") == "grad" for each in own_nodes(node))
    return isinstance(node, ast.For) and reads and parameter_update(program, node) == "update"


def runs(program: Program, around: Around, parts: Sequence[Part], *, fills: bool = False) -> Iterator[list[Part]]:
    """The longest runs of parts that a graph holds, without early or late ones at their ends.

    `fills`: a statement that fills a tensor's slot may begin one.
    """
    run: list[Part] = []
    for part in [*parts, None]:
        if part is not None and part.blocked is None:
            reason = _conflict(program, around, run, part)
            if reason is not None and not _trimmed(program, run, fills):
                run, reason = [], None  # what is only in front stays there
            if reason is None:
                run.append(part)
                continue
            part.blocked, part.is_early = reason, False
        yield _trimmed(program, run, fills)
        run = []


def _trimmed(program: Program, run: list[Part], fills: bool) -> list[Part]:
    while run and (run[0].is_early or run[0].is_late or not (_works(run[0]) or (fills and _fills(program, run[0])))):
        run = run[1:]
    while run and (run[-1].is_early or run[-1].is_late or not _works(run[-1]) or _gives_none(program, run[-1])):
        run = run[:-1]
    return run


def _gives_none(program: Program, part: Part) -> bool:
    targets = part.statement.targets if isinstance(part.statement, ast.Assign) else []
    kinds = {program.value(each).kind for each in targets if isinstance(each, ast.Name)}
    return bool(kinds) and kinds.isdisjoint({Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING, Kind.UNKNOWN, Kind.METHOD})


def _fills(program: Program, part: Part) -> bool:
    targets = part.statement.targets if isinstance(part.statement, ast.Assign) else []
    filled = (program.value(each.value) for each in targets if isinstance(each, ast.Subscript))
    return any(each.kind is Kind.TENSOR and each.place is not Place.HOST for each in filled)


def _works(part: Part) -> bool:
    opaque = {node for each in part.fetched for node in own_nodes(each.value)}
    nodes = (node for node in own_nodes(part.statement) if node not in opaque)
    is_shape = isinstance(part.statement, ast.Assign) and is_metadata(part.statement.value)
    return not is_shape and any(isinstance(node, ast.Call | ast.BinOp | ast.Compare | ast.AugAssign) for node in nodes)


def _conflict(program: Program, around: Around, run: Sequence[Part], part: Part) -> Blocked | None:
    before = [each for each in run if not each.is_early]
    if part.is_early and not all(_may_precede(program, around, part.statement, each) for each in before):
        return part.reason
    stores, loads = _names_captured(part)
    fetched = {node.id for each in part.fetched for node in ast.walk(each.value) if isinstance(node, ast.Name)}
    for each in before:
        if fetched & names_in(each.statement)[0]:
            return Blocked(
                "what it copies to the device is computed in the step: compute it in front of that", part.statement
            )
        for one in each.late:
            changed = _changed(program, one, part.statement)
            if changed & (loads | stores) or _host_names(one) & stores:
                reason = "the host reads what the step has computed by then: read it behind the step"
                return Blocked(reason, one.statement)
    return None


def _names_captured(part: Part) -> tuple[set[str], set[str]]:
    late = {node for each in part.late for node in ast.walk(each.statement)}
    late -= {node for each in part.late for tensor in each.tensors for node in ast.walk(tensor)}
    names = [node for node in ast.walk(part.statement) if isinstance(node, ast.Name) and node not in late]
    stores = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    return stores, {node.id for node in names} - (stores - names_in(part.statement)[1])


def _may_precede(program: Program, around: Around, early: ast.stmt, part: Part) -> bool:
    other = part.statement
    (stores, loads), (set_before, read_before) = names_in(early), names_in(other)
    changed = set_before.union(*(_changed(program, each, early) for each in part.late))
    if (loads & changed) or (stores & (set_before | read_before)):
        return False
    if _draws_before(program, early, other):
        return False
    if zeroes(program, early) and (program.effects(other, Effect.DIFFERENTIATES) or _sees_gradients(program, other)):
        return False
    late_nodes = {node for each in part.late for node in own_nodes(each.statement)}
    if not steps(program, other) and late_nodes.issuperset(written_names(program, other)):
        return True
    names = (each for each in own_nodes(early) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    return all(_is_fresh(program, around, each) for each in names)


def _changed(program: Program, late: Late, other: ast.stmt) -> set[str]:
    changed, points = changed_by(program, late), program.get(Memory).points_to(other)
    reads = [each for each in ast.walk(other) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    names = (each for each in ast.walk(late.statement) if isinstance(each, ast.Name) and each.id in changed)
    names = (each for each in names if not is_private(program, each))
    places = points.cells.reach(place for each in names for place in points.of(each))
    reached = ((each.id, points.cells.reach(points.of(each))) for each in reads if _holds(program, each))
    changed.update(name for name, known in reached if any(one.may_be(each) for one in known for each in places))
    return names_in(late.statement)[0] | changed


def _holds(program: Program, name: ast.Name) -> bool:
    return program.value(name).kind in (Kind.SEQUENCE, Kind.MAPPING, Kind.NUMPY, Kind.INSTANCE, Kind.UNKNOWN)


def _sees_gradients(program: Program, statement: ast.stmt) -> bool:
    graph = program.get(ModuleCalls)
    callees = [each for node in ast.walk(statement) if isinstance(node, ast.Call) for each in graph.callees(node)]
    nodes = [node for each in (statement, *graph.reached(callees)) for node in ast.walk(each)]
    names = {getattr(each, "attr", getattr(each, "id", "")) for each in nodes if isinstance(each, _NAMES)}
    if any("grad" in each and each not in _MODES for each in names):
        return True
    calls = (each for each in nodes if isinstance(each, ast.Call))
    return any(not graph.callees(each) and _may_be_given_gradients(program, each) for each in calls)


def _may_be_given_gradients(program: Program, call: ast.Call) -> bool:
    """Is it no call of a module, of torch or Python, or of a tensor, container or distribution?"""
    value = program.value(call.func)
    of = value.owner if value.owner is not None else value
    if of.kind in _HOLDING_NONE or of.name == DISTRIBUTION or runs_module(program, call):
        return False
    name = program.qualified(call.func) or of.name
    if name.startswith(KNOWN) or libraries.is_pure(name):
        return "grad" in name and name not in MODES
    return entry_of(program, call) is None


def _draws_before(program: Program, early: ast.stmt, other: ast.stmt) -> bool:
    if any(draws(program, node) for node in own_nodes(early)) and program.effects(other, Effect.ELSEWHERE):
        return True
    if not any(draws_on_device(program, node) for node in own_nodes(early)):
        return False
    calls = program.get(CallGraph)
    draws_too = any(calls.has(node, draws_on_device) for node in own_nodes(other))
    return draws_too or bool(program.effects(other, Effect.RUNS_MODULE))


def _is_fresh(program: Program, around: Around, name: ast.Name) -> bool:
    if program.value(name).kind not in (Kind.TENSOR, Kind.UNKNOWN):
        return True
    graph = program.get(Flow).graph(name)
    for value in graph.definitions(name):
        source = value.source if isinstance(value, Definition) else None
        if source is None or not is_within(graph, source, around):
            return False
        if any(isinstance(each, ast.expr) and program.value(each).kind is Kind.MODULE for each in own_nodes(source)):
            return False
    return True


def _host_names(late: Late) -> set[str]:
    inside = {node for each in late.reads for node in ast.walk(each)}
    return {node.id for node in ast.walk(late.statement) if isinstance(node, ast.Name) and node not in inside}


def sunk(program: Program, run: Sequence[Part], block: Sequence[ast.stmt]) -> Iterator[ast.Assign]:
    graph, first = program.get(Flow).graph(block[0]), block.index(run[0].statement)
    made = {
        each.node
        for part in run
        for name in written_names(program, part.statement, filled=True)
        for each in graph.definitions(name)
        if isinstance(each, Definition)
    }
    before = block[:first] if not graph.caught else ()  # a handler would miss it where what is between them fails
    found = [each for each in before if isinstance(each, ast.Assign) and made & {*elements_of(each.targets[0])}]
    for each in found:
        between = [other for other in block[block.index(each) + 1 : first] if other not in found]
        (stores, loads), others = names_in(each), list(map(names_in, between))
        is_set = any(set_there & (stores | loads) or stores & read_there for set_there, read_there in others)
        is_shared = bool(stores & (graph.shared | graph.captured.keys()))
        if not is_set and not is_shared and _makes(program, each) and not _is_changed(program, each, between):
            yield each


def makes_lists(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    targets, values = elements_of(node.targets[0]), elements_of(node.value)
    are_new = all(isinstance(each, ast.List) and not each.elts for each in values)
    return are_new and len(targets) == len(values) and all(isinstance(each, ast.Name) for each in targets)


def _makes(program: Program, statement: ast.Assign) -> bool:
    if makes_lists(statement):
        return True
    call, names = unwrapped(program, statement.value), elements_of(statement.targets[0])
    if len(statement.targets) > 1 or not all(isinstance(each, ast.Name) for each in names):
        return False
    entry = entry_of(program, call) if isinstance(call, ast.Call) else None
    if entry is None or not (entry.does("factory") or entry.does("like")):
        return False
    calls = [each for each in own_nodes(call) if isinstance(each, ast.Call) and each is not call]
    is_plain = not (entry.does("random") or entry.does("of_data") or entry.shares or entry.syncs)
    return is_plain and all(map(is_metadata, calls))


def _is_changed(program: Program, statement: ast.Assign, between: Sequence[ast.stmt]) -> bool:
    points, nodes = program.get(Memory).points_to(statement), {node for each in between for node in own_nodes(each)}
    writes = [each for each in [*points.writes] if each.node in nodes]
    if not points.is_known:
        return True
    for name in (each for each in own_nodes(statement.value) if isinstance(each, ast.Name)):
        is_tensor = program.value(name).kind is Kind.TENSOR
        for write in writes:
            entry = entry_of(program, write.node) if isinstance(write.node, ast.Call) else None
            is_known = isinstance(write.node, ast.AugAssign | ast.Assign) or entry is not None
            is_of_values = is_known and (entry is None or not _FORMS & entry.traits)
            if write.reaches(points.of(name)) and not (is_tensor and is_of_values):
                return True
            if write.attribute == "data" and write.to in points.of(name):
                return True
    return False


def names_in(statement: ast.stmt) -> tuple[set[str], set[str]]:
    stores, loads = set[str](), set[str]()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            (loads if isinstance(node.ctx, ast.Load) else stores).add(node.id)
            if isinstance(getattr(statement, "target", None), ast.Name) and isinstance(statement, ast.AugAssign):
                loads.add(statement.target.id)  # type: ignore[union-attr]
    return stores, loads
