"""Lowers a function, a lambda or a module from its syntax tree to the IR: control flow, and variables as SSA values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from perflint.analysis.ir.graph import Block, Definition, Graph, Outer, Phi, Region, Scope, Step, Value
from perflint.analysis.ir.ssa import Variables
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, children

_SWALLOW = ("suppress", "raises")  # context managers that end an exception: what follows them may run after one
_CONSUME_AT_ONCE = frozenset("all any dict frozenset list max min set sorted sum tuple".split())


def lower(scope: Scope) -> Graph:
    """The IR of `scope`. Nested functions are values in it: each has a graph of its own."""
    return _Lowering(scope).graph


@dataclass(eq=False)
class _Finally:
    """A `finally` that jumps pass through: those that do leave it for their targets."""

    entry: Block
    targets: set[Block] = field(default_factory=set)


@dataclass(eq=False)
class _Loop:
    """Where `break` and `continue` of a loop go, and how many `finally` blocks stand around the loop."""

    breaks: Block
    continues: Block
    depth: int


class _Lowering:
    def __init__(self, scope: Scope) -> None:
        self.graph = graph = Graph(scope)
        self._variables = Variables(graph)
        self._region: Region | None = None
        self._loops: list[_Loop] = []
        self._finals: list[_Finally] = []
        self._handlers: list[Block] = []
        self._private: list[dict[str, str]] = []  # names of class bodies and comprehensions, which others don't see
        self._comprehensions = 0  # from where on these are comprehensions', whose walruses bind further out
        self._reads: list[tuple[ast.AST, Value]] = []
        self._exit = Block(-1)
        self._dead: set[Block] = set()  # what no path from the entry reaches
        self._block = self._new()
        self._variables.seal(self._block)
        self._count = 0
        _note_sharing(scope, graph)
        if isinstance(scope, ast.Module):
            self._body(scope.body)
        else:
            for argument in _parameters(scope.args):
                self._define(argument.arg, argument)
            self._body(scope.body if isinstance(scope.body, list) else [])
            if isinstance(scope, ast.Lambda):
                self._visit(scope.body)
        self._jump(self._exit)
        self._finish()

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
        for value in graph.values.values():
            if isinstance(value, Definition) and value.updates is not None:
                value.updates = current(value.updates)

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
        """Fall through into `block`."""
        self._edge(self._block, block)
        self._enter(block, sealed=sealed)

    def _jump(self, target: Block, depth: int = 0) -> None:
        """Leave for `target`, through the `finally` blocks that stand inside of `depth` others."""
        for final in self._finals[depth:]:
            final.targets.add(target)
            target = final.entry
        if target is not self._exit:
            self._edge(self._block, target)
        self._enter(self._new())  # what stands behind can't be reached

    def _split(self) -> None:
        """Within `try`: begin a block, so that its handlers also find what holds at this point."""
        if self._handlers:
            for handler in self._handlers:
                self._edge(self._block, handler)
            self._go(self._new())

    def _begin_loop(self, node: ast.AST) -> Region:
        """Go into the header of a loop, which is sealed when the last iteration has come back to it."""
        region = Region(node, Block(-1), self._region)
        before, self._region = self._block, region
        region.header = self._new()
        self._edge(before, region.header)
        self._enter(region.header, sealed=False)
        self.graph.regions[node] = region
        return region

    def _end_loop(self, region: Region) -> None:
        """Come back to the header."""
        self._edge(self._block, region.header)
        self._variables.seal(region.header)
        self._region = region.outer

    # -- variables

    def _local(self, name: str) -> str:
        return next((names[name] for names in reversed(self._private) if name in names), name)

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
        self._place(node)
        local = self._local(name)
        if local not in self.graph.shared:
            self._variables.write(local, self._block, value)

    def _read(self, name: ast.Name) -> Value:
        local = self._local(name.id)
        value = Outer(name.id) if local in self.graph.shared else self._variables.read(local, self._block)
        self._reads.append((name, value))
        return value

    def _place(self, node: ast.AST) -> None:
        self._count += 1
        self.graph.places[node] = self._block, self._count

    def _assign(self, target: ast.expr, source: ast.expr | None, steps: tuple[Step, ...] = ()) -> None:
        """Bind `target` to the part of `source` that `steps` lead to."""
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

    def _unpack(self, targets: Sequence[ast.expr], source: ast.expr | None, steps: tuple[Step, ...]) -> None:
        starred = any(isinstance(each, ast.Starred) for each in targets)
        parts = source.elts if isinstance(source, ast.Tuple | ast.List) and not steps else []
        if len(parts) == len(targets) and not starred and not any(isinstance(each, ast.Starred) for each in parts):
            for target, part in zip(targets, parts, strict=True):
                self._assign(target, part)
            return
        for index, target in enumerate(targets):
            self._assign(target, source, (*steps, "part" if starred else index))

    # -- statements

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._split()
            method = _STATEMENTS.get(type(statement))
            if method is not None:
                method(self, statement)
            else:
                self._visit_children(statement)
                self._place(statement)
        self._split()

    def _assignment(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and not isinstance(node.target, ast.Name):
            self._visit(node.target)
        self._place(node)

    def _augmented(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            name = self._local(node.target.id)
            old = Outer(node.target.id) if name in self.graph.shared else self._variables.read(name, self._block)
            self._visit(node.value)
            self._define(node.target.id, node.target, node.value, ("part",), updates=old)
        else:
            self._visit(node.target)
            self._visit(node.value)
        self._place(node)

    def _deletion(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._define(target.id, target)
            else:
                self._visit(target)
        self._place(node)

    def _leave(self, node: ast.Return | ast.Raise) -> None:
        self._visit_children(node)
        self._place(node)
        self._split()
        self._jump(self._exit)

    def _break(self, node: ast.Break | ast.Continue) -> None:
        self._place(node)
        if self._loops:
            loop = self._loops[-1]
            self._jump(loop.breaks if isinstance(node, ast.Break) else loop.continues, loop.depth)

    def _if(self, node: ast.If) -> None:
        self._visit(node.test)
        self._place(node)
        before, after = self._block, self._new()
        for branch in (node.body, node.orelse):
            block = self._new()
            self._edge(before, block)
            self._enter(block)
            self._body(branch)
            self._edge(self._block, after)
        self._enter(after)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._visit(node.iter)
        after = self._new()
        region = self._begin_loop(node)
        self._place(node)
        self._loops.append(_Loop(after, region.header, len(self._finals)))
        self._go(self._new())
        self._assign(node.target, node.iter, ("each",))
        self._body(node.body)
        self._loops.pop()
        self._end_loop(region)
        self._otherwise(region.header, node.orelse, after)

    def _while(self, node: ast.While) -> None:
        after = self._new()
        region = self._begin_loop(node)
        self._place(node)
        self._visit(node.test)
        decided = self._block
        self._loops.append(_Loop(after, region.header, len(self._finals)))
        self._go(self._new())
        self._body(node.body)
        self._loops.pop()
        self._end_loop(region)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._otherwise(None if endless else decided, node.orelse, after)

    def _otherwise(self, decided: Block | None, statements: Sequence[ast.stmt], after: Block) -> None:
        """The `else` of a loop, and what stands behind it; `decided`: where the loop is left when it is done."""
        block = self._new()
        if decided is not None:
            self._edge(decided, block)
        self._enter(block)
        self._body(statements)
        self._edge(self._block, after)
        self._enter(after)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        after = self._new()
        swallows = any(_name_called(item.context_expr).endswith(_SWALLOW) for item in node.items)
        for item in node.items:
            self._visit(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, item.context_expr, ("enter",))
        if swallows:
            self._handlers.append(after)
        self._body(node.body)
        if swallows:
            self._handlers.pop()
        self._go(after)
        for item in node.items:
            self._place(item)  # what the manager does when it is left
        self._place(node)

    def _try(self, node: ast.Try) -> None:
        after, caught = self._new(), self._new()
        final = _Finally(self._new()) if node.finalbody else None
        if final is not None:
            self._finals.append(final)
        outer, self._handlers = self._handlers, [caught]
        self._split()
        self._body(node.body)
        self._handlers = [final.entry] if final is not None else outer
        self._body(node.orelse)
        self._edge(self._block, after)
        self._enter(caught)
        for handler in node.handlers:
            self._handler(handler, after)
        self._handlers = outer
        if final is None:
            for each in outer:
                self._edge(self._block, each)  # no handler took it
            self._enter(after)
        else:
            self._edge(self._block, final.entry)
            self._finals.pop()
            self._finally(node.finalbody, final, after)
        self._place(node)

    def _handler(self, handler: ast.ExceptHandler, after: Block) -> None:
        before = self._block
        self._go(self._new())
        if handler.type is not None:
            self._visit(handler.type)
        if handler.name:
            self._define(handler.name, handler)
        self._body(handler.body)
        self._edge(self._block, after)
        following = self._new()
        self._edge(before, following)
        self._enter(following)

    def _finally(self, statements: Sequence[ast.stmt], final: _Finally, after: Block) -> None:
        """One copy of the `finally` for all that pass through it: in order, by an exception, or by a jump."""
        self._enter(after)
        self._edge(after, final.entry)
        self._enter(final.entry)
        self._body(statements)
        for target in final.targets - {self._exit}:
            self._edge(self._block, target)
        for handler in self._handlers:
            self._edge(self._block, handler)
        self._go(self._new())

    def _match(self, node: ast.Match) -> None:
        self._visit(node.subject)
        self._place(node)
        after = self._new()
        for case in node.cases:
            before = self._block
            self._go(self._new())
            self._pattern(case.pattern, node.subject, ())
            if case.guard is not None:
                self._visit(case.guard)
            tested = self._block
            self._go(self._new())
            self._body(case.body)
            self._edge(self._block, after)
            following = self._new()
            if not _always_matches(case):
                self._edge(before, following)
                self._edge(tested, following)
            self._enter(following)
        self._go(after)

    def _pattern(self, node: ast.pattern, subject: ast.expr, steps: tuple[Step, ...]) -> None:
        if isinstance(node, ast.MatchAs | ast.MatchStar | ast.MatchMapping):
            name = node.rest if isinstance(node, ast.MatchMapping) else node.name
            if name:
                self._define(name, node, subject, steps)
        is_same = isinstance(node, ast.MatchAs | ast.MatchOr)
        for child in children(node):
            if isinstance(child, ast.pattern):
                self._pattern(child, subject, steps if is_same else (*steps, "part"))
            else:
                self._visit(child)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for each in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self._visit(each)
        self._capture(node)
        self._define(node.name, node)

    def _class(self, node: ast.ClassDef) -> None:
        for each in (*node.decorator_list, *node.bases, *node.keywords):
            self._visit(each)
        names = {name: f"{name}@{id(node)}" for name in _bound_in_class(node)}
        for name, private in names.items():  # until the class binds a name, that is the enclosing scope's
            self._variables.write(private, self._block, self._variables.read(self._local(name), self._block))
        self._private.append(names)
        depth, self._comprehensions = self._comprehensions, len(self._private)
        self._body(node.body)
        self._comprehensions = depth
        self._private.pop()
        self._define(node.name, node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._define((alias.asname or alias.name).partition(".")[0], alias)
        self._place(node)

    # -- expressions

    def _visit(self, node: ast.AST) -> None:
        method = _EXPRESSIONS.get(type(node))
        if method is not None:
            method(self, node)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node)
        else:
            self._visit_children(node)
        self._place(node)

    def _visit_children(self, node: ast.AST) -> None:
        for child in children(node):
            self._visit(child)

    def _name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node)
        else:
            self._define(node.id, node)

    def _lambda(self, node: ast.Lambda) -> None:
        for each in (*node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self._visit(each)
        self._capture(node)

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
        """Expressions of which one branch is evaluated."""
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
        """Loops of its own, whose targets nobody else sees. What a generator does, it may do later."""
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

    def _capture(self, node: ast.AST) -> None:
        """Note what an inner function reads of this scope."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                self.graph.captured.setdefault(part.id, []).append(part)


