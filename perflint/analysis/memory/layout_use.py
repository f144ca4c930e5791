"""Follows a tensor to code that asks for its layout in memory, or relies on it, such as `.view()`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.occurrences import occurrences
from perflint.analysis.links import Manner
from perflint.analysis.values.operations import operation
from perflint.syntax.walk import bindings_of, path_of

_PUTTING = frozenset({"append", "extend", "insert", "add", "setdefault"})


def asks_for_layout(program: Program, node: ast.expr) -> bool:
    """Does code ask for the layout of the tensor, or of what is computed from it: here, or where it is returned to?"""
    return _Uses(program).asks(node)


class _Uses:
    """One walk from a tensor. What functions return to other files may be asked for anything there."""

    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._seen: set[ast.AST] = set()

    def asks(self, node: ast.expr) -> bool:
        """Does code in sight ask for the layout of the tensor, or of what is computed from it, or rely on it?"""
        if node in self._seen:
            return False
        self._seen.add(node)
        parent = self._program.parent(node)
        if isinstance(parent, ast.keyword):
            parent = self._program.parent(parent)
        if isinstance(parent, ast.Attribute):
            return self._is_asked_by(parent)
        if isinstance(parent, ast.Call):
            return self._is_asked_in(parent, node)
        if isinstance(parent, ast.NamedExpr) and self.asks(parent):
            return True
        if parent is not None and (targets := bindings_of(parent)):
            return any(node in (target, value) and self._is_asked_of(target) for target, value in targets)
        if isinstance(parent, ast.Return):
            function = self._program.function_of(node)
            is_shown = function is not None and self._program.is_called(function, Manner.CALLED)
            return is_shown or any(map(self.asks, self._program.call_sites(function)))
        if isinstance(parent, ast.Subscript) and parent.slice is node:
            return False
        return isinstance(parent, ast.expr) and self.asks(parent)

    def _is_asked_by(self, attribute: ast.Attribute) -> bool:
        name = attribute.attr
        if torch_ops.does(name, "strided") or name == "__array_interface__":
            return True
        if torch_ops.does(name, "layout_blind") or torch_ops.does(name, "measuring"):
            return False
        call = self._program.parent(attribute)
        is_method = isinstance(call, ast.Call) and call.func is attribute
        return self.asks(call if is_method and isinstance(call, ast.Call) else attribute)

    def _is_asked_in(self, call: ast.Call, node: ast.expr) -> bool:
        """Follow an argument into a function of the file, or through one of torch."""
        callee = self._program.callee(call)
        if callee is not None:
            parameter = self._program.receiver(node, call, callee)
            readers = self._flow.graph_of(callee).readers(parameter) if parameter is not None else []
            return any(map(self.asks, readers))
        name = path_of(call.func).rpartition(".")[2]
        if self._program.qualified(call.func).startswith("torch.") and torch_ops.does(name, "strided"):
            return True
        found = operation(self._program, call)
        if found is not None:
            return not found.does.does("layout_blind") and self.asks(call)
        holder = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in _PUTTING else None
        return isinstance(holder, ast.Name | ast.Attribute) and any(map(self.asks, self._held(holder)))

    def _is_asked_of(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Tuple | ast.List):
            return any(map(self._is_asked_of, target.elts))
        if isinstance(target, ast.Starred):
            return self._is_asked_of(target.value)
        return any(map(self.asks, self._uses(target)))

    def _uses(self, target: ast.expr) -> Iterable[ast.expr]:
        if isinstance(target, ast.Name):
            return self._flow.graph(target).readers(target)
        if isinstance(target, ast.Attribute):
            found = self._program.of_type(ast.Attribute)
            return [each for each in found if each.attr == target.attr and isinstance(each.ctx, ast.Load)]
        return self._held(target.value) if isinstance(target, ast.Subscript) else []

    def _held(self, holder: ast.expr) -> Iterable[ast.expr]:
        """The other places in the function that read a container."""
        function = self._program.function_of(holder) or self._program.tree
        path = path_of(holder)
        return [each for each in occurrences(function, path) if each is not holder] if path else []
