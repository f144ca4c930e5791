"""Finds in a function, and in those of the same file that it calls, what a CUDA graph would not hold."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import FUNCTIONS, own_nodes, root_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.capture.calls import check_call
from perflint.transforms.capture.modes import MODES, referred
from perflint.transforms.capture.ownership import argument_names, is_new, is_own, memory_of
from perflint.transforms.capture.reads import check_reads
from perflint.transforms.capture.written import changes_in_place
from perflint.transforms.shown import shown

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_OTHER_CODE = {
    ast.Try: "handles errors",
    getattr(ast, "TryStar", ast.Try): "handles errors",
    ast.Yield: "hands over to the caller",
    ast.YieldFrom: "hands over to the caller",
    ast.Await: "waits for other code",
    ast.AsyncFor: "waits for other code",
    ast.AsyncWith: "waits for other code",
    ast.Global: "assigns a global",
    ast.Nonlocal: "assigns a name of the function around it",
    ast.ClassDef: "defines a class",
    ast.Match: "matches patterns",
}
_OUTSIDE = "do that in a function around this one"
TRANSPARENT = MODES | {"builtins.staticmethod", "builtins.classmethod", "typing.override", "typing_extensions.override"}


@dataclass
class Obstacles:
    """Raises Blocked at the first thing that is in the way.

    `quiet`: no gradients are recorded. `strict`: steps whose results are dropped may run, so that nothing may be
    changed but the step's own values, and the names in `owned`, which each step has copies of.
    """

    program: Program
    quiet: bool
    strict: bool = False
    owned: frozenset[str] = frozenset()
    _seen: set[ast.AST] = field(default_factory=set)

    def check_function(self, function: ast.FunctionDef) -> None:
        """Check all that a function does."""
        if function in self._seen:
            return
        self._seen.add(function)
        for decorator in function.decorator_list:
            if self.program.qualified(referred(decorator)) not in TRANSPARENT:
                raise Blocked(
                    f"`@{self.program.segment(decorator)}` may do something else than call it: {_OUTSIDE}", decorator
                )
        self.check(function.body, function)

    def check(self, parts: Iterable[ast.AST], region: ast.AST) -> None:
        """Check parts of `region`, a function, or a loop whose steps' own values alone may be changed."""
        for part in parts:
            for node in own_nodes(part):
                self._node(node, region)

    def _node(self, node: ast.AST, region: ast.AST) -> None:
        if (does := _OTHER_CODE.get(type(node))) or isinstance(node, FUNCTIONS):
            raise Blocked(f"it {does or 'defines a function'}: {_OUTSIDE}", node)
        check_reads(self.program, node)
        if isinstance(node, ast.Call):
            callee = check_call(self.program, node, region, self.strict)
            owner = self.program.class_of(callee) if callee is not None else None
            if callee is not None and owner is not None and any(True for _ in owner.overriding(callee.name)):
                raise Blocked(f"a subclass has its own `{callee.name}`: decorate the methods of both by hand", node)
            if callee is not None:
                self.check_function(callee)
            elif isinstance(node.func, ast.Attribute) and changes_in_place(node.func.attr):
                self._written(node, node.func.value, region)
        elif isinstance(node, ast.With):
            self._contexts(node)
        elif isinstance(node, ast.For) and self.program.value(node.iter).kind is Kind.LOADER:
            raise Blocked("it walks a loader: make a function of what is done for one batch", node)
        elif isinstance(node, ast.Subscript):
            self._subscript(node, region)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, region)
        elif isinstance(node, ast.AugAssign) and self._is_changed(node.target):
            self._written(node, node.target, region)

    def _is_changed(self, target: ast.expr) -> bool:
        """Is what `+=` adds to the same object before and behind it, as a number is not?"""
        return isinstance(target, ast.Name) and self.program.value(target).kind is not Kind.NUMBER

    def _contexts(self, node: ast.With) -> None:
        for item in node.items:
            expression = item.context_expr
            if self.program.qualified(referred(expression)) not in MODES:
                raise Blocked(f"{shown(self.program, expression)} may do something else than compute: {_OUTSIDE}", node)

    def _attribute(self, node: ast.Attribute, region: ast.AST) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            raise Blocked(
                f"{shown(self.program, node)} is assigned, which a replay would not do: return it, and let the caller",
                node,
            )
        parent = self.program.parent(node)
        is_method = isinstance(parent, ast.Call) and parent.func is node
        if not is_method and torch_ops.of_attribute(node.attr) is None:
            self._object(node, region)

    def _object(self, node: ast.Attribute | ast.Subscript, region: ast.AST) -> None:
        """What holds tensors but is no tensor, list or dict is another one at each call, such as a batch."""
        base = node.value
        if not isinstance(base, ast.Name) or base.id in ("self", "cls"):
            return
        if self.program.value(base).kind is Kind.UNKNOWN and base.id in argument_names(region):
            raise Blocked(
                f"`{base.id}` may be another object at each call: give the function the tensors that it reads", node
            )

    def _subscript(self, node: ast.Subscript, region: ast.AST) -> None:
        if isinstance(node.ctx, ast.Load):
            if self.program.value(node.slice).kind is Kind.STRING:
                self._object(node, region)
        else:
            self._written(node, node.value, region)

    def _written(self, node: ast.AST, base: ast.expr, region: ast.AST) -> None:
        """What others see may be written to where it is a tensor, and no gradients are recorded."""
        if is_own(self.program, region, base) or is_new(self.program, base):
            return
        owner = memory_of(self.program, base)
        if not isinstance(region, ast.FunctionDef) and isinstance(owner, ast.Name) and owner.id in self.owned:
            return
        is_tensor = self.program.value(base).kind is Kind.TENSOR and isinstance(root_of(base), ast.Name)
        if self.strict or not is_tensor or not (self.quiet or self.program.without_gradients(node)):
            raise Blocked(
                f"{shown(self.program, base)} is changed in place, which others may see: make a new tensor instead",
                node,
            )
