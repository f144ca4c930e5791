"""The IR of one function or module: basic blocks, and SSA values tied to the nodes of its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from perflint.syntax.scopes import local_names
from perflint.syntax.walk import Function, Loop, reachable

Scope = Function | ast.Module
Step = int | Literal["each", "enter", "part"]


@dataclass(eq=False, slots=True)
class Block:
    """Nodes that run one after the other."""

    index: int
    predecessors: list[Block] = field(default_factory=list, repr=False)
    successors: list[Block] = field(default_factory=list, repr=False)


@dataclass(eq=False, slots=True)
class Value:
    name: str
    uses: list[ast.Name] = field(default_factory=list, repr=False)


@dataclass(eq=False, slots=True)
class Definition(Value):
    """A binding of a variable, at `node`: ast.Name, ast.arg, ast.alias, a def or class, or what binds it in a pattern.

    It is given the part of `source` that `steps` lead to: the item at an index, "each" item of an iteration, what the
    context manager gives when it is entered, or some "part" of it. `source` is None where no expression gives it.
    `updates` is the value that an augmented assignment starts from.
    """

    node: ast.AST = field(kw_only=True)
    source: ast.expr | None = None
    steps: tuple[Step, ...] = ()
    updates: Value | None = None

    @property
    def given(self) -> ast.expr | None:
        """What gives the variable all of its value; None where that is part of something, or not known."""
        return self.source if not self.steps and self.updates is None else None


@dataclass(eq=False, slots=True)
class Phi(Value):
    """The value of a variable where control flow joins: one operand for each predecessor of `block`."""

    block: Block = field(kw_only=True)
    operands: dict[Block, Value] = field(default_factory=dict, repr=False)
    users: list[Phi] = field(default_factory=list, repr=False)


@dataclass(eq=False, slots=True)
class Outer(Value):
    """What a variable holds that this scope does not bind here: an outer scope's, a builtin, or nothing."""


@dataclass(eq=False)
class Region:
    """A loop, or a comprehension as one: `header` decides on each iteration; `blocks`, with it, run in one."""

    node: ast.AST
    header: Block
    outer: Region | None
    blocks: set[Block] = field(default_factory=set, repr=False)


