"""Definitions and uses throughout a program: lowers each scope to its graph when it is first asked for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence, Set
from functools import partial

from perflint.analysis.facts import Program
from perflint.analysis.ir.building import Building, Finally, Loop, Writes
from perflint.analysis.ir.graph import Block, Definition, Graph, Scope, Step
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bound_names, parameters_of
from perflint.syntax.walk import LOOPS, TRIES, bindings_of, children, own_nodes, path_of, returned_values, statements_of
from perflint.syntax.walk import Loop as LoopNode
from perflint.torch_ops import libraries

Swallows = Callable[[ast.expr], bool]  # may a context manager end an exception that leaves its block?


def lower(scope: Scope | LoopNode, swallows: Swallows, writes: Writes | None = None) -> Graph:
    """The IR of `scope`: a function or module, or a loop by itself, to which all values from before are Outer.

    Nested functions are values in it. With `writes`, the paths that a call changes, attributes are variables too, and
    what changes one in place (a call, or a write to a part of it) binds it anew and `updates` what it was. That holds
    as far as nobody else writes to them meanwhile.
    """
    return _Lowering(scope, swallows, writes).graph


class _Lowering(Building):
    def __init__(self, scope: Scope | LoopNode, swallows: Swallows, writes: Writes | None) -> None:
        super().__init__(scope, writes)
        self._swallows = swallows
        if isinstance(scope, LOOPS):
            self._body([scope])
            self._finish()
            return
        _note_sharing(scope, self.graph)
        if isinstance(scope, ast.Module):
            self._body(scope.body)
        else:
            for argument in parameters_of(scope):
                self._define(argument.arg, argument)
            self._body(scope.body if isinstance(scope.body, list) else [])
            if isinstance(scope, ast.Lambda):
                self._visit(scope.body)
        self._jump(self._exit)
        self._finish()

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
            for target, value in bindings_of(node):
                self._assign(target, value)
        elif isinstance(node, ast.AnnAssign) and not isinstance(node.target, ast.Name):
            self._visit(node.target)
        self._place(node)

    def _augmented(self, node: ast.AugAssign) -> None:
        path = path_of(node.target)
        if isinstance(node.target, ast.Name) or path in self._fields:
            old = self._held(path)
            self._visit(node.value)
            self._define(path, node.target, node.value, ("part",), updates=old)
        else:
            self._visit(node.target)
            self._visit(node.value)
            self._update(node.target, node.target, node.value, ("part",))
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
        self.graph.joins[after] = node
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
        self._loops.append(Loop(after, region.header, len(self._finals)))
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
        self._loops.append(Loop(after, region.header, len(self._finals)))
        self._go(self._new())
        self._body(node.body)
        self._loops.pop()
        self._end_loop(region)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._otherwise(None if endless else decided, node.orelse, after)

    def _otherwise(self, decided: Block | None, statements: Sequence[ast.stmt], after: Block) -> None:
        """The `else` of a loop, and what stands after it; `decided`: where a finished loop is left."""
        block = self._new()
        if decided is not None:
            self._edge(decided, block)
        self._enter(block)
        self._body(statements)
        self._edge(self._block, after)
        self._enter(after)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        caught = self._new() if any(self._swallows(item.context_expr) for item in node.items) else None
        for item in node.items:
            self._visit(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, item.context_expr, ("enter",))
        if caught is not None:
            self._handlers.append(caught)
        self._body(node.body)
        if caught is not None:
            self._handlers.pop()
            after = self._new()
            self._edge(self._block, after)
            self._enter(caught)
            self._go(after)
        for item in node.items:
            self._place(item)  # what the manager does when it is left
        self._place(node)

    def _try(self, node: ast.Try) -> None:
        after, caught = self._new(), self._new()
        final = Finally(self._new()) if node.finalbody else None
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

    def _finally(self, statements: Sequence[ast.stmt], final: Finally, after: Block) -> None:
        """One copy of the `finally` for all that pass through it: in order, by an exception, or a jump."""
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
        self.graph.inner.append(node)
        self._define(node.name, node)

    def _class(self, node: ast.ClassDef) -> None:
        for each in (*node.decorator_list, *node.bases, *node.keywords):
            self._visit(each)
        names = {name: f"{name}@{id(node)}" for name in sorted(bound_names(*node.body))}
        for name, private in names.items():  # until the class binds a name, that is the enclosing scope's
            self._variables.write(private, self._block, self._held(name))
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


def _note_sharing(scope: Scope, graph: Graph) -> None:
    of_module = isinstance(scope, ast.Module)
    for node in statements_of(scope):
        if isinstance(node, ast.Global) or (isinstance(node, ast.Nonlocal) and not of_module):
            graph.shared.update(node.names)


def _always_matches(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None


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
    **dict.fromkeys(TRIES, _Lowering._try),
    ast.Match: _Lowering._match,
    ast.FunctionDef: _Lowering._function,
    ast.AsyncFunctionDef: _Lowering._function,
    ast.ClassDef: _Lowering._class,
    ast.Import: _Lowering._import,
    ast.ImportFrom: _Lowering._import,
}


class Flow:
    """Where names come from, in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._graphs: dict[Scope, Graph] = {}

    def graph(self, node: ast.AST) -> Graph:
        return self.graph_of(self.program.scope_of(node))

    def graph_of(self, scope: Scope) -> Graph:
        if scope not in self._graphs:
            self._graphs[scope] = lower(scope, partial(may_swallow, self.program))
        return self._graphs[scope]

    def definitions(self, name: ast.Name) -> Set[ast.AST]:
        """The ast.Name or ast.arg nodes whose values `name` may have here; empty for names from further out."""
        return self.graph(name).reaching(name)

    def assigned(self, name: ast.Name) -> list[ast.expr]:
        """The expressions whose values the variable may have there; none if others, or parts of some."""
        values = self.graph(name).definitions(name)
        definitions = [each for each in values if isinstance(each, Definition) and each.updates is None]
        found = [each.source for each in definitions if each.source is not None and not each.steps]
        return found if len(found) == len(values) else []


_SWALLOW = frozenset({"suppress", "ExitStack", "AsyncExitStack"})  # of contextlib, by their purpose
_EXITS = frozenset({"__exit__", "__aexit__"})


def may_swallow(program: Program, manager: ast.expr) -> bool:
    """May an exception in the block of `manager` end there? Unanalysed ones may end any."""
    called = manager.func if isinstance(manager, ast.Call) else manager
    value = program.value(called)
    if value.kind is Kind.LIBRARY:
        name = value.name.rpartition(".")[2]
        return name in _SWALLOW or not (libraries.is_pure(value.name) or value.name.startswith("torch."))
    if isinstance(value.node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _may_catch(program, value.node)
    built = program.value(manager).node
    return not isinstance(built, ast.ClassDef) or any(
        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name in _EXITS and _may_be_true(each)
        for owner in program.lineage(built)
        for each in owner.body
    )


def _may_catch(program: Program, function: ast.AST) -> bool:
    """Does a generator, of which a manager is made, yield where an exception may be handled?"""
    yields = (node for node in own_nodes(function) if isinstance(node, ast.Yield))
    return any(
        bool(getattr(around, "handlers", ()))
        or any(may_swallow(program, each.context_expr) for each in getattr(around, "items", ()))
        for node in yields
        for around in program.ancestors(node)
        if around is not function
    )


def _may_be_true(function: ast.AST) -> bool:
    return any(not isinstance(each, ast.Constant) or bool(each.value) for each in returned_values(function))
