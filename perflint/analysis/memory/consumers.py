"""Finds everything that reads a tensor: operations, modules and subscripts, through names and functions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
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
_PATTERNS = frozenset("view_as expand_as reshape_as type_as to".split())  # for which a tensor may be the pattern
_ONLY_LOOK = frozenset(f"builtins.{name}" for name in "len isinstance print type".split())
_PASSING = WRAPPERS | {"torch.nn.functional.dropout"}
_EXTREMA = frozenset({"torch.max", "torch.min"})  # of one tensor, or of two element by element
_SCATTERING = ("masked_", "scatter", "gather", "bmm", "matmul", "index_")  # with these, a name is one of tensors' alone


def reading(program: Program, node: ast.expr) -> Reading | None:
    """All that becomes of the tensor `node`: through names, branches, views and the file's functions.

    None where that isn't all known, or the tensor is written to.
    """
    walk = _Follower(program)
    try:
        walk.follow(node, ())
    except NotAnalysed:
        return None
    return Reading(tuple(walk.consumers), walk.converted, walk.shown)


Calls = tuple[ast.Call, ...]  # that led into the function


class _Follower:
    def __init__(self, program: Program) -> None:
        self.program, self.flow = program, program.get(Flow)
        self.consumers: list[Consumer] = []
        self.converted = self.shown = False
        self._seen: set[tuple[ast.AST, Calls]] = set()

    def follow(self, node: ast.expr, calls: Calls) -> None:
        if (node, calls) in self._seen:
            return
        self._seen.add((node, calls))
        self.step(self.program.parent(node) or node, node, calls)

    def consume(self, node: ast.AST, operand: ast.expr, role: Role, *, in_place: bool = False) -> None:
        self.consumers.append(Consumer(node, operand, role, in_place))

    # -- through names

    def assigned(self, target: ast.expr, value: ast.expr, calls: Calls) -> None:
        if isinstance(target, ast.Name):
            graph = self.flow.graph(target)
            if target.id in graph.shared or isinstance(self.program.definition_around(target), ast.ClassDef):
                raise NotAnalysed
            self._uses(graph.uses.get(target, []), calls)
            self._uses(graph.captured.get(target.id, []), ())
        elif isinstance(target, ast.Subscript) and self._is_tensor(target.value):
            self.consume(target, value, Role.ELEMENTWISE, in_place=True)
        else:
            raise NotAnalysed

    def _uses(self, uses: Iterable[ast.Name], calls: Calls) -> None:
        for use in uses:
            self.follow(use, calls)

    # -- through functions

    def into(self, callee: Function, call: ast.Call, node: ast.expr, calls: Calls) -> None:
        parameter, graph = self.program.receiver(node, call, callee), self.flow.graph_of(callee)
        if parameter is None or len(calls) >= _DEPTH or call in calls:
            raise NotAnalysed
        if parameter.arg in graph.shared or isinstance(callee, ast.Lambda) or is_decorated(self.program, callee):
            raise NotAnalysed
        self._uses(graph.uses.get(parameter, []), (*calls, call))
        self._uses(graph.captured.get(parameter.arg, []), ())

    def returned(self, parent: ast.Return, node: ast.expr, calls: Calls) -> None:
        if calls:
            self.follow(calls[-1], calls[:-1])
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
            self.follow(site, calls)
        is_inner = any(isinstance(each, FUNCTIONS) for each in self.program.ancestors(function))
        self.shown |= not (function.name.startswith("_") or is_inner)

    # -- by what is around

    def step(self, parent: ast.AST, node: ast.expr, calls: Calls) -> None:
        step = _STEPS.get(type(parent))
        if step is None:
            raise NotAnalysed
        step(self, parent, node, calls)

    def _argument(self, parent: ast.Call | ast.keyword, node: ast.expr, calls: Calls) -> None:
        call = parent if isinstance(parent, ast.Call) else self.program.parent(parent)
        keyword = parent.arg if isinstance(parent, ast.keyword) else ""
        if not isinstance(call, ast.Call) or node is call.func or keyword is None:
            raise NotAnalysed
        callee, function = self.program.callee(call), self.program.value(call.func)
        if callee is not None and function.sure:
            self.into(callee, call, node, calls)
        elif keyword == "out":
            raise NotAnalysed
        elif candidates := self.program.get(Modules).forwards(call):
            for each in candidates:
                self.into(each, call, node, calls)
        else:
            self._tensor_given(call, node, calls, keyword)

    # -- what is done to a tensor

    def _tensor_given(self, call: ast.Call, node: ast.expr, calls: Calls, keyword: str) -> None:
        function, func = self.program.value(call.func), call.func
        if function.kind is Kind.LIBRARY:
            self._library(call, node, calls, keyword)
        elif isinstance(func, ast.Attribute) and self._is_of_tensor(func):
            if func.attr not in _PATTERNS:
                in_place = torch_ops.writes_in_place(func.attr)
                self.consume(call, node, role_of_method(func.attr, receiver=False), in_place=in_place)
        elif receiver_of(call, "append", "insert") is not None:
            raise NotAnalysed
        elif (role := role_of_module(function)) is not None:
            self.consume(call, node, role)
        else:
            self.follow(call, calls)

    def _is_of_tensor(self, method: ast.Attribute) -> bool:
        kind = self.program.value(method.value).kind
        return kind is Kind.TENSOR or (kind is Kind.UNKNOWN and method.attr.startswith(_SCATTERING))

    def _library(self, call: ast.Call, node: ast.expr, calls: Calls, keyword: str) -> None:
        name = self.program.qualified(call.func)
        short = name.rpartition(".")[2]
        if joins(name):
            self.consume(call, node, Role.READ)
        elif name in _PASSING:
            if (operation := torch_ops.of_function(name)) is not None and is_written(operation, call, node):
                raise NotAnalysed
            self.follow(call, calls)
        elif name.startswith("torch.") and is_view(short):
            if node is not call.args[0]:
                raise NotAnalysed
            self.follow(call, calls)
        elif torch_ops.does(short, "parting"):
            raise NotAnalysed
        elif name in _EXTREMA and call.args[1:] and all(self._is_tensor(each) for each in call.args):
            self.consume(call, node, Role.ELEMENTWISE)
        elif name not in {*_ONLY_LOOK, "builtins.id"}:
            reads = role_of_function(name, call, node, keyword)
            if reads is not None:
                self.consume(call, node, reads[0], in_place=reads[1])

    def _is_tensor(self, node: ast.expr) -> bool:
        return self.program.value(node).kind is Kind.TENSOR

    def _attribute(self, parent: ast.Attribute, node: ast.expr, calls: Calls) -> None:
        call, name = self.program.parent(parent), parent.attr
        if not isinstance(parent.ctx, ast.Load):
            raise NotAnalysed
        if measures(name):
            return
        if not isinstance(call, ast.Call) or call.func is not parent:
            if name not in ("T", "mT", "data"):
                raise NotAnalysed
            self.follow(parent, calls)
        elif is_view(name) or converts(name):
            self.converted |= converts(name)
            self.follow(call, calls)
        elif torch_ops.does(name, "parting"):
            raise NotAnalysed
        else:
            self.consume(call, parent.value, role_of_method(name, receiver=True))

    def _subscript(self, parent: ast.Subscript, node: ast.expr, calls: Calls) -> None:
        if node is not parent.value:
            self._index(parent, node)
        elif not isinstance(parent.ctx, ast.Load):
            raise NotAnalysed
        elif any(map(self._is_tensor, elements_of(parent.slice))):
            self.consume(parent, node, Role.READ)
        else:
            self.follow(parent, calls)

    def _index(self, parent: ast.Subscript, node: ast.expr) -> None:
        kind = self.program.value(parent.value).kind
        several = kind is Kind.UNKNOWN and isinstance(parent.slice, ast.Tuple)
        if (kind is not Kind.TENSOR and not several) or isinstance(parent.ctx, ast.Del):
            raise NotAnalysed
        self.consume(parent, node, Role.READ)

    def _operand(self, parent: ast.BinOp | ast.UnaryOp, node: ast.expr, calls: Calls) -> None:
        if isinstance(parent.op, ast.Not | ast.UAdd):  # which gives the tensor itself
            raise NotAnalysed
        self.consume(parent, node, Role.MATMUL if isinstance(parent.op, ast.MatMult) else Role.ELEMENTWISE)

    def _compared(self, parent: ast.Compare, node: ast.expr, calls: Calls) -> None:
        if all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops):
            return
        if any(isinstance(op, ast.In | ast.NotIn) for op in parent.ops) or len(parent.ops) > 1:
            raise NotAnalysed
        self.consume(parent, node, Role.ELEMENTWISE)

    def _augmented(self, parent: ast.AugAssign, node: ast.expr, calls: Calls) -> None:
        if node is not parent.value or not self._is_tensor(parent.target) or isinstance(parent.op, ast.MatMult):
            raise NotAnalysed
        self.consume(parent, node, Role.ELEMENTWISE, in_place=True)

    def _assigned(self, parent: ast.Assign | ast.AnnAssign, node: ast.expr, calls: Calls) -> None:
        for target, _ in bindings_of(parent):
            self.assigned(target, node, calls)

    def _collected(self, parent: ast.Tuple | ast.List, node: ast.expr, calls: Calls) -> None:
        around = self.program.parent(parent)
        if isinstance(around, ast.Subscript) and parent is around.slice:
            self._index(around, node)
        elif isinstance(around, ast.Call) and parent in around.args and joins(self.program.qualified(around.func)):
            self.consume(around, node, Role.READ)
        else:
            raise NotAnalysed


_Step = Callable[[_Follower, Any, ast.expr, Calls], None]  # from a node, as a part of its parent
_STEPS: dict[type[ast.AST], _Step] = {
    ast.Assign: _Follower._assigned,
    ast.AnnAssign: _Follower._assigned,
    ast.Return: _Follower.returned,
    ast.Expr: lambda self, parent, node, calls: None,
    ast.Tuple: _Follower._collected,
    ast.List: _Follower._collected,
    ast.Call: _Follower._argument,
    ast.keyword: _Follower._argument,
    ast.Attribute: _Follower._attribute,
    ast.Subscript: _Follower._subscript,
    ast.BinOp: _Follower._operand,
    ast.UnaryOp: _Follower._operand,
    ast.Compare: _Follower._compared,
    ast.AugAssign: _Follower._augmented,
}
