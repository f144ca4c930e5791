"""What an outlined step leaves to the code around: variables, writes, the tape; and its name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.autograd.effects import asks_for_gradients, runs_backward, steps_optimizer
from perflint.analysis.autograd.graph_use import with_graphs
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Phi, Value, sources_of
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.memory.locations import Write
from perflint.analysis.program import Effect, Fate, GradMode, Program
from perflint.analysis.values.operations import move, operation
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import LOOPS, own_nodes, path_of, reachable, receiver_of, root_of
from perflint.transforms.capture.host_part import Around, detaches, is_within
from perflint.transforms.capture.late import changed_by
from perflint.transforms.capture.region import Region
from perflint.transforms.capture.step_obstacles import is_model
from perflint.transforms.rewrite import Blocked, Taken, check_alone, shown

_OF_SCOPE = frozenset("builtins.locals builtins.vars builtins.dir".split())  # without arguments
_OF_ANY = frozenset("builtins.eval builtins.exec builtins.globals sys._getframe inspect.currentframe".split())


def check_scope(program: Program, region: Region, outermost: Around) -> None:
    if isinstance(program.definition_around(region.scope), ast.ClassDef):
        raise Blocked("it trains while a class is made: do that in a function", region.scope)
    for node in region.nodes:
        if isinstance(node, ast.Name) and node.id in ("super", "__class__"):
            raise Blocked(f"`{node.id}` means something else in a function of its own", node)
    whole = [each.statement for each in region.parts]
    for statement in whole:
        check_alone(program, statement, *whole)
    for inner in (each.statement for each in region.late if each.statement not in whole):
        check_alone(program, inner)
    _check_shared(program, region)
    _check_caught(program, region)
    for call in _looks_up(program, region, outermost):
        reason = "may look for a variable of the step, which has them for itself then: name what it reads"
        raise Blocked(f"{shown(program, call)} {reason}", call)


def _check_shared(program: Program, region: Region) -> None:
    graph = program.get(Flow).graph(region.scope)
    shared = graph.shared | graph.captured.keys()
    for name in region.nodes:
        is_store = isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load)
        if is_store and isinstance(name, ast.Name) and name in graph.values and name.id in shared:
            reason = "which the step sets, is seen by other code at any time: set it behind the step"
            raise Blocked(f"`{name.id}`, {reason}", name)


def _check_caught(program: Program, region: Region) -> None:
    graph = program.get(Flow).graph(region.scope)
    nodes = {node for part in region.parts for node in own_nodes(part.statement)}
    blocks = {graph.places[node][0] for node in nodes if node in graph.places}
    caught = {each for block in blocks for each in block.successors if each in graph.caught}
    for phi in (phi for block in caught for phi in graph.phis.get(block, [])):
        inside = [each.node for each in sources_of(phi) if isinstance(each, Definition) and each.node in nodes]
        if inside and _is_read(phi):
            reason = "is read where the step fails, too, and a call that fails sets nothing: read it behind the step"
            raise Blocked(f"`{phi.name}` {reason}", inside[0])
    for late in region.late if caught else ():
        if changed := changed_by(program, late):
            reason = "is changed in the middle of a step that may fail: do that behind the step"
            raise Blocked(f"`{min(changed)}` {reason}", late.statement)


def _is_read(phi: Phi) -> bool:
    return any(True for _ in _readers(phi))


def _readers(phi: Phi) -> Iterator[ast.Name]:
    return (name for each in reachable([phi], lambda each: each.users) for name in each.uses)


def _looks_up(program: Program, region: Region, outermost: Around) -> Iterator[ast.Call]:
    graph = program.get(Flow).graph(region.scope)
    scope = program.function_of(region.scope) or program.tree
    for call in (each for each in ast.walk(scope) if isinstance(each, ast.Call)):
        name = program.qualified(call.func)
        is_own = call in graph.places
        looks_here = is_own and name in _OF_SCOPE and not (call.args or call.keywords)
        is_before = is_own and not graph.is_within(call, outermost) and not graph.runs_after(call, outermost)
        if (looks_here or name in _OF_ANY) and not is_before:
            yield call


_HANDED_ON = (Fate.KEPT, Fate.RETURNED, Fate.LOST)


def check_tape(
    program: Program, region: Region, reads: Iterable[tuple[ast.Name, list[Value]]], behind: Iterable[ast.Name]
) -> None:
    """Raise Blocked where `region` differentiates earlier computations, or others what it computes.

    `reads` are the names it reads, with their values; `behind` those elsewhere that may read its results.
    """
    tape = _Tape(program, region)
    tape.check_before(reads)
    tape.check_carried()
    tape.check_behind(behind)


def check_leaf(program: Program, name: ast.Name, values: Iterable[Value]) -> None:
    sources = (each.source for each in values if isinstance(each, Definition) and each.source is not None)
    asked = [each for source in sources for each in own_nodes(source)]
    for node in own_nodes(program.scope_of(name)):
        if isinstance(node, ast.Call):
            asked += [node] if path_of(receiver_of(node, "requires_grad_") or node) == name.id else []
        elif isinstance(node, ast.Assign):
            asked += [node] if f"{name.id}.requires_grad" in map(path_of, node.targets) else []
    if any(asks_for_gradients(each) for each in asked):
        raise Blocked(f"`{name.id}` is to get gradients, and a graph reads a copy of it: make it in the step", name)


class _Tape:
    def __init__(self, program: Program, region: Region) -> None:
        self._program, self._region = program, region
        self._graph = program.get(Flow).graph(region.scope)

    def check_before(self, reads: Iterable[tuple[ast.Name, list[Value]]]) -> None:
        if not (self._records() or self._is_computed_inside()):
            first = self._region.parts[0]
            before = [each.blocked for each in self._region.block[: self._region.block.index(first)] if each.blocked]
            none = Blocked("it runs no model that is known: a step begins with a forward pass", first.statement)
            raise before[-1] if before else none
        runs_model = self._records()
        given = (value for name, values in reads if not is_cut(self._program, name) for value in values)
        for value in reachable(given, lambda each: self._computed_of(each) if self._may_have_graph(each) else []):
            if isinstance(value, Definition) and value.source is not None and self._may_have_graph(value):
                is_run = self._program.effects(value.source, Effect.RECORDS) or _runs(self._program, value.source)
                if is_run or self._may_record(value.source) or not (runs_model or self._is_moved(value)):
                    raise self._reason(value.source)

    def _is_moved(self, value: Definition) -> bool:
        kinds = (Kind.TENSOR, Kind.SEQUENCE, Kind.MAPPING)
        is_tensor = isinstance(value.node, ast.Name) and self._program.value(value.node).kind in kinds
        moves = [each for each in own_nodes(value.source or value.node) if isinstance(each, ast.Call)]
        return not is_tensor or (bool(moves) and all(move(self._program, each) for each in moves))

    def _records(self) -> bool:
        return any(
            self._program.effects(each, Effect.RECORDS) or _runs(self._program, each) for each in self._region.captured
        )

    def _is_computed_inside(self) -> bool:
        calls = [
            each for each in self._region.nodes if isinstance(each, ast.Call) and runs_backward(self._program, each)
        ]
        values = [self._values_in(each) for each in calls]
        return bool(values) and all(each and all(map(self._region.sets, each)) for each in values)

    def _may_have_graph(self, value: Value) -> bool:
        source = value.source if isinstance(value, Definition) else None
        if source is None or self._region.sets(value) or not is_within(self._graph, source, self._region.around):
            return False
        is_cut = detaches(self._program, self._program.statement_of(source))
        return not is_cut and self._program.grad_mode(source, callers=False) is not GradMode.OFF

    def _may_record(self, source: ast.expr) -> bool:
        for call in (each for each in own_nodes(source) if isinstance(each, ast.Call)):
            value = self._program.value(call.func)
            known = self._program.callee(call) is not None or value.kind in (Kind.LIBRARY, Kind.CLASS)
            of_tensor = isinstance(call.func, ast.Attribute) and torch_ops.of_method(call.func.attr) is not None
            given = [*call.args, *(each.value for each in call.keywords)]
            if not known and not of_tensor and any(self._program.value(each).kind is Kind.TENSOR for each in given):
                return True
        return False

    def _reason(self, node: ast.expr) -> Blocked:
        parts = self._region.block
        for part in parts[: parts.index(self._region.parts[0])]:
            if part.blocked is not None and (part.statement.end_lineno or 0) >= node.lineno:
                return part.blocked
        return Blocked("it runs a model with gradients, and a graph can't begin before it", node)

    def check_behind(self, names: Iterable[ast.Name]) -> None:
        """Raise Blocked where the step's results may be differentiated later: a replay records nothing.

        What it differentiates itself nobody can differentiate again.
        """
        nodes, program = self._region.nodes, self._program
        for name in names:
            uses = [each for each in program.graph_uses(name) if each.node not in nodes]
            used = next((each.node for each in uses if each.fate is Fate.DIFFERENTIATED), None)
            if used is not None:
                reason = "differentiates what the step before it computes, and a replay records nothing for that"
                raise Blocked(f"it {reason}: compute that again behind the step", used)
            asked = next((each.node for each in uses if each.fate is Fate.ASKED), None)
            if asked is not None:
                raise Blocked(f"`{ast.unparse(asked)}` is asked for, and a replay gives a copy: ask in the step", asked)
            handed = next((each.node for each in uses if each.fate in _HANDED_ON), None)
            if handed is not None and name in self._recorded and not self._is_spent(name):
                reason = "may be differentiated behind the step, and a replay records nothing for that"
                raise Blocked(f"`{name.id}` {reason}: detach it", handed)

    def _is_spent(self, name: ast.Name) -> bool:
        values = (each for each in self._graph.definitions(name) if self._region.sets(each))
        sources = (each.source for each in values if each.source is not None)
        ends = ((each.fate, each.node) for source in sources for each in self._program.graph_uses(source))
        return any(fate is Fate.DIFFERENTIATED and node in self._region.nodes for fate, node in ends)

    def check_carried(self) -> None:
        """Raise Blocked where a graph goes on into the next iteration: a replay reads copies of arguments."""
        around = self._region.around
        for phi in self._graph.carried(around) if not isinstance(around, ast.FunctionDef) else ():
            made = (each for value in self._graph.back_edge_values(around, phi) for each in sources_of(value))
            is_recorded = any(self._region.sets(each) and each.source in self._recorded for each in made)
            for name in _readers(phi) if is_recorded else ():
                if name in self._region.nodes and name in self._recorded and not self._is_detached(name):
                    reason = "is computed with gradients in the iteration before"
                    raise Blocked(f"`{name.id}` {reason}: detach it", name)

    def _is_detached(self, name: ast.Name) -> bool:
        return is_cut(self._program, name) or detaches(self._program, self._program.statement_of(name))

    @cached_property
    def _recorded(self) -> set[ast.AST]:
        return {each for part in self._region.captured for each in with_graphs(self._program, part)}

    def _computed_of(self, value: Value) -> list[Value]:
        return self._values_in(value.source) if isinstance(value, Definition) and value.source is not None else []

    def _values_in(self, node: ast.expr) -> list[Value]:
        names = (each for each in ast.walk(node) if isinstance(each, ast.Name) and not is_cut(self._program, each))
        return [value for name in names for value in self._graph.definitions(name)]


def is_cut(program: Program, name: ast.Name) -> bool:
    around = program.parent(name)
    call = program.parent(around) if isinstance(around, ast.Attribute) else None
    is_shape = any(isinstance(each, ast.expr) and is_metadata(each) for each in (around, call))
    return is_shape or any(_detaches(program, each) for each in program.ancestors(name))


def _detaches(program: Program, node: ast.AST) -> bool:
    around = program.parent(node) if isinstance(node, ast.Attribute) and node.attr == "detach" else None
    return isinstance(around, ast.Call) and around.func is node


def _runs(program: Program, node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and is_model(program, each.func) for each in own_nodes(node))


def is_of_step(program: Program, write: Write) -> bool:
    """Is it a known write to more than a module's own, as its parameters, which no argument is?"""
    found = operation(program, write.node)
    written = [each for argument in found.does.writes for each in argument.of(found.call)] if found else []
    names = [each for base in written for each in _names_behind(program, root_of(base))]
    is_of_module = bool(names) and all(program.value(each).kind is Kind.MODULE for each in names)
    is_of_module = is_of_module and not any(_is_made_there(program, each, write.node) for each in names)
    return not (write.deep or is_of_module or steps_optimizer(program, write.node))


