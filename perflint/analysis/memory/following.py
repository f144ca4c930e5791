"""Follows a tensor, or a container that holds it, through names, attributes, containers and functions of the file."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.library import is_decorated
from perflint.analysis.memory.roles import Consumer, NotAnalysed, Role
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, Function, own_nodes, path_of

_DEPTH = 4  # of calls in calls
_NESTED = 3  # containers in containers
_LITERALS = (ast.List, ast.Dict, ast.ListComp, ast.BinOp)
Key = int | str | None  # which part of a container; None for any


@dataclass(frozen=True)
class Trace:
    """How the tensor came to where it is.

    `calls` led into the function; `inside` leads to it within a container, the outermost first; `tensor` is the
    expression that put it there.
    """

    calls: tuple[ast.Call, ...] = ()
    inside: tuple[Key, ...] = ()
    tensor: ast.expr | None = None

    def into(self, key: Key, node: ast.expr) -> Trace:
        """Put `node` into a container, at `key`."""
        if len(self.inside) >= _NESTED:
            raise NotAnalysed
        return replace(self, inside=(key, *self.inside), tensor=self.tensor if self.inside else node)

    def out(self) -> Trace:
        """Take what holds the tensor out of the outermost container."""
        return replace(self, inside=self.inside[1:])

    def anywhere(self) -> Trace:
        """Lose track of where in the outermost container it is."""
        return replace(self, inside=(None, *self.inside[1:]))


class Follower(ABC):
    """One walk from a tensor to what reads it. Its steps raise NotAnalysed where they can't tell."""

    def __init__(self, program: Program) -> None:
        self.program, self.flow = program, program.get(Flow)
        self.consumers: list[Consumer] = []
        self.measured = self.converted = self.shown = self.unfinished = False
        self._seen: set[tuple[ast.AST, Trace]] = set()

    def follow(self, node: ast.expr, trace: Trace) -> None:
        """Find the consumers of the value of `node`."""
        if (node, trace) in self._seen:
            return
        self._seen.add((node, trace))
        self.step(self.program.parent(node) or node, node, trace)

    @abstractmethod
    def step(self, parent: ast.AST, node: ast.expr, trace: Trace) -> None:
        """Go on from `node`, as a part of `parent`."""

    def consume(self, node: ast.AST, operand: ast.expr, role: Role, *, in_place: bool = False) -> None:
        """Note a consumer."""
        self.consumers.append(Consumer(node, operand, role, in_place))

    # -- through names

    def assigned(self, target: ast.expr, value: ast.expr, trace: Trace) -> None:
        """Go on with what `value` is assigned to."""
        if isinstance(target, ast.Name):
            graph = self.flow.graph(target)
            around = (each for each in self.program.ancestors(target) if isinstance(each, (*FUNCTIONS, ast.ClassDef)))
            if target.id in graph.shared or isinstance(next(around, None), ast.ClassDef):
                raise NotAnalysed
            self._uses(graph.uses.get(target, []), trace)
            self._uses(graph.captured.get(target.id, []), replace(trace, calls=()))
        elif isinstance(target, ast.Tuple | ast.List) and trace.inside:
            key = trace.inside[0]
            if any(isinstance(each, ast.Starred) for each in target.elts) or isinstance(key, str):
                raise NotAnalysed
            for position, each in enumerate(target.elts):
                if key is None or key == position:
                    self.assigned(each, value, trace.out())
        elif isinstance(target, ast.Subscript):
            self._stored(target, value, trace)
        elif isinstance(target, ast.Attribute):
            self._kept(target, trace)
        else:
            raise NotAnalysed

    def _uses(self, uses: Iterable[ast.Name], trace: Trace) -> None:
        for use in uses:
            self.follow(use, trace)

    def _stored(self, target: ast.Subscript, value: ast.expr, trace: Trace) -> None:
        kind = self.program.value(target.value).kind
        if kind is Kind.TENSOR and not trace.inside:
            self.consume(target, value, Role.ELEMENTWISE, in_place=True)
        elif kind in (Kind.SEQUENCE, Kind.MAPPING) and isinstance(target.value, ast.Name):
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            self.put(target.value, value, key if isinstance(key, int | str) else None, trace)
        else:
            raise NotAnalysed

    def _kept(self, target: ast.Attribute, trace: Trace) -> None:
        """Go on with an attribute of the object itself, which all methods of its class may read, and other files.

        One that is assigned something else as well is a state, of which the copy is but the beginning.
        """
        function = self.program.function_of(target)
        owner = self.program.class_of(function) if function is not None else None
        path = f"self.{target.attr}"
        if owner is None or path_of(target) != path:
            raise NotAnalysed
        inside = set(ast.walk(owner.node))
        for use in self.program.of_type(ast.Attribute):
            parent = self.program.parent(use)
            empties = isinstance(parent, ast.Assign) and getattr(parent.value, "value", "") is None
            if use.attr != target.attr or use is target or (empties and isinstance(use.ctx, ast.Store)):
                continue
            if use not in inside or path_of(use) != path or not isinstance(use.ctx, ast.Load):
                raise NotAnalysed
            self.follow(use, replace(trace, calls=()))
        self.shown = self.unfinished = True

    def put(self, container: ast.expr, node: ast.expr, key: Key, trace: Trace) -> None:
        """Go on with a variable that holds a container into which `node` is put: all its other uses may take it out."""
        if not isinstance(container, ast.Name):
            raise NotAnalysed
        graph, definitions = self.flow.graph(container), self.flow.definitions(container)
        if not definitions or graph.is_shared(container.id) or not all(map(self._is_made_here, definitions)):
            raise NotAnalysed
        for definition in definitions:
            self._uses([use for use in graph.uses.get(definition, []) if use is not container], trace.into(key, node))

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

    # -- through functions

    def into(self, callee: Function, call: ast.Call, node: ast.expr, trace: Trace) -> None:
        """Go on with the parameter that receives the value."""
        parameter, graph = self.program.receiver(node, call, callee), self.flow.graph_of(callee)
        if parameter is None or len(trace.calls) >= _DEPTH or call in trace.calls:
            raise NotAnalysed
        if parameter.arg in graph.shared or isinstance(callee, ast.Lambda) or is_decorated(self.program, callee):
            raise NotAnalysed
        self._uses(graph.uses.get(parameter, []), replace(trace, calls=(*trace.calls, call)))
        self._uses(graph.captured.get(parameter.arg, []), replace(trace, calls=()))

    def returned(self, parent: ast.Return, node: ast.expr, trace: Trace) -> None:
        """Go on after the calls of the function: the one that led here, else each in this file."""
        if trace.calls:
            self.follow(trace.calls[-1], replace(trace, calls=trace.calls[:-1]))
            return
        function = self.program.function_of(node)
        sites = self.program.call_sites(function)
        if not isinstance(function, ast.FunctionDef) or function.decorator_list or not sites:
            raise NotAnalysed
        if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own_nodes(function)):
            raise NotAnalysed
        for site in sites:
            # `self.forward(x)` stands next to the calls of the module itself, which are elsewhere
            if not self.program.calls(site, function) or getattr(site.func, "attr", "") == "forward":
                raise NotAnalysed
            self.follow(site, trace)
        is_inner = any(isinstance(each, FUNCTIONS) for each in self.program.ancestors(function))
        self.shown |= not (function.name.startswith("_") or is_inner)