def _note_sharing(scope: Scope, graph: Graph) -> None:
    """Note the names that are not this scope's own, or that an inner function rebinds."""
    pending: list[tuple[ast.AST, bool]] = [(each, False) for each in children(scope)]
    while pending:
        node, is_inner = pending.pop()
        if isinstance(node, ast.Global if isinstance(scope, ast.Module) else ast.Global | ast.Nonlocal):
            if is_inner or not isinstance(scope, ast.Module):
                graph.shared.update(node.names)
        else:
            pending += [(child, is_inner or isinstance(node, FUNCTIONS)) for child in children(node)]


def _parameters(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (each for each in (arguments.vararg, arguments.kwarg) if each is not None)


def _bound_in_class(node: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for statement in node.body:
        for part in [statement] if isinstance(statement, FUNCTIONS) else ast.walk(statement):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(part.name)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names.add(part.id)
            elif isinstance(part, ast.alias):
                names.add((part.asname or part.name).partition(".")[0])
    return names


def _name_called(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _always_matches(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None


_Lower = Callable[[_Lowering, object], None]
_STATEMENTS: dict[type[ast.AST], Callable[..., None]] = {
    ast.Assign: _Lowering._assignment,
    ast.AnnAssign: _Lowering._assignment,
    ast.AugAssign: _Lowering._augmented,
    ast.Delete: _Lowering._deletion,
    ast.Return: _Lowering._leave,
    ast.Raise: _Lowering._leave,
    ast.Break: _Lowering._break,
    ast.Continue: _Lowering._break,
    ast.If: _Lowering._if,
    ast.For: _Lowering._for,
    ast.AsyncFor: _Lowering._for,
    ast.While: _Lowering._while,
    ast.With: _Lowering._with,
    ast.AsyncWith: _Lowering._with,
    ast.Try: _Lowering._try,
    ast.Match: _Lowering._match,
    ast.FunctionDef: _Lowering._function,
    ast.AsyncFunctionDef: _Lowering._function,
    ast.ClassDef: _Lowering._class,
    ast.Import: _Lowering._import,
    ast.ImportFrom: _Lowering._import,
    **({ast.TryStar: _Lowering._try} if hasattr(ast, "TryStar") else {}),
}
_EXPRESSIONS: dict[type[ast.AST], Callable[..., None]] = {
    ast.Name: _Lowering._name,
    ast.Lambda: _Lowering._lambda,
    ast.NamedExpr: _Lowering._walrus,
    ast.IfExp: _Lowering._choice,
    ast.BoolOp: _Lowering._short_circuit,
    ast.Call: _Lowering._call,
}
