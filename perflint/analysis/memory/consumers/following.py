"""Follows a tensor, or a container that holds it, from where it is made to everything that reads it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.consumers.roles import Consumer, OutOfSight, Role
from perflint.analysis.memory.consumers.trace import Key, Trace
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import parameters_of
from perflint.syntax.walk import FUNCTIONS, Function, own_nodes, path_of

_DEPTH = 4
_LITERALS = (ast.List, ast.Dict, ast.ListComp, ast.BinOp)


class Follower:
    """One walk from a tensor to what reads it. Its steps raise OutOfSight where they can't tell."""

    def __init__(self, flow: Flow, step_of: Callable[[ast.AST, Trace], Step | None]) -> None:
        self.flow, self.program, self._step_of = flow, flow.program, step_of
        self.consumers: list[Consumer] = []
        self.measured = self.converted = self.shown = self.unfinished = False
        self._seen: set[tuple[ast.AST, Trace]] = set()

    def follow(self, node: ast.expr, trace: Trace) -> None:
        """Find the consumers of the value of `node`."""
        if (node, trace) in self._seen:
            return
        self._seen.add((node, trace))
        parent = self.program.parent(node) or node
        step = self._step_of(parent, trace)
        if step is None:
            raise OutOfSight
        step(self, parent, node, trace)

    def _is_of_class(self, node: ast.AST) -> bool:
        """Does a class body hold it, and no function in that?"""
        around = (each for each in self.program.ancestors(node) if isinstance(each, (*FUNCTIONS, ast.ClassDef)))
        return isinstance(next(around, None), ast.ClassDef)

    def consume(self, node: ast.AST, operand: ast.expr, role: Role, *, in_place: bool = False) -> None:
        """Note a consumer."""
        self.consumers.append(Consumer(node, operand, role, in_place))

    def assigned(self, target: ast.expr, value: ast.expr, trace: Trace) -> None:
        """Go on with what `value` is assigned to."""
        if isinstance(target, ast.Name):
            bindings = self.flow.bindings(target)
            if target.id in bindings.graph.shared or self._is_of_class(target):
                raise OutOfSight
            for use in bindings.uses.get(target, []):
                self._used(target, use, trace)
            self.uses(bindings.graph.captured.get(target.id, []), replace(trace, calls=()))
        elif isinstance(target, ast.Tuple | ast.List) and trace.inside:
            self._unpacked(target, value, trace)
        elif isinstance(target, ast.Subscript):
            self._stored(target, value, trace)
        elif isinstance(target, ast.Attribute):
            self._kept(target, trace)
        else:
            raise OutOfSight

    def _used(self, target: ast.Name, use: ast.Name, trace: Trace) -> None:
        try:
            self.follow(use, trace)
        except OutOfSight:
            if not self._is_replaced(target, use):
                raise
            self.shown = True

    def _is_replaced(self, target: ast.Name, use: ast.Name) -> bool:
        """Is the name something else at `use`, but where a loop in between, which replaces it, runs not even once?"""
        program = self.program
        block = program.block_of(program.statement_of(target))
        loops = (program.parent(program.statement_of(each)) for each in self.flow.definitions(use) - {target})
        return any(
            isinstance(loop, ast.For) and loop in block and target.lineno < loop.lineno
            and (loop.end_lineno or 0) < use.lineno
            and not any(isinstance(each, ast.Break | ast.Continue) for each in own_nodes(loop))
            for loop in loops
        )  # fmt: skip

    def _unpacked(self, target: ast.Tuple | ast.List, value: ast.expr, trace: Trace) -> None:
        key = trace.inside[0]
        if any(isinstance(each, ast.Starred) for each in target.elts) or isinstance(key, str):
            raise OutOfSight
        for position, each in enumerate(target.elts):
            if key is None or key == position:
                self.assigned(each, value, trace.out())

    def _stored(self, target: ast.Subscript, value: ast.expr, trace: Trace) -> None:
        kind = self.program.value(target.value).kind
        if kind is Kind.TENSOR and not trace.inside:
            self.consume(target, value, Role.ELEMENTWISE, in_place=True)
        elif kind in (Kind.SEQUENCE, Kind.MAPPING) and isinstance(target.value, ast.Name):
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            self.put(target.value, value, key if isinstance(key, int | str) else None, trace)
        else:
            raise OutOfSight

    def _kept(self, target: ast.Attribute, trace: Trace) -> None:
        """Go on with an attribute of the object itself, which all methods of its class may read, and other files.

        One that is assigned something else as well is a state, of which the copy is but the beginning.
        """
        function = self.program.function_of(target)
        owner = self.program.class_of(function) if function is not None else None
        path = f"self.{target.attr}"
        if owner is None or path_of(target) != path:
            raise OutOfSight
        inside = set(ast.walk(owner.node))
        for use in self.program.of_type(ast.Attribute):
            if use.attr != target.attr or use is target or self._is_emptied(use):
                continue
            if use not in inside or path_of(use) != path or not isinstance(use.ctx, ast.Load):
                raise OutOfSight
            self.follow(use, replace(trace, calls=()))
        self.shown = self.unfinished = True

    def _is_emptied(self, target: ast.Attribute) -> bool:
        """Is it the target of `self.name = None`?"""
        parent = self.program.parent(target)
        is_none = (
            isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Constant) and parent.value.value is None
        )
        return is_none and isinstance(target.ctx, ast.Store)

    def put(self, container: ast.Name, node: ast.expr, key: Key, trace: Trace) -> None:
        """Go on with a variable that holds a container into which `node` is put: all its other uses may take it out."""
        bindings, definitions = self.flow.bindings(container), self.flow.definitions(container)
        if not definitions or container.id in bindings.shared or not all(map(self._is_made_here, definitions)):
            raise OutOfSight
        for definition in definitions:
            uses = [use for use in bindings.uses.get(definition, []) if use is not container]
            self.uses(uses, trace.into(key, node))

    def _is_made_here(self, definition: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Is it a new container, or a longer one, known by this name only?"""
        parent = self.program.parent(definition)
        if isinstance(parent, ast.AugAssign) and isinstance(definition, ast.Name):
            before, seen = self.flow.definitions(definition), seen | {definition}
            return bool(before) and all(self._is_made_here(each, seen) for each in before - seen)
        if not isinstance(parent, ast.Assign) or parent.targets != [definition]:
            return False
        call = isinstance(parent.value, ast.Call) and self.program.qualified(parent.value.func)
        return isinstance(parent.value, _LITERALS) or call in ("builtins.list", "builtins.dict")

    def uses(self, uses: list[ast.Name], trace: Trace) -> None:
        """Go on with each of these names."""
        for use in uses:
            self.follow(use, trace)

    def into(self, callee: Function, call: ast.Call, node: ast.expr, trace: Trace, keyword: str) -> None:
        """Go on with the parameter that receives the value."""
        parameter = self._parameter(callee, call, node)
        if parameter is None or len(trace.calls) >= _DEPTH or call in trace.calls:
            raise OutOfSight
        bindings = self.flow.bindings_of(callee)
        if parameter.arg in bindings.graph.shared or isinstance(callee, ast.Lambda):
            raise OutOfSight
        self.uses(bindings.uses.get(parameter, []), replace(trace, calls=(*trace.calls, call)))
        self.uses(bindings.graph.captured.get(parameter.arg, []), replace(trace, calls=()))

    def _parameter(self, callee: Function, call: ast.Call, node: ast.expr) -> ast.arg | None:
        given = self.program.arguments(call, callee).given
        name = next((name for name, argument in given.items() if argument is node), None)
        return next((each for each in parameters_of(callee) if each.arg == name), None)

    def returned(self, node: ast.AST, trace: Trace) -> None:
        """Go on behind the calls of the function: the one that led here, else each in this file."""
        if trace.calls:
            self.follow(trace.calls[-1], replace(trace, calls=trace.calls[:-1]))
            return
        function = self.program.function_of(node)
        sites = self.program.call_sites(function) if function is not None else []
        if not isinstance(function, ast.FunctionDef) or function.decorator_list or not sites:
            raise OutOfSight
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own_nodes(function)):
            raise OutOfSight
        for site in sites:
            if not isinstance(site, ast.Call) or self.program.callee(site) is not function or _is_aside(site):
                raise OutOfSight
            self.follow(site, trace)
        self.shown |= not (function.name.startswith("_") or self._is_inner(function))

    def _is_inner(self, function: ast.FunctionDef) -> bool:
        return any(isinstance(each, FUNCTIONS) for each in self.program.ancestors(function))


def _is_aside(site: ast.Call) -> bool:
    """Is it `self.forward(x)`, next to the calls of the module itself, which are elsewhere?"""
    return isinstance(site.func, ast.Attribute) and site.func.attr == "forward"


Step = Callable[[Follower, Any, ast.expr, Trace], None]  # from a node, as a part of its parent
Steps = Mapping[type[ast.AST], Step]