def _is_made_there(program: Program, name: ast.Name, node: ast.AST) -> bool:
    graph, loops = program.get(Flow).graph(name), [each for each in program.ancestors(node) if isinstance(each, LOOPS)]
    return any(graph.is_within(each, loop) for each in graph.reaching(name) for loop in loops)


def _names_behind(program: Program, root: ast.AST) -> Iterator[ast.Name]:
    for value in program.get(Flow).graph(root).definitions(root) or [None]:
        nodes = (each for each in own_nodes(getattr(value, "source", None) or root) if isinstance(each, ast.Name))
        yield from (each for each in nodes if not program.qualified(each))


_NAMES = ("step", "train_step", "training_step", "graphed")
_WORDS = ("optimizer", "optimiser", "optim", "opt")


def step_name(program: Program, region: Region, owner: str, results: Sequence[str], taken: Taken) -> str:
    """The function's name: by its optimizer, where that is one of several, or by its first result.

    `owner` is `self` or the like of a method. Raises Blocked where no name is free.
    """
    paths = {ast.unparse(each) for each in region.stepped}
    last = paths.pop().rpartition(".")[2].lower() if len(paths) == 1 else ""
    word = next((each for each in _WORDS if each in last), "")
    stem = last.replace(word, "").strip("_")
    names = [f"{stem}_step", *_NAMES] if word and stem.isidentifier() else list(_NAMES)
    if region.eager:
        names = ["compute_gradients"]
    if region.pure:
        names = [f"compute_{results[0]}" if results else _NAMES[-1]]
    if isinstance(region.around, ast.FunctionDef):
        function = region.around.name.strip("_")
        is_named = region.pure or function.endswith(names[0])
        private = "__" if owner else "_"  # a method's is mangled: a class below may have one like it
        names = [f"{private}graphed_{function}" if is_named else f"{private}{function}_{names[0]}"]
        class_around = program.parent(region.around) if owner else None  # whose name a method's is mangled by
        methods = [getattr(each, "name", "") for each in getattr(class_around, "body", ())]
        several = [f"{names[0]}_{number}" for number in (2, 3)] if region.pure else []  # loops of one function
        free = [each for each in (*names, *several) if each not in (methods if owner else program.text)]
        if not free or _is_defined_again(program, region.around):
            raise Blocked(f"there is a `{names[0]}` already: decorate the step by hand", region.scope)
        names = free
    return taken.fresh(next((each for each in names if each not in taken.names), names[0]))


def _is_defined_again(program: Program, function: ast.FunctionDef) -> bool:
    others = (each for each in program.of_type(ast.FunctionDef) if each.name == function.name and each is not function)
    return any(program.definition_around(each) is program.definition_around(function) for each in others)