class Graph:
    """The control flow graph of `scope` in SSA form.

    A name that other code may rebind while the scope runs (`shared`) has no SSA values: each of its reads is an Outer.
    """

    def __init__(self, scope: Scope | Loop) -> None:
        self.scope = scope
        self.blocks: list[Block] = []
        self.joins: dict[Block, ast.If] = {}  # where the branches of an `if` meet
        self.caught: set[Block] = set()  # where exceptions lead
        self.places: dict[ast.AST, tuple[Block, int]] = {}
        self.values: dict[ast.AST, Value] = {}
        self.bindings: dict[str, list[Definition]] = {}  # of each variable, in the order of the source
        self.phis: dict[Block, list[Phi]] = {}
        self.regions: dict[ast.AST, Region] = {}
        self.inner: list[Function] = []
        self.deferred: list[ast.AST] = []
        self.shared: set[str] = set()
        self._reachable: dict[Block, set[Block]] = {}

    # -- control flow

    def runs_after(self, node: ast.AST, point: ast.AST) -> bool:
        """May `node` run after `point`, in the same call of the scope? True where the graph holds neither."""
        if node not in self.places or point not in self.places:
            return True
        (block, order), (start, begun) = self.places[node], self.places[point]
        return (block is start and order > begun) or block in self._reached(start)

    def reaches(self, start: ast.AST, end: ast.AST, avoiding: ast.AST) -> bool:
        """May `end` run after `start` without `avoiding` in between? True where the graph lacks one."""
        if not all(node in self.places for node in (start, end, avoiding)):
            return True
        (block, begun), (last, order), (wall, stop) = (self.places[node] for node in (start, end, avoiding))
        if last is block and order > begun and not (wall is block and begun < stop < order):
            return True
        behind = self._reached_past([] if wall is block and stop > begun else block.successors, wall)
        return last in behind and not (last is wall and stop < order)

    def dominates(self, one: ast.AST, other: ast.AST) -> bool:
        """Does `one` run whenever `other` does, and before it? False where the graph lacks one."""
        if one not in self.places or other not in self.places:
            return False
        (block, order), (behind, later) = self.places[one], self.places[other]
        return order < later if block is behind else behind not in self._reached_past([self.blocks[0]], block)

    def _reached(self, start: Block) -> set[Block]:
        if start not in self._reachable:
            self._reachable[start] = self._reached_past(start.successors)
        return self._reachable[start]

    def _reached_past(self, starts: Sequence[Block], wall: Block | None = None) -> set[Block]:
        """These blocks, and those that control may reach from them without running `wall`."""
        found, pending = set[Block](), [*starts]
        while pending:
            each = pending.pop()
            if each not in found:
                found.add(each)
                pending += each.successors if each is not wall else ()
        return found

    def raises_to(self, loop: ast.AST) -> set[Block]:
        region = self.regions.get(loop)
        blocks = region.blocks if region is not None else set[Block]()
        caught = (each for block in blocks for each in block.successors if each in self.caught - blocks)
        return self._reached_past([*caught])

    def is_caught_in(self, node: ast.AST, loop: ast.AST) -> bool:
        block, blocks = self.places[node][0], self.regions[loop].blocks
        return any(each in self.caught & blocks for each in block.successors)

    # -- values

    @cached_property
    def captured(self) -> dict[str, list[ast.Name]]:
        found: dict[str, list[ast.Name]] = {}
        for function in self.inner:
            own = local_names(function)
            for part in ast.walk(function):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in own:
                    found.setdefault(part.id, []).append(part)
        return found

    def value(self, name: ast.AST) -> Value | None:
        return self.values.get(name)

    def read(self, name: ast.Name) -> Value | None:
        value = self.values.get(name)
        return getattr(value, "updates", None) if isinstance(name.ctx, ast.Store) else value

    def definitions(self, name: ast.AST) -> tuple[Value, ...]:
        """The values, other than phis, that may reach a name, also what an augmented assignment starts from.

        Each once, in an order that runs don't differ in.
        """
        value = self.values.get(name)
        return tuple(sources_of(value)) if value is not None else ()

    def only_definition(self, name: ast.AST) -> Definition | None:
        """The one value that a name may have, if it is bound in sight."""
        found = self.definitions(name)
        return found[0] if len(found) == 1 and isinstance(found[0], Definition) else None

    def reaching(self, name: ast.Name) -> Set[ast.AST]:
        """The ast.Name or ast.arg nodes whose values a name may have: one that is augmented, before that."""
        found = (node for node in self._bound_by(name) if isinstance(node, ast.Name | ast.arg))
        return dict.fromkeys(found).keys()

    @cached_property
    def uses(self) -> dict[ast.AST, list[ast.Name]]:
        """The names that may have the value bound at a node."""
        found: dict[ast.AST, list[ast.Name]] = {}
        for name in (each for each in self.values if isinstance(each, ast.Name)):
            for node in dict.fromkeys(self._bound_by(name)):
                found.setdefault(node, []).append(name)
        return found

    def _bound_by(self, name: ast.Name) -> Iterator[ast.AST]:
        value = self.read(name)
        return (each.node for each in (sources_of(value) if value else ()) if isinstance(each, Definition))

    def readers(self, definition: ast.Name | ast.arg) -> list[ast.Name]:
        """The names that read what is bound at `definition`, and those in functions inside that may."""
        name = definition.arg if isinstance(definition, ast.arg) else definition.id
        return [*self.uses.get(definition, ()), *self.captured.get(name, ())]

    def is_shared(self, name: str) -> bool:
        return name in self.shared or name in self.captured

    def carried(self, loop: ast.AST) -> list[Phi]:
        region = self.regions.get(loop)
        return [] if region is None else [phi for phi in self.phis.get(region.header, []) if phi.uses or phi.users]

    def initial_values(self, loop: ast.AST, phi: Phi) -> list[Value]:
        """What a loop-carried variable holds when `loop` is entered."""
        region = self.regions[loop]
        return [value for block, value in phi.operands.items() if block not in region.blocks]

    def back_edge_values(self, loop: ast.AST, phi: Phi) -> list[Value]:
        """What the iterations of `loop` leave in a loop-carried variable."""
        region = self.regions[loop]
        return [value for block, value in phi.operands.items() if block in region.blocks and value is not phi]

    def live_out(self, loop: ast.AST) -> set[str]:
        """The variables that are live at the exit of `loop`, also for its next run."""

        def is_live(value: Value | None) -> bool:
            made = (each for each in sources_of(value) if isinstance(each, Definition)) if value is not None else ()
            return any(self.is_within(each.node, loop) for each in made)

        found = {phi.name for phi in self.carried(loop) if any(map(is_live, self.initial_values(loop, phi)))}
        for node in self.values:
            if isinstance(node, ast.Name) and not self.is_within(node, loop):
                found.update([node.id] if is_live(self.read(node)) else [])
        return found

    def is_within(self, node: ast.AST, loop: ast.AST) -> bool:
        region, place = self.regions.get(loop), self.places.get(node)
        return region is not None and place is not None and place[0] in region.blocks


