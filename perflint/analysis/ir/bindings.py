"""Which assignments of a name reach which of its uses, within one function or the module's own code."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, LOOPS, Function, children

State = dict[str, frozenset[ast.AST]]


class Bindings:
    """Reaching definitions of one scope; what may reach is counted, so that no use is missed.

    A definition is the ast.Name that is assigned, or the ast.arg of a parameter.
    """

    def __init__(self, scope: Function | ast.Module) -> None:
        self.definitions: defaultdict[ast.Name, frozenset[ast.AST]] = defaultdict(frozenset)
        self.captured: defaultdict[str, list[ast.Name]] = defaultdict(list)  # what inner functions may read, by name
        self.foreign: set[str] = set()  # names that are not this scope's own, or that an inner scope may assign
        self._breaks: list[list[State]] = []
        self._continues: list[list[State]] = []
        state: State = {}
        if isinstance(scope, ast.Module):
            self._block(scope.body, state)
        else:
            arguments = scope.args
            parameters = [
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
                arguments.vararg,
                arguments.kwarg,
            ]
            state = {parameter.arg: frozenset({parameter}) for parameter in parameters if parameter is not None}
            if isinstance(scope, ast.Lambda):
                self._expression(scope.body, state)
            else:
                self._block(scope.body, state)
        self.uses: defaultdict[ast.AST, list[ast.Name]] = defaultdict(list)
        for use, definitions in self.definitions.items():
            for definition in definitions:
                self.uses[definition].append(use)

    @property
    def shared(self) -> set[str]:
        """The names that an inner function reads, or that are not this scope's own."""
        return self.foreign | self.captured.keys()

    def _block(self, statements: Sequence[ast.stmt], state: State | None) -> State | None:
        """The state behind `statements`; None where control never gets there."""
        for statement in statements:
            if state is None:
                return None
            state = self._statement(statement, dict(state))
        return state

    def _statement(self, node: ast.stmt, state: State) -> State | None:
        if isinstance(node, ast.Return | ast.Raise):
            self._expressions(children(node), state)
            return None
        if isinstance(node, ast.Break | ast.Continue):
            pending = self._breaks if isinstance(node, ast.Break) else self._continues
            if pending:
                pending[-1].append(state)
            return None
        if isinstance(node, ast.If):
            self._expression(node.test, state)
            return _join(self._block(node.body, state), self._block(node.orelse, state))
        if isinstance(node, LOOPS):
            return self._loop(node, state)
        if isinstance(node, ast.Try) or node.__class__.__name__ == "TryStar":
            return self._try(node, state)
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._expression(item.context_expr, state)
                if item.optional_vars is not None:
                    self._expression(item.optional_vars, state)
            return self._block(node.body, state)
        if isinstance(node, ast.Match):
            self._expression(node.subject, state)
            after: State | None = state
            for case in node.cases:
                after = _join(after, self._block(case.body, state))
            return after
        return self._simple(node, state)

    def _simple(self, node: ast.stmt, state: State) -> State:
        if isinstance(node, ast.Global | ast.Nonlocal):
            self.foreign.update(node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._capture(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            if node.value is not None:
                self._expression(node.value, state)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.definitions[node.target] |= state.get(node.target.id, frozenset())
            self._expressions(targets, state)
        else:
            self._expressions(children(node), state)
        return state

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, state: State) -> State | None:
        self._breaks.append([])
        self._continues.append([])
        head = node.test if isinstance(node, ast.While) else node.iter
        while True:
            self._expression(head, state)
            inside = dict(state)
            if not isinstance(node, ast.While):
                self._expression(node.target, inside)
            behind = self._block(node.body, inside)
            for each in (behind, *self._continues[-1]):
                behind = _join(behind, each)
            grown = _join(state, behind) or state
            if grown == state:
                break
            state = grown
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        after = None if endless else self._block(node.orelse, state)
        self._continues.pop()
        for each in self._breaks.pop():
            after = _join(after, each)
        return after

    def _try(self, node: Any, state: State) -> State | None:
        anywhere: State | None = state
        behind: State | None = state
        for statement in node.body:
            if behind is not None:
                behind = self._statement(statement, dict(behind))
                anywhere = _join(anywhere, behind)
        after = self._block(node.orelse, behind)
        for handler in node.handlers:
            after = _join(after, self._block(handler.body, anywhere))
        return self._block(node.finalbody, _join(after, anywhere) if node.finalbody else after)

    def _expressions(self, nodes: Iterable[ast.AST], state: State) -> None:
        for node in nodes:
            self._expression(node, state)

    def _expression(self, node: ast.AST, state: State) -> None:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.definitions[node] |= state.get(node.id, frozenset())
            else:
                state[node.id] = frozenset({node})
        elif isinstance(node, FUNCTIONS):
            self._capture(node)
        elif isinstance(node, COMPREHENSIONS):
            inside = dict(state)
            for generator in node.generators:
                self._expressions((generator.iter, generator.target, *generator.ifs), inside)
            parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            self._expressions(parts, inside)
        elif isinstance(node, ast.NamedExpr):
            self._expressions((node.value, node.target), state)
        else:
            self._expressions(children(node), state)

    def _capture(self, node: ast.AST) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.Global | ast.Nonlocal):
                self.foreign.update(part.names)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                self.captured[part.id].append(part)
                if isinstance(node, ast.ClassDef):
                    self.foreign.add(part.id)


def _join(one: State | None, other: State | None) -> State | None:
    if one is None or other is None or one is other:
        return other if one is None else one
    return {name: one.get(name, frozenset()) | other.get(name, frozenset()) for name in one.keys() | other.keys()}
