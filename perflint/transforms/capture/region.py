"""Finds the region of a training step: from the first operation on what lies on the device to before a host read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

from perflint.analysis.autograd.effects import runs_backward
from perflint.analysis.call_graph import is_handled
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Value
from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.program import GradMode, Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer, own_nodes, path_of, receiver_of
from perflint.transforms.capture.calls import MODES, called
from perflint.transforms.capture.captured import check_file
from perflint.transforms.capture.host_part import (
    Around,
    Fetched,
    Kept,
    detaches,
    early,
    fetched,
    is_within,
    kept,
    only_fetches,
    scales,
)
from perflint.transforms.capture.late import Late, late
from perflint.transforms.capture.parts import Part, names_in, runs, steps, sunk
from perflint.transforms.capture.step_obstacles import StepObstacles, leaves
from perflint.transforms.rewrite import Blocked, shown


@dataclass(frozen=True)
class Region:
    """A future graph, in the iterations of a loop or the calls of a function, `around`.

    Consecutive `parts` of `block`, and `sunk`, statements before that make what they fill. `unplaced` are indices to
    make on the device of the tensors they index, `sliced` those that become slices, `kept` the numbers to keep on the
    device. `eager` is why no optimizer steps in it. A `pure` one only computes on the device, one that `acts` by
    models; `recorded`: gradients may flow through it.
    """

    around: Around
    parts: tuple[Part, ...]
    block: tuple[Part, ...]
    sunk: tuple[ast.Assign, ...] = ()
    unplaced: tuple[tuple[ast.Call, ast.expr], ...] = ()
    sliced: tuple[tuple[ast.expr, ast.expr], ...] = ()
    kept: tuple[Kept, ...] = ()
    eager: Blocked | None = None
    pure: bool = False
    acts: bool = False
    recorded: bool = True

    @property
    def scope(self) -> ast.stmt:
        return self.block[0].statement

    @property
    def captured(self) -> list[ast.stmt]:
        return [*self.sunk, *(each.statement for each in self.parts if not (each.is_early or each.is_late))]

    @property
    def late(self) -> list[Late]:
        return [late for each in self.parts for late in each.late]

    @property
    def fetched(self) -> list[Fetched]:
        return [fetched for each in self.parts if not each.is_early for fetched in each.fetched]

    @property
    def stepped(self) -> list[ast.expr]:
        nodes = (node for each in self.captured for node in own_nodes(each))
        return [each for node in nodes if (each := receiver_of(node, "step")) is not None]

    @cached_property
    def values(self) -> dict[ast.expr, ast.expr]:
        stores = [
            node
            for each in self.captured
            for node in own_nodes(each)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        ]
        found = dict[ast.expr, ast.expr]()
        for read_late in self.late:
            for read, tensor in zip(read_late.reads, read_late.read, strict=True):
                name = tensor.id if isinstance(tensor, ast.Name) else ""
                if not name or any(each.id == name and _is_behind(each, tensor) for each in stores):
                    found[read] = tensor
        return found

    @cached_property
    def nodes(self) -> Set[ast.AST]:
        outside = {node for each in self.late for node in own_nodes(each.statement)}
        outside |= {node for each in self.fetched for node in own_nodes(each.value)}
        inside = (node for each in self.captured for node in own_nodes(each) if node not in outside)
        values = (node for each in self.values.values() for node in own_nodes(each))
        return dict.fromkeys((*inside, *values)).keys()

    def sets(self, value: Value) -> TypeGuard[Definition]:
        return isinstance(value, Definition) and value.node in self.nodes


def _is_behind(node: ast.expr, other: ast.expr) -> bool:
    return (node.lineno, node.col_offset) > (other.lineno, other.col_offset)


def _is_backward(program: Program, statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and runs_backward(program, node) for node in own_nodes(statement))


def regions(program: Program, block: list[ast.stmt], around: Around) -> list[Region]:
    """The regions of the steps in `block`; raises Blocked where there is none.

    Where none steps an optimizer, those of the backward passes alone; `eager` is why.
    """
    numbers, eager = kept(program, block, around), None
    for is_stepping in (True, False):
        obstacles = StepObstacles(program, quiet=False, steps=is_stepping)
        parts = _parts(program, block, around, numbers, obstacles)
        found = [run for run in runs(program, around, parts) if _is_whole(program, run, is_stepping)]
        if found:
            whole = Region(around, (), tuple(parts), kept=tuple(numbers), eager=eager)
            return [_region(program, replace(whole, parts=tuple(run))) for run in found]
        eager = eager or _obstacle(program, parts)
    assert eager is not None
    raise eager


_MOST = 6  # statements in front that a region is tried without


def regions_with(program: Program, inner: ast.stmt, around: Around, *, acts: bool = False) -> Iterator[Region]:
    """Largest first, then those that end at `inner`. Raises Blocked."""
    recorded = program.grad_mode(inner) is not GradMode.OFF
    obstacles = StepObstacles(program, quiet=not recorded, trains=not recorded)
    parts = _parts(program, program.block_of(inner), around, [], obstacles)
    found = runs(program, around, parts, fills=True)
    run = next((each for each in found if any(part.statement is inner for part in each)), None)
    if run is None:
        blocked = next((part.blocked for part in parts if part.statement is inner), None)
        raise blocked or Blocked("what is around it can't be captured", inner)
    whole = Region(around, tuple(run), tuple(parts), pure=True, acts=acts, recorded=recorded)
    at = next(number for number, part in enumerate(run) if part.statement is inner)
    starts = range(min(at, _MOST) + 1)
    for few in [tuple(run[first:end]) for end in dict.fromkeys((len(run), at + 1)) for first in starts]:
        if not (few[0].is_early or few[0].is_late):
            made = sunk(program, few, [each.statement for each in parts])
            yield _region(program, replace(whole, parts=few, sunk=tuple(made)))


def _parts(
    program: Program, block: list[ast.stmt], around: Around, numbers: list[Kept], obstacles: StepObstacles
) -> list[Part]:
    check_file(program)
    reader = _Reader(program, block, around, numbers, obstacles)
    return [reader.part(each) for each in block]


def _obstacle(program: Program, parts: Sequence[Part]) -> Blocked:
    first = next((n for n, each in enumerate(parts) if _is_backward(program, each.statement)), 0)
    behind = [n for n, each in enumerate(parts) if n >= first and steps(program, each.statement)]
    for part in parts[first : (behind[0] if behind else len(parts)) + 1]:
        if part.blocked is not None:
            return part.blocked
    return Blocked("no optimizer is stepped behind the backward pass", parts[first].statement)


def _is_whole(program: Program, run: Sequence[Part], is_stepping: bool) -> bool:
    first = next((n for n, each in enumerate(run) if _is_backward(program, each.statement)), len(run))
    return any(steps(program, each.statement) or not is_stepping for each in run[first:])


class _Reader:
    def __init__(
        self, program: Program, block: list[ast.stmt], around: Around, numbers: list[Kept], obstacles: StepObstacles
    ) -> None:
        self._program, self._block, self._around = program, block, around
        self._kept, self._reads = {each.name for each in numbers}, _reads_of(numbers)
        parts = (each for each in own_nodes(around) if isinstance(each, ast.Attribute))
        self._assigned = {path_of(each) for each in parts if not isinstance(each.ctx, ast.Load)} - {""}
        self._graph = program.get(Flow).graph(block[0])
        self._obstacles, self._is_training = obstacles, obstacles.trains and not obstacles.quiet

    def part(self, statement: ast.stmt) -> Part:
        part = Part(statement)
        try:
            found = self._late(statement)
            is_needed = found is None or bool(found.reads)
            part.fetched = list(fetched(self._program, statement, self._around)) if is_needed else []
            part.fetched += self._scaling(statement, part.fetched) if is_needed and self._is_training else []
            self._obstacles.opaque = {node for each in part.fetched for node in own_nodes(each.value)} | self._reads
            if part.fetched and only_fetches(self._program, statement, part.fetched):
                value = shown(self._program, part.fetched[0].value)
                raise Blocked(f"{value} fetches what the step computes with: do that in front of it", statement)
            if detaches(self._program, statement) and not self._is_of_step(statement):
                raise Blocked("it gives the step what the one before left, and no more of its gradients", statement)
            part.late = list(self._check(statement))
        except Blocked as blocked:
            part.is_early, part.late, part.fetched = early(self._program, statement), [], []
            part.blocked = None if part.is_early else blocked
            part.reason = blocked
        return part

    def _scaling(self, statement: ast.stmt, known: Sequence[Fetched]) -> Iterator[Fetched]:
        nodes = list(own_nodes(statement))
        inside, gone = set(nodes), {node for each in known for node in own_nodes(each.value)} | self._reads
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in gone:
                is_number = node.id not in self._kept and self._program.value(node).kind is Kind.NUMBER
                if is_number and scales(self._program, node) and self._is_of_host(node, inside):
                    yield Fetched(node, node.id, scales=True)

    def _is_of_step(self, statement: ast.stmt) -> bool:
        before = self._block[: self._block.index(statement)]
        stores = {name for each in before for name in names_in(each)[0]}
        return bool(names_in(statement)[1] & stores)

    def _check(self, statement: ast.stmt) -> Iterator[Late]:
        for node in leaves(statement):
            raise Blocked("it leaves the step, which a replay would not do: do that behind it", node)
        if isinstance(statement, ast.With) and self._are_modes(statement):
            for each in statement.body:
                yield from self._check(each)
            return
        found = self._late(statement)
        if found is None:
            self._check_numbers(statement)
            self._check_sums(statement)
            self._obstacles.check([statement], self._around)
            return
        for tensor in found.read:
            self._obstacles.check([tensor], self._around)
        if found.may_raise(self._program) and is_handled(self._program, statement):
            reason = "it may raise an error that is handled, and before the optimizer steps: do it behind the step"
            raise Blocked(reason, statement)
        yield found

    def _late(self, statement: ast.stmt) -> Late | None:
        is_kept = isinstance(statement, ast.Assign) and statement.value in self._reads
        return late(self._program, statement) if not is_kept else None

    def _are_modes(self, statement: ast.With) -> bool:
        names = {self._program.qualified(called(item.context_expr)) for item in statement.items}
        return names <= MODES and not any(item.optional_vars for item in statement.items)

    def _check_numbers(self, statement: ast.stmt) -> None:
        nodes = list(own_nodes(statement))
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        inside = set(nodes) - set(targets)  # which are read as the iteration before left them
        for node in nodes:
            if node in self._obstacles.opaque or not isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            if isinstance(node, ast.Attribute) and path_of(node) in self._assigned:
                reason = "is assigned in each iteration, and a graph belongs to one object: give the step a variable"
                raise Blocked(f"{shown(self._program, node)} {reason}", node)
            if isinstance(node, ast.Name) and node.id not in self._kept and self._is_of_host(node, inside):
                reason = "is another value of the host in each iteration, which a replay would not see"
                raise Blocked(f"`{node.id}` {reason}: keep what depends on it outside of the step", node)

    def _is_of_host(self, name: ast.Name, inside: Set[ast.AST], asked: Set[ast.AST] = frozenset()) -> bool:
        """May the variable have a host value that the loop sets, other than constants and tensors' shapes?

        What is set `inside` the statement is what a replay sets, computed of the same. There is a graph for either
        answer of a test, and for each item of a written list. Values computed of themselves are loop-carried: `asked`
        holds the first reads.
        """
        if name in asked:
            return True
        for value in (each for each in self._graph.definitions(name) if getattr(each, "node", None) not in inside):
            if not isinstance(value, Definition) or isinstance(value.node, ast.arg):
                continue  # which is in the key
            if not is_within(self._graph, value.node, self._around):
                continue
            is_shape = value.source is not None and _is_shape(value.source) and "each" not in value.steps
            given = value.source if is_shape else value.given
            kinds = {self._program.value(each).kind for each in (name, value.given or name)}
            if kinds & {Kind.NUMBER, Kind.STRING, Kind.NUMPY} and not (
                self._is_steady(given, asked | {name}) or _is_listed(value)
            ):
                return True
        return False

    def _is_steady(self, given: ast.expr | None, asked: Set[ast.AST]) -> bool:
        if given is None or _is_shape(given) or self._program.value(given).is_literal:
            return given is not None
        if isinstance(given, ast.Compare) or (isinstance(given, ast.UnaryOp) and isinstance(given.op, ast.Not)):
            return self._program.value(given).kind is Kind.NUMBER
        if isinstance(given, ast.IfExp):  # of which there is a graph for either value
            return self._is_steady(given.body, asked) and self._is_steady(given.orelse, asked)
        if isinstance(given, ast.BinOp):
            return self._is_steady(given.left, asked) and self._is_steady(given.right, asked)
        if isinstance(given, ast.Subscript):
            return is_metadata(given.value) and self._is_steady(given.slice, asked)
        return isinstance(given, ast.Name) and not self._is_of_host(given, set(), asked)

    def _check_sums(self, statement: ast.stmt) -> None:
        for node in own_nodes(statement):
            if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Name):
                continue
            inside = {part for each in self._block for part in own_nodes(each)}
            if not any(self._graph.dominates(each, node.target) for each in self._started(node.target.id, inside)):
                name = node.target.id
                raise Blocked(f"`{name}` is changed in place: write `{name} = {name} + ...` or the like", node)

    def _started(self, name: str, inside: Set[ast.AST]) -> Iterator[ast.AST]:
        for each in self._graph.bindings.get(name, ()):
            if each.node in inside and each.updates is None:
                yield each.node


def _is_shape(node: ast.expr) -> bool:
    """Is it metadata, or some sizes in a row: `x.shape[:2]`?"""
    cut = node.slice if isinstance(node, ast.Subscript) else None
    if not isinstance(node, ast.Subscript) or not isinstance(cut, ast.Slice):
        return is_metadata(node)
    bounds = [each for each in (cut.lower, cut.upper, cut.step) if each is not None]
    return is_metadata(node.value) and None not in map(integer, bounds)


def _is_listed(value: Definition) -> bool:
    items = value.source.elts if isinstance(value.source, ast.List | ast.Tuple) and value.steps == ("each",) else []
    return bool(items) and all(isinstance(each, ast.Constant) for each in items)


def _reads_of(numbers: Sequence[Kept]) -> set[ast.AST]:
    return {node for each in numbers for read in each.reads for node in (read, read.func)}


def shortened(program: Program, region: Region) -> Iterator[Region]:
    """The region up to each step of an optimizer, the last first; the rest may be another step's."""
    yield region
    ends = _is_backward if region.eager else steps
    for number in reversed(range(len(region.parts))):
        parts = region.parts[: number + 1]
        if ends(program, parts[-1].statement) and _is_whole(program, parts, region.eager is None):
            yield _region(program, replace(region, parts=parts))


def _region(program: Program, found: Region) -> Region:
    trains, is_stepping = not (found.pure and found.recorded), found.eager is None
    obstacles = StepObstacles(program, quiet=not found.recorded, trains=trains, steps=is_stepping)
    everything = {node for part in found.parts for node in own_nodes(part.statement)}
    obstacles.opaque = (everything - found.nodes) | _reads_of(found.kept)
    obstacles.check([*found.captured, *(each for late in found.late for each in late.read)], found.around)
    names = {node.id for node in found.nodes if isinstance(node, ast.Name)}
    numbers = tuple(each for each in found.kept if each.name in names)
    indices = tuple(obstacles.unplaced.items()), tuple(obstacles.sliced.items())
    return replace(found, kept=numbers, unplaced=indices[0], sliced=indices[1])