class Variables:
    """SSA as it is built, after Braun et al., "Simple and Efficient Construction" (2013)."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[tuple[str, Block], Value] = {}
        self._incomplete: dict[Block, list[Phi]] = {}
        self._sealed: set[Block] = set()
        self._replaced: dict[Value, Value] = {}

    def write(self, name: str, block: Block, value: Value) -> None:
        self._values[name, block] = value

    def read(self, name: str, block: Block) -> Value:
        if (name, block) not in self._values:
            self._complete(self._search(name, [block]))
        return self.current(self._values[name, block])

    def seal(self, block: Block) -> None:
        self._sealed.add(block)
        phis = self._incomplete.pop(block, [])
        for phi in phis:
            self._complete([*self._search(phi.name, [*block.predecessors]), phi])

    def current(self, value: Value) -> Value:
        while (other := self._replaced.get(value)) is not None:
            value = other
        return value

    def _search(self, name: str, pending: list[Block]) -> list[Phi]:
        """Give `name` a value in these blocks and those before; the new phis, without operands yet."""
        phis: list[Phi] = []
        straight: list[Block] = []
        while pending:
            block = pending.pop()
            if (name, block) in self._values:
                continue
            if block in self._sealed and len(block.predecessors) == 1:
                straight.append(block)
                pending.append(block.predecessors[0])
            elif block in self._sealed and not block.predecessors:
                self.write(name, block, Outer(name))
            else:
                phi = Phi(name, block=block)
                self.write(name, block, phi)
                if block in self._sealed:
                    phis.append(phi)
                    pending += block.predecessors
                else:
                    self._incomplete.setdefault(block, []).append(phi)
        for block in reversed(straight):
            self.write(name, block, self._values[name, block.predecessors[0]])
        return phis

    def _complete(self, phis: list[Phi]) -> None:
        for phi in phis:
            for block in phi.block.predecessors:
                phi.operands[block] = value = self.current(self._values[phi.name, block])
                if isinstance(value, Phi):
                    value.users.append(phi)
            self._graph.phis.setdefault(phi.block, []).append(phi)
        self._simplify(phis)

    def _simplify(self, pending: list[Phi]) -> None:
        while pending:
            phi = pending.pop()
            only = self._only_operand(phi) if phi not in self._replaced else None
            if only is None:
                continue
            self._replaced[phi] = only
            self._graph.phis[phi.block].remove(phi)
            if isinstance(only, Phi):
                only.users += phi.users
            pending += [user for user in phi.users if user.operands]

    def _only_operand(self, phi: Phi) -> Value | None:
        only: Value | None = None
        for operand in phi.operands.values():
            value = self.current(operand)
            if value is phi or value is only:
                continue
            if only is not None:
                return None
            only = value
        return only


def sources_of(value: Value) -> Iterator[Value]:
    """The values other than phis that `value` may be."""
    pending, seen = [value], set[Value]()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        if isinstance(each, Phi):
            pending += each.operands.values()
        else:
            yield each


def updated_by(value: Value) -> Iterator[Value]:
    """The same, and those that augmented assignments made them of."""

    def before(each: Value) -> Iterator[Value]:
        return sources_of(each.updates) if isinstance(each, Definition) and each.updates is not None else iter(())

    return reachable(sources_of(value), before)
