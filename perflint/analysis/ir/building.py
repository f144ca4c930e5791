"""The IR while it is built: blocks and edges, variables, and expressions, comprehensions as loops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from perflint.analysis.ir.graph import Block, Definition, Graph, Outer, Phi, Region, Scope, Step, Value, Variables
from perflint.syntax.scopes import bound_names, local_names
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, children, own_nodes, path_of, whole_of
from perflint.syntax.walk import Loop as LoopNode

_CONSUME_AT_ONCE = frozenset("all any dict frozenset list max min set sorted sum tuple".split())
Writes = Callable[[ast.Call], Iterable[str]]  # the paths of what a call changes


@dataclass(eq=False)
class Finally:
    """A `finally` that jumps pass through on the way to their targets."""

    entry: Block
    targets: set[Block] = field(default_factory=set)


@dataclass(eq=False)
class Loop:
    """Where `break` and `continue` of a loop go, and how many `finally` blocks stand around the loop."""

    breaks: Block
    continues: Block
    depth: int


class Building:
    def __init__(self, scope: Scope | LoopNode, writes: Writes | None = None) -> None:
        self.graph = graph = Graph(scope)
        self._writes = writes
        written = {*_written(scope, writes)} if writes is not None else set[str]()
        self._fields = sorted(each for each in written if "." in each)
        self._bound = written | _bound(scope)
        self._outer: dict[str, Outer] = {}  # what the scope reads and never binds
        self._variables = Variables(graph)
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
        """Where attributes are variables: give the one that is `target`, or that it is a part of, a value."""
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
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._place(target)
            self._unpack(target.elts, source, steps)
        elif isinstance(target, ast.Starred):
            self._place(target)
            self._assign(target.value, source, (*steps[:-1], "part"))
        else:
            self._visit(target)
            self._update(target, target, source, steps)

    def _unpack(self, targets: Sequence[ast.expr], source: ast.expr | None, steps: tuple[Step, ...]) -> None:
        star = next((index for index, each in enumerate(targets) if isinstance(each, ast.Starred)), len(targets))
        parts = source.elts if isinstance(source, ast.Tuple | ast.List) and not steps else []
        if len(parts) == len(targets) == star and not any(isinstance(each, ast.Starred) for each in parts):
            for target, part in zip(targets, parts, strict=True):
                self._assign(target, part)
            return
        for index, target in enumerate(targets):
            self._assign(target, source, (*steps, index if index < star else "part"))

    # -- expressions

    def _visit(self, node: ast.AST) -> None:
        _EXPRESSIONS.get(node.__class__, Building._visit_children)(self, node)
        self._place(node)

    def _visit_children(self, node: ast.AST) -> None:
        for child in children(node):
            self._visit(child)

    def _name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node, node.id)
        else:
            self._define(node.id, node)

    def _attribute(self, node: ast.Attribute) -> None:
        self._visit(node.value)
        path = path_of(node) if self._fields and isinstance(node.ctx, ast.Load) else ""
        while path and path not in self._fields:
            path = path.rpartition(".")[0]
        if path:
            self._read(node, path)

    def _lambda(self, node: ast.Lambda) -> None:
        for each in (*node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self._visit(each)
        self.graph.inner.append(node)

    def _walrus(self, node: ast.NamedExpr) -> None:
        self._visit(node.value)
        inside, self._private = self._private, self._private[: self._comprehensions]
        self._assign(node.target, node.value)
        self._private = inside
        self._split()

    def _choice(self, node: ast.IfExp) -> None:
        self._visit(node.test)
        self._either([node.body], [node.orelse])

    def _either(self, *branches: Iterable[ast.expr]) -> None:
        before, after = self._block, self._new()
        for branch in branches:
            block = self._new()
            self._edge(before, block)
            self._enter(block)
            for each in branch:
                self._visit(each)
            self._edge(self._block, after)
        self._enter(after)

    def _short_circuit(self, node: ast.BoolOp) -> None:
        first, *others = node.values
        self._visit(first)
        for each in others:
            if any(isinstance(part, ast.NamedExpr) for part in ast.walk(each)):
                self._either([each], [])
            else:
                self._visit(each)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        """Loops of its own, whose targets nobody else sees. A generator's may run later."""
        depth, regions = len(self._private), list[Region]()
        for generator in node.generators:
            self._visit(generator.iter)
            targets = [each for each in ast.walk(generator.target) if isinstance(each, ast.Name)]
            self._private.append({each.id: f"{each.id}@{id(node)}" for each in targets})
            regions.append(self._begin_loop(generator))
            self._go(self._new())
            self._assign(generator.target, generator.iter, ("each",))
            for test in generator.ifs:
                self._visit(test)
                self._edge(self._block, regions[-1].header)
                self._go(self._new())
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._visit(part)
        for region in reversed(regions):
            self._end_loop(region)
            self._block = region.header  # where an outer loop goes on once the inner one is done
        del self._private[depth:]
        self._go(self._new())
        if isinstance(node, ast.GeneratorExp):
            self.graph.deferred.append(node)

    def _call(self, node: ast.Call) -> None:
        self._visit_children(node)
        if isinstance(node.func, ast.Name) and node.func.id in _CONSUME_AT_ONCE and self.graph.deferred:
            self.graph.deferred[:] = [each for each in self.graph.deferred if each not in node.args]
        for path in self._writes(node) if self._writes is not None else ():
            self._define(path, node, node, ("part",), updates=self._held(path))


_EXPRESSIONS: dict[type[ast.AST], Callable[..., None]] = {
    **dict.fromkeys(COMPREHENSIONS, Building._comprehension),
    ast.Name: Building._name,
    ast.Attribute: Building._attribute,
    ast.Lambda: Building._lambda,
    ast.NamedExpr: Building._walrus,
    ast.IfExp: Building._choice,
    ast.BoolOp: Building._short_circuit,
    ast.Call: Building._call,
}


def _bound(scope: Scope | LoopNode) -> Set[str]:
    if isinstance(scope, FUNCTIONS):
        return local_names(scope)
    return bound_names(*(scope.body if isinstance(scope, ast.Module) else [scope]))


def _written(scope: ast.AST, writes: Writes) -> Iterable[str]:
    for node in own_nodes(scope):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            yield whole_of(node)
        elif isinstance(node, ast.Call):
            yield from writes(node)
