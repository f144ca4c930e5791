"""The IR while it is built: blocks, edges, and SSA after Braun et al., "Simple and Efficient Construction" (2013)."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from perflint.analysis.ir.graph import Block, Definition, Graph, Outer, Phi, Region, Scope, Step, Value
from perflint.syntax.scopes import bound_names, local_names
from perflint.syntax.walk import FUNCTIONS, own_nodes, path_of, whole_of
from perflint.syntax.walk import Loop as LoopNode


class _Variables:
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
        """Give `name` a value in these blocks and in all that it comes from; the new phis, without operands yet."""
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
        """Let the value that a phi always is stand for the phi."""
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


Writes = Callable[[ast.Call], Iterable[str]]  # the paths of what a call changes


@dataclass(eq=False)
class Finally:
    """A `finally` that jumps pass through: those that do leave it for their targets."""

    entry: Block
    targets: set[Block] = field(default_factory=set)


@dataclass(eq=False)
class Loop:
    """Where `break` and `continue` of a loop go, and how many `finally` blocks stand around the loop."""

    breaks: Block
    continues: Block
    depth: int


class Building(ABC):
    def __init__(self, scope: Scope | LoopNode, writes: Writes | None = None) -> None:
        self.graph = graph = Graph(scope)
        self._writes = writes
        written = {*_written(scope, writes)} if writes is not None else set[str]()
        self._fields = sorted(each for each in written if "." in each)
        self._bound = written | _bound(scope)
        self._outer: dict[str, Outer] = {}  # what the scope reads and never binds
        self._variables = _Variables(graph)
        self._region: Region | None = None
        self._loops: list[Loop] = []
        self._finals: list[Finally] = []
        self._handlers: list[Block] = []
        self._private: list[dict[str, str]] = []  # names of class bodies and comprehensions, which others don't see
        self._comprehensions = 0  # from where on these are comprehensions', whose walruses bind further out
        self._reads: list[tuple[ast.AST, Value]] = []
        self._exit = Block(-1)
        self._dead: set[Block] = set()  # what no path from the entry reaches
        self._block = self._new()
        self._variables.seal(self._block)
        self._count = 0

    @abstractmethod
    def _visit(self, node: ast.AST) -> None:
        """Lower an expression."""

    def _finish(self) -> None:
        graph, current = self.graph, self._variables.current
        for phi in (phi for phis in graph.phis.values() for phi in phis):
            phi.operands = {block: current(value) for block, value in phi.operands.items()}
            phi.users = []
        for phi in (phi for phis in graph.phis.values() for phi in phis):
            for value in phi.operands.values():
                if isinstance(value, Phi):
                    value.users.append(phi)
        for node, value in self._reads:
            graph.values[node] = value = current(value)
            if isinstance(node, ast.Name):
                value.uses.append(node)
        for binding in (each for bindings in graph.bindings.values() for each in bindings):
            if binding.updates is not None:
                binding.updates = current(binding.updates)

    # -- blocks

    def _new(self) -> Block:
        block = Block(len(self.graph.blocks))
        self.graph.blocks.append(block)
        region = self._region
        while region is not None:
            region.blocks.add(block)
            region = region.outer
        return block

    def _edge(self, start: Block, end: Block) -> None:
        if end not in start.successors and start not in self._dead:
            start.successors.append(end)
            end.predecessors.append(start)

    def _enter(self, block: Block, *, sealed: bool = True) -> None:
        if sealed:
            self._variables.seal(block)
        if not block.predecessors:
            self._dead.add(block)
        self._block = block

    def _go(self, block: Block, *, sealed: bool = True) -> None:
        self._edge(self._block, block)
        self._enter(block, sealed=sealed)

    def _jump(self, target: Block, depth: int = 0) -> None:
        for final in self._finals[depth:]:
            final.targets.add(target)
            target = final.entry
        if target is not self._exit:
            self._edge(self._block, target)
        self._enter(self._new())  # what stands after can't be reached

    def _split(self) -> None:
        """Within `try`: begin a block, so that its handlers also find what holds at this point."""
        if self._handlers:
            for handler in self._handlers:
                self._edge(self._block, handler)
            self.graph.caught.update(self._handlers)
            self._go(self._new())

    def _begin_loop(self, node: ast.AST) -> Region:
        region = Region(node, Block(-1), self._region)
        self._region = region
        region.header = self._new()
        self._go(region.header, sealed=False)
        self.graph.regions[node] = region
        return region

    def _end_loop(self, region: Region) -> None:
        self._edge(self._block, region.header)
        self._variables.seal(region.header)
        self._region = region.outer

    # -- variables

    def _local(self, name: str) -> str:
        for names in reversed(self._private):
            if name in names:
                return names[name]
        return name

    def _define(
        self,
        name: str,
        node: ast.AST,
        source: ast.expr | None = None,
        steps: tuple[Step, ...] = (),
        updates: Value | None = None,
    ) -> None:
        value = Definition(name, node=node, source=source, steps=steps, updates=updates)
        self.graph.values[node] = value
        self.graph.bindings.setdefault(name, []).append(value)
        self._place(node)
        local = self._local(name)
        if local not in self.graph.shared:
            self._bound.add(local)
            for path in (local, *(each for each in self._fields if each.startswith(f"{local}."))):
                self._variables.write(path, self._block, value)

    def _update(self, node: ast.AST, target: ast.expr, source: ast.expr | None, steps: tuple[Step, ...]) -> None:
        """Where attributes are variables: give the one that is `target`, or that `target` is a part of, a value."""
        path = whole_of(target) if self._writes is not None else ""
        if path and path == path_of(target):
            self._define(path, node, source, steps)
        elif path:
            self._define(path, node, source, (*steps, "part"), updates=self._held(path))

    def _held(self, path: str) -> Value:
        local = self._local(path)
        if local in self.graph.shared:
            return Outer(path)
        if local not in self._bound and local is path:
            return self._outer.setdefault(path, Outer(path))
        return self._variables.read(local, self._block)

    def _read(self, node: ast.Name | ast.Attribute, path: str) -> None:
        self._reads.append((node, self._held(path)))

    def _place(self, node: ast.AST) -> None:
        self._count += 1
        self.graph.places[node] = self._block, self._count

    def _assign(self, target: ast.expr, source: ast.expr | None, steps: tuple[Step, ...] = ()) -> None:
        if isinstance(target, ast.Name):
            self._define(target.id, target, source, steps)
        elif isinstance(target, ast.Tuple | ast.List):
            self._place(target)
            self._unpack(target.elts, source, steps)
        elif isinstance(target, ast.Starred):
            self._place(target)
            self._assign(target.value, source, (*steps[:-1], "part"))
        else:
            self._visit(target)
            self._update(target, target, source, steps)

    def _unpack(self, targets: Sequence[ast.expr], source: ast.expr | None, steps: tuple[Step, ...]) -> None:
        starred = any(isinstance(each, ast.Starred) for each in targets)
        parts = source.elts if isinstance(source, ast.Tuple | ast.List) and not steps else []
        if len(parts) == len(targets) and not starred and not any(isinstance(each, ast.Starred) for each in parts):
            for target, part in zip(targets, parts, strict=True):
                self._assign(target, part)
            return
        for index, target in enumerate(targets):
            self._assign(target, source, (*steps, "part" if starred else index))


def _bound(scope: Scope | LoopNode) -> Set[str]:
    if isinstance(scope, FUNCTIONS):
        return local_names(scope)
    return bound_names(*(scope.body if isinstance(scope, ast.Module) else [scope]))


def _written(scope: ast.AST, writes: Writes) -> Iterable[str]:
    for node in own_nodes(scope):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield whole_of(node)
        elif isinstance(node, ast.Call):
            yield from writes(node)
