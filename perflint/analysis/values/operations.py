"""Tells which operation of torch a call runs, and on which tensor."""

from __future__ import annotations

import ast
from typing import NamedTuple

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import Bound, bind

_RECEIVERS = frozenset({Kind.TENSOR, Kind.UNKNOWN, Kind.METHOD})  # a method: an attribute of what is unknown


class TorchCall(NamedTuple):
    """A call of one of torch's functions, or of a tensor's method.

    `does` is what the table says of the operation. `tensor` is what it is a method of, or its first argument; None for
    what makes a tensor out of none. `arguments` are the other positional ones.
    """

    call: ast.Call
    does: torch_ops.Operation
    tensor: ast.expr | None
    arguments: tuple[ast.expr, ...]

    @property
    def name(self) -> str:
        """The canonical name, without a module and whatever it is imported as: "cat" for `torch.concat`."""
        return self.does.name

    def bound(self, *parameters: str) -> Bound:
        """The arguments by the names of the parameters behind the tensor."""
        is_function = self.tensor is not None and self.tensor in self.call.args
        return bind(self.call, ("input", *parameters) if is_function else parameters)

    @property
    def dim(self) -> ast.expr | None:
        """The axis that the operation works on, where it is given."""
        return self._axes.get("dim", "axis")

    @property
    def keepdim(self) -> ast.expr | None:
        """Whether a reduction keeps the axis, where that is said."""
        return self._axes.get("keepdim", "keepdims")

    @property
    def _axes(self) -> Bound:
        place = self.does.dim.position if self.does.dim is not None else None
        before = len(self.call.args) if place is None else place
        return bind(self.call, (*["_"] * before, "dim", "keepdim", "axis", "keepdims"))

    @property
    def traits(self) -> frozenset[str]:
        """What kind of operation it is: see `perflint.torch_ops.Operation`."""
        return self.does.traits


def operation(program: Program, node: ast.AST) -> TorchCall | None:
    """The operation of torch that `node` is a call of: its functions, or the methods of what is or may be a tensor."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    qualified = program.qualified(node.func)
    if qualified:
        function = torch_ops.of_function(qualified)
        if function is None:
            return None
        first = None if "factory" in function.traits else next(iter(node.args), None)
        return TorchCall(node, function, first, tuple(node.args if first is None else node.args[1:]))
    if not isinstance(node.func, ast.Attribute) or program.value(node.func.value).kind not in _RECEIVERS:
        return None
    method = torch_ops.of_method(node.func.attr) if program.callee(node) is None else None
    return TorchCall(node, method, node.func.value, tuple(node.args)) if method is not None else None
