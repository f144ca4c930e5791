"""Finds everything that reads a tensor: operations, modules and subscripts, through containers and functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.dispatch import Modules
from perflint.analysis.memory.library import is_decorated
from perflint.analysis.memory.roles import (
    WRAPPERS,
    Consumer,
    NotAnalysed,
    Reading,
    Role,
    converts,
    is_view,
    is_written,
    joins,
    measures,
    role_of_function,
    role_of_method,
    role_of_module,
)
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, Function, bindings_of, elements_of, own_nodes, receiver_of

_DEPTH = 4  # of calls in calls
_NESTED = 3  # lists in lists
_PATTERNS = frozenset("view_as expand_as reshape_as type_as to".split())  # for which a tensor may be the pattern
_ONLY_LOOK = frozenset(f"builtins.{name}" for name in "len isinstance print type".split())
_PASSING = WRAPPERS | {"torch.nn.functional.dropout"}
_GROWING = frozenset({"append", "extend", "insert"})
_EXTREMA = frozenset({"torch.max", "torch.min"})  # of one tensor, or of two element by element
_SCATTERING = ("masked_", "scatter", "gather", "bmm", "matmul", "index_")  # with these, a name is one of tensors' alone


def reading(program: Program, node: ast.expr) -> Reading | None:
    """All that becomes of the tensor `node`: through names, branches, views, containers and the file's functions.

    None where that isn't all known, or the tensor is written to.
    """
    walk = _Follower(program)
    try:
        walk.follow(node, Trace())
    except NotAnalysed:
        return None
    return Reading(tuple(walk.consumers), walk.measured, walk.converted, walk.shown)


@dataclass(frozen=True)
class Trace:
    """How the tensor came to where it is.

    `calls` led into the function; `inside` are the indices that lead to it within lists and tuples, None for any, the
    outermost first; `tensor` is the expression that put it there.
    """

    calls: tuple[ast.Call, ...] = ()
    inside: tuple[int | None, ...] = ()
    tensor: ast.expr | None = None

    def into(self, key: int | None, node: ast.expr) -> Trace:
        """Put `node` into a list or tuple, at `key`."""
        if len(self.inside) >= _NESTED:
            raise NotAnalysed
        return replace(self, inside=(key, *self.inside), tensor=self.tensor if self.inside else node)

    def out(self) -> Trace:
        return replace(self, inside=self.inside[1:])


class _Follower:
    def __init__(self, program: Program) -> None:
        self.program, self.flow = program, program.get(Flow)
        self.consumers: list[Consumer] = []
        self.measured = self.converted = self.shown = False
        self._seen: set[tuple[ast.AST, Trace]] = set()

    def follow(self, node: ast.expr, trace: Trace) -> None:
        if (node, trace) in self._seen:
            return
        self._seen.add((node, trace))
        self.step(self.program.parent(node) or node, node, trace)

    def consume(self, node: ast.AST, operand: ast.expr, role: Role, *, in_place: bool = False) -> None:
        self.consumers.append(Consumer(node, operand, role, in_place))

    # -- through names

    def assigned(self, target: ast.expr, value: ast.expr, trace: Trace) -> None:
        if isinstance(target, ast.Name):
            graph = self.flow.graph(target)
            around = (each for each in self.program.ancestors(target) if isinstance(each, (*FUNCTIONS, ast.ClassDef)))
            if target.id in graph.shared or isinstance(next(around, None), ast.ClassDef):
                raise NotAnalysed
            self._uses(graph.uses.get(target, []), trace)
            self._uses(graph.captured.get(target.id, []), replace(trace, calls=()))
        elif isinstance(target, ast.Tuple | ast.List) and trace.inside:
            key = trace.inside[0]
            if any(isinstance(each, ast.Starred) for each in target.elts):
                raise NotAnalysed
            for position, each in enumerate(target.elts):
                if key is None or key == position:
                    self.assigned(each, value, trace.out())
        elif isinstance(target, ast.Subscript) and self._is_tensor(target.value) and not trace.inside:
            self.consume(target, value, Role.ELEMENTWISE, in_place=True)
        elif isinstance(target, ast.Subscript) and self.program.value(target.value).kind is Kind.SEQUENCE:
            self.put(target.value, value, trace)
        else:
            raise NotAnalysed

    def _uses(self, uses: Iterable[ast.Name], trace: Trace) -> None:
        for use in uses:
            self.follow(use, trace)

    def put(self, container: ast.expr, node: ast.expr, trace: Trace) -> None:
        if not isinstance(container, ast.Name):
            raise NotAnalysed
        graph, definitions = self.flow.graph(container), self.flow.definitions(container)
        if not definitions or graph.is_shared(container.id) or not all(map(self._is_made_here, definitions)):
            raise NotAnalysed
        for definition in definitions:
            self._uses([use for use in graph.uses.get(definition, []) if use is not container], trace.into(None, node))

    def _is_made_here(self, definition: ast.AST) -> bool:
        parent = self.program.parent(definition)
        if not isinstance(parent, ast.Assign) or parent.targets != [definition]:
            return False
        is_list = isinstance(parent.value, ast.List | ast.ListComp | ast.BinOp)
        return is_list or self.program.call_of(parent.value, "builtins.list") is not None

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

    # -- by what is around

    def step(self, parent: ast.AST, node: ast.expr, trace: Trace) -> None:
        step = _STEPS.get(type(parent)) or (_OF_CONTAINERS if trace.inside else _OF_TENSORS).get(type(parent))
        if step is None:
            raise NotAnalysed
        step(self, parent, node, trace)

    def _argument(self, parent: ast.Call | ast.keyword, node: ast.expr, trace: Trace) -> None:
        call = parent if isinstance(parent, ast.Call) else self.program.parent(parent)
        keyword = parent.arg if isinstance(parent, ast.keyword) else ""
        if not isinstance(call, ast.Call) or node is call.func or keyword is None:
            raise NotAnalysed
        callee, function = self.program.callee(call), self.program.value(call.func)
        if callee is not None and (function.sure or trace.inside):
            self.into(callee, call, node, trace)
        elif trace.inside:
            if keyword:
                raise NotAnalysed
            self._container_given(call, node, trace)
        elif keyword == "out":
            raise NotAnalysed
        elif candidates := self.program.get(Modules).forwards(call):
            for each in candidates:
                self.into(each, call, node, trace)
        else:
            self._tensor_given(call, node, trace, keyword)

    # -- what is done to a tensor

    def _tensor_given(self, call: ast.Call, node: ast.expr, trace: Trace, keyword: str) -> None:
        function, func = self.program.value(call.func), call.func
        if function.kind is Kind.LIBRARY:
            self._library(call, node, trace, keyword)
        elif isinstance(func, ast.Attribute) and self._is_of_tensor(func):
            if func.attr in _PATTERNS:
                self.measured = True
            else:
                in_place = torch_ops.writes_in_place(func.attr)
                self.consume(call, node, role_of_method(func.attr, receiver=False), in_place=in_place)
        elif isinstance(func, ast.Attribute) and func.attr in ("append", "insert") and isinstance(func.value, ast.Name):
            self.put(func.value, node, trace)
        elif (role := role_of_module(function)) is not None:
            self.consume(call, node, role)
        else:
            self.follow(call, trace)

    def _is_of_tensor(self, method: ast.Attribute) -> bool:
        kind = self.program.value(method.value).kind
        return kind is Kind.TENSOR or (kind is Kind.UNKNOWN and method.attr.startswith(_SCATTERING))

    def _library(self, call: ast.Call, node: ast.expr, trace: Trace, keyword: str) -> None:
        name = self.program.qualified(call.func)
        short = name.rpartition(".")[2]
        parts = torch_ops.does(short, "parting")
        if joins(name):
            self.consume(call, node, Role.READ)
        elif name in _PASSING:
            if (operation := torch_ops.of_function(name)) is not None and is_written(operation, call, node):
                raise NotAnalysed
            self.follow(call, trace)
        elif name.startswith("torch.") and (is_view(short) or parts):
            if node is not call.args[0]:
                raise NotAnalysed
            self.follow(call, trace.into(None, call) if parts else trace)
        elif name in _EXTREMA and call.args[1:] and all(self._is_tensor(each) for each in call.args):
            self.consume(call, node, Role.ELEMENTWISE)
        elif name not in {*_ONLY_LOOK, "builtins.id"}:
            reads = role_of_function(name, call, node, keyword)
            if reads is not None:
                self.consume(call, node, reads[0], in_place=reads[1])

    def _is_tensor(self, node: ast.expr) -> bool:
        return self.program.value(node).kind is Kind.TENSOR

    def _attribute(self, parent: ast.Attribute, node: ast.expr, trace: Trace) -> None:
        call, name = self.program.parent(parent), parent.attr
        if not isinstance(parent.ctx, ast.Load):
            raise NotAnalysed
        if measures(name):
            self.measured |= name == "shape" or torch_ops.canonical(f"torch.Tensor.{name}") in ("size", "numel")
        elif not isinstance(call, ast.Call) or call.func is not parent:
            if name not in ("T", "mT", "data"):
                raise NotAnalysed
            self.follow(parent, trace)
        elif is_view(name) or converts(name):
            self.converted |= converts(name)
            self.follow(call, trace)
        elif torch_ops.does(name, "parting"):
            self.follow(call, trace.into(None, call))
        else:
            self.consume(call, parent.value, role_of_method(name, receiver=True))

    def _subscript(self, parent: ast.Subscript, node: ast.expr, trace: Trace) -> None:
        if node is not parent.value:
            self._index(parent, node)
        elif not isinstance(parent.ctx, ast.Load):
            raise NotAnalysed
        elif any(map(self._is_tensor, elements_of(parent.slice))):
            self.consume(parent, node, Role.READ)
        else:
            self.follow(parent, trace)

    def _index(self, parent: ast.Subscript, node: ast.expr) -> None:
        kind = self.program.value(parent.value).kind
        several = kind is Kind.UNKNOWN and isinstance(parent.slice, ast.Tuple)
        if (kind is not Kind.TENSOR and not several) or isinstance(parent.ctx, ast.Del):
            raise NotAnalysed
        self.consume(parent, node, Role.READ)

    def _operand(self, parent: ast.BinOp | ast.UnaryOp, node: ast.expr, trace: Trace) -> None:
        if isinstance(parent.op, ast.Not):
            raise NotAnalysed
        if isinstance(parent.op, ast.UAdd):  # which gives the tensor itself
            self.follow(parent, trace)
            return
        self.consume(parent, node, Role.MATMUL if isinstance(parent.op, ast.MatMult) else Role.ELEMENTWISE)

    def _compared(self, parent: ast.Compare, node: ast.expr, trace: Trace) -> None:
        if all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops):
            return
        if any(isinstance(op, ast.In | ast.NotIn) for op in parent.ops) or len(parent.ops) > 1:
            raise NotAnalysed
        self.consume(parent, node, Role.ELEMENTWISE)

    def _augmented(self, parent: ast.AugAssign, node: ast.expr, trace: Trace) -> None:
        if node is not parent.value or not self._is_tensor(parent.target) or isinstance(parent.op, ast.MatMult):
            raise NotAnalysed
        self.consume(parent, node, Role.ELEMENTWISE, in_place=True)

    # -- what is done to a container that holds it

    def _container_given(self, call: ast.Call, node: ast.expr, trace: Trace) -> None:
        name, grown = self.program.qualified(call.func), receiver_of(call, "append", "insert")
        if joins(name) and len(trace.inside) == 1 and trace.tensor is not None:
            self.consume(call, trace.tensor, Role.READ)
        elif grown is not None:
            self.put(grown, node, trace)
        elif name not in {*_ONLY_LOOK, "builtins.range"}:
            raise NotAnalysed

    def _method_of_container(self, parent: ast.Attribute, node: ast.expr, trace: Trace) -> None:
        """Only what puts more into it is known to leave the tensor where it is, unless that goes before it."""
        call = self.program.parent(parent)
        shifts = parent.attr == "insert" and trace.inside[0] is not None
        if shifts or parent.attr not in _GROWING or not isinstance(call, ast.Call) or call.func is not parent:
            raise NotAnalysed

    def _item(self, parent: ast.Subscript, node: ast.expr, trace: Trace) -> None:
        key, index = trace.inside[0], parent.slice
        if node is not parent.value:
            raise NotAnalysed
        if not isinstance(parent.ctx, ast.Load):
            return  # another item is put into it, or taken away
        if isinstance(index, ast.Slice):
            raise NotAnalysed
        if key is None or not isinstance(index, ast.Constant) or index.value == key:  # from the end, it may be any
            self.follow(parent, trace.out())

    def _iterated(self, parent: ast.For | ast.comprehension, node: ast.expr, trace: Trace) -> None:
        if node is not parent.iter:
            raise NotAnalysed
        self.assigned(parent.target, node, trace.out())

    # -- what is done to either

    def _assigned(self, parent: ast.Assign | ast.AnnAssign | ast.NamedExpr, node: ast.expr, trace: Trace) -> None:
        for target, _ in bindings_of(parent):
            self.assigned(target, node, trace)
        if isinstance(parent, ast.NamedExpr):
            self.follow(parent, trace)

    def _chosen(self, parent: ast.IfExp, node: ast.expr, trace: Trace) -> None:
        if node is parent.test:
            raise NotAnalysed
        self.follow(parent, trace)

    def _collected(self, parent: ast.Tuple | ast.List, node: ast.expr, trace: Trace) -> None:
        around = self.program.parent(parent)
        if isinstance(around, ast.Subscript) and parent is around.slice:
            if trace.inside:
                raise NotAnalysed
            self._index(around, node)
            return
        position = parent.elts.index(node)
        starred = any(isinstance(each, ast.Starred) for each in parent.elts[:position])
        self.follow(parent, trace.into(None if starred else position, node))


_Step = Callable[[_Follower, Any, ast.expr, Trace], None]  # from a node, as a part of its parent
_STEPS: dict[type[ast.AST], _Step] = {
    ast.Assign: _Follower._assigned,
    ast.AnnAssign: _Follower._assigned,
    ast.NamedExpr: _Follower._assigned,
    ast.Return: _Follower.returned,
    ast.IfExp: _Follower._chosen,
    ast.Expr: lambda self, parent, node, trace: None,
    ast.Tuple: _Follower._collected,
    ast.List: _Follower._collected,
    ast.ListComp: lambda self, parent, node, trace: self.follow(parent, trace.into(None, node)),
    ast.GeneratorExp: lambda self, parent, node, trace: self.follow(parent, trace.into(None, node)),
    ast.Call: _Follower._argument,
    ast.keyword: _Follower._argument,
}
_OF_TENSORS: dict[type[ast.AST], _Step] = {
    ast.Attribute: _Follower._attribute,
    ast.Subscript: _Follower._subscript,
    ast.BinOp: _Follower._operand,
    ast.UnaryOp: _Follower._operand,
    ast.Compare: _Follower._compared,
    ast.AugAssign: _Follower._augmented,
}
_OF_CONTAINERS: dict[type[ast.AST], _Step] = {
    ast.Attribute: _Follower._method_of_container,
    ast.Subscript: _Follower._item,
    ast.For: _Follower._iterated,
    ast.comprehension: _Follower._iterated,
}
