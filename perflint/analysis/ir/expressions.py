"""Lowers expressions: reads, bindings by walrus, branches that are not taken, and comprehensions as loops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from perflint.analysis.ir.building import Building
from perflint.analysis.ir.graph import Region
from perflint.syntax.walk import COMPREHENSIONS, children, path_of

_CONSUME_AT_ONCE = frozenset("all any dict frozenset list max min set sorted sum tuple".split())


class Expressions(Building):
    def _visit(self, node: ast.AST) -> None:
        _EXPRESSIONS.get(node.__class__, Expressions._visit_children)(self, node)
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
        for path in self._writes(node) if self._writes is not None else ():
            self._define(path, node, node, ("part",), updates=self._held(path))


_EXPRESSIONS: dict[type[ast.AST], Callable[..., None]] = {
    **dict.fromkeys(COMPREHENSIONS, Expressions._comprehension),
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Lambda: Expressions._lambda,
    ast.NamedExpr: Expressions._walrus,
    ast.IfExp: Expressions._choice,
    ast.BoolOp: Expressions._short_circuit,
    ast.Call: Expressions._call,
}
