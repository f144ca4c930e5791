"""Infers a lower bound of a tensor's rank from its uses."""

from __future__ import annotations

import ast

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer

_DEPTH = 10
_SAME_RANK: tuple[torch_ops.Trait, ...] = ("same_shape", "permuting", "pointwise")


class Ranks:
    """Least numbers of axes in one program. What is done to a tensor counts, for it would fail with fewer."""

    def __init__(self, program: Program, shapes: Shapes, flow: Flow) -> None:
        self._program, self._shapes, self._flow = program, shapes, flow
        self._open: set[ast.AST] = set()

    def least(self, node: ast.expr, depth: int = _DEPTH) -> int:
        """How many axes the tensor has at least."""
        rank = self._shapes.shape(node).rank
        if rank is not None:
            return rank
        if depth == 0 or node in self._open:
            return 0
        self._open.add(node)
        least = max(self._made(node, depth - 1), self._done(node))
        self._open.remove(node)
        return least

    def _made(self, node: ast.expr, depth: int) -> int:
        """What the making of it tells."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self._by_method(node, node.func, depth)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            return max(self._operand(each, depth) for each in (node.left, node.right))
        if isinstance(node, ast.Compare):
            return max(self._operand(each, depth) for each in (node.left, node.comparators[0]))
        if isinstance(node, ast.Subscript):
            return self._indexed(node, depth)
        if isinstance(node, ast.Name):
            values = [self._shapes.assigned(each) for each in self._flow.definitions(node)]
            least = [self.least(each, depth) if isinstance(each, ast.expr) else 0 for each in values]
            return min(least, default=0)
        return 0

    def _indexed(self, node: ast.Subscript, depth: int) -> int:
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        new = sum(isinstance(each, ast.Constant) and each.value is None for each in indices)
        dots = sum(isinstance(each, ast.Constant) and each.value is ... for each in indices)
        slices = sum(isinstance(each, ast.Slice) for each in indices)
        numbers = sum(self._is_number(each) for each in indices)
        if new + dots + slices + numbers < len(indices):
            return 0
        return max(self.least(node.value, depth), slices + numbers) - numbers + new

    def _operand(self, node: ast.expr, depth: int) -> int:
        return 0 if self._program.value(node).kind is Kind.NUMBER else self.least(node, depth)

    def _by_method(self, call: ast.Call, method: ast.Attribute, depth: int) -> int:
        if self._program.qualified(method) or self._program.callee(call) is not None:
            return 0
        name = method.attr
        entry = torch_ops.of_method(name)
        axis = _axis(entry, call)
        if name == "unsqueeze" and axis is not None:
            return max(self.least(method.value, depth) + 1, _needed(axis))
        if entry is not None and entry.does("reduction") and axis is not None:
            kept = any(each.arg == "keepdim" and getattr(each.value, "value", 0) is True for each in call.keywords)
            return max(self.least(method.value, depth), _needed(axis)) - (not kept)
        if entry is not None and entry.does("shaping") and len(call.args) > 1:
            return len(call.args) if not any(isinstance(each, ast.Starred) for each in call.args) else 0
        if entry is not None and (any(map(entry.does, _SAME_RANK)) or entry.name == "expand"):
            return self.least(method.value, depth)
        return 0

    def _done(self, node: ast.expr) -> int:
        """What is done to this very value, here or elsewhere in the function."""
        uses = {node}
        if isinstance(node, ast.Name):
            definitions = self._flow.definitions(node)
            for definition in definitions:
                same = self._flow.bindings(node).uses.get(definition, [])
                uses |= {use for use in same if self._flow.definitions(use) == definitions}
        return max((self._required(use) for use in uses if not self._is_tried(use, node)), default=0)

    def _is_tried(self, use: ast.expr, node: ast.expr) -> bool:
        """Does it stand under a condition that does not hold for `node` as well?"""
        conditions = [each for each in self._program.ancestors(use) if isinstance(each, ast.If | ast.IfExp | ast.Try)]
        return any(each not in set(self._program.ancestors(node)) for each in conditions)

    def _required(self, use: ast.expr) -> int:
        """The axes that this use needs."""
        parent = self._program.parent(use)
        if isinstance(parent, ast.Subscript) and parent.value is use:
            indices = parent.slice.elts if isinstance(parent.slice, ast.Tuple) else [parent.slice]
            return sum(isinstance(each, ast.Slice) or self._is_number(each) for each in indices)
        if not isinstance(parent, ast.Attribute):
            return 0
        around = self._program.parent(parent)
        if parent.attr == "shape" and isinstance(around, ast.Subscript):
            axis = integer(around.slice)
            return _needed(axis) if axis is not None else 0
        if not isinstance(around, ast.Call) or around.func is not parent:
            return 0
        if parent.attr in ("bmm", "baddbmm"):
            return 3
        if parent.attr == "permute" and len(around.args) > 1:
            return len(around.args)
        operation = torch_ops.of_method(parent.attr)
        if operation is None or operation.name == "unsqueeze":  # which counts the axes of its result
            return 0
        axes = around.args[:2] if operation.name == "transpose" else operation.dim.of(around) if operation.dim else ()
        known = [integer(each) for each in axes]
        return max((_needed(axis) for axis in known if axis is not None), default=0)

    def _is_number(self, node: ast.expr) -> bool:
        return integer(node) is not None or self._program.value(node).kind is Kind.NUMBER


def _axis(operation: torch_ops.Operation | None, call: ast.Call) -> int | None:
    axes = operation.dim.of(call) if operation is not None and operation.dim is not None else ()
    return integer(axes[0]) if axes else None


def _needed(axis: int) -> int:
    """The axes of a tensor that has the axis `axis`."""
    return axis + 1 if axis >= 0 else -axis
