"""What operations along axes of one tensor are told: the table of their parameters, and a call read by it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from perflint.syntax.walk import integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.vectorize.operations import Operation


@dataclass(frozen=True)
class Form:
    """The parameters of an operation behind its tensor; `axes` are those that name axes, with their defaults.

    `fewer`: so many axes go, unless `keepdim`; None where the sizes tell. `is_pair`: it gives values and indices.
    `is_view`: of its input. `is_variadic`: its one parameter takes all arguments.
    `is_total`: where it is told no axis, it takes all.
    """

    parameters: tuple[str, ...]
    axes: dict[str, int | None] = field(default_factory=dict)
    fewer: int | None = 0
    is_pair: bool = False
    is_view: bool = False
    is_variadic: bool = False
    is_total: bool = False


_DIM: dict[str, int | None] = {"dim": None}
_LAST: dict[str, int | None] = {"dim": -1}
_SWAP = Form(("dim0", "dim1"), {"dim0": None, "dim1": None}, is_view=True)
_ALONG = Form(("dim",), _DIM)
_REDUCED = Form(("dim", "keepdim"), _DIM, fewer=1)
_PICKED = replace(_REDUCED, is_pair=True)
_TOTAL = replace(_REDUCED, is_total=True)
_SPREAD = Form(("dim",), _DIM, fewer=1)
_FORMS = {
    "transpose": _SWAP,
    "swapaxes": Form(("axis0", "axis1"), {"axis0": None, "axis1": None}, is_view=True),
    "swapdims": _SWAP,
    "flatten": Form(("start_dim", "end_dim"), {"start_dim": 0, "end_dim": -1}, fewer=None, is_view=True),
    "chunk": Form(("chunks", "dim"), {"dim": 0}, is_view=True),
    "unsqueeze": Form(("dim",), _DIM, fewer=-1, is_view=True),
    "squeeze": Form(("dim",), _DIM, fewer=None, is_view=True),
    "select": Form(("dim", "index"), _DIM, fewer=1, is_view=True),
    "narrow": Form(("dim", "start", "length"), _DIM, is_view=True),
    "index_select": Form(("dim", "index"), _DIM),
    "flip": Form(("dims",), {"dims": None}, is_variadic=True),
    "roll": Form(("shifts", "dims"), {"dims": None}),
    "repeat_interleave": Form(("repeats", "dim"), _DIM),
    "topk": Form(("k", "dim", "largest", "sorted"), _LAST, is_pair=True),
    "sort": Form(("dim", "descending"), _LAST, is_pair=True),
    "argsort": Form(("dim", "descending"), _LAST),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "cumprod"), _ALONG),
    **dict.fromkeys(("max", "min"), _PICKED),
    **dict.fromkeys(("sum", "mean"), _TOTAL),
    **dict.fromkeys(("all", "any", "prod", "logsumexp", "amax", "amin", "argmax", "argmin"), _REDUCED),
    **dict.fromkeys(("std", "var"), _SPREAD),
    "norm": Form(("p", "dim", "keepdim"), _DIM, fewer=1),
    "normalize": Form(("p", "dim", "eps"), {"dim": 1}),
    "glu": Form(("dim",), _LAST),
}
_NO_AXES = frozenset({"keepdim", "unbiased", "correction", "dtype"})  # what more an operation may be told
_MEANT = {"axis": "dim", "keepdims": "keepdim"}  # other words for the same


@dataclass(frozen=True)
class Call:
    """An operation of this form, with the arguments `given` to it and the `axes` they name, by parameter."""

    operation: Operation
    form: Form
    given: dict[str, ast.expr]
    axes: dict[str, tuple[int, ...]]

    @property
    def node(self) -> ast.Call:
        return self.operation.node

    @property
    def all_axes(self) -> list[int]:
        """The axes that it works on."""
        return [axis for each in self.axes.values() for axis in each]

    @property
    def fewer(self) -> int:
        """How many axes go."""
        keeps = self.given.get("keepdim", ast.Constant(False))
        if not isinstance(keeps, ast.Constant):
            raise Blocked("it is not known whether the axis is kept", self.node)
        return 0 if keeps.value is True else (self.form.fewer or 0) * max(map(len, self.axes.values()))


def read(operation: Operation) -> Call | None:
    """The operation with what it is told; None where no form is known of it. Raises Blocked."""
    form = _FORMS.get(operation.name)
    if form is None:
        return None
    given = _given(operation, form)
    if form.is_total and not given:
        return Call(operation, form, given, {})
    axes = {each: _axes(given.get(each), default, operation) for each, default in form.axes.items()}
    return Call(operation, form, given, axes)


def _given(operation: Operation, form: Form) -> dict[str, ast.expr]:
    """The arguments behind the tensor, by parameter."""
    arguments = operation.operands[1:]
    if form.is_variadic and len(arguments) > 1:
        arguments = [ast.Tuple(arguments)]
    if len(arguments) > len(form.parameters):
        raise Blocked("it gets more than axes", operation.node)
    given: dict[str, ast.expr] = dict(zip(form.parameters, arguments, strict=False))
    for name, value in keywords(operation.node):
        if name not in (*form.parameters, *_NO_AXES):
            raise Blocked(f"`{name}` is not known to leave the axes alone", operation.node)
        given[name] = value
    return given


def keywords(node: ast.Call) -> list[tuple[str, ast.expr]]:
    """The keywords of a call, each as torch calls it first."""
    return [(_MEANT.get(each.arg or "", each.arg or "**"), each.value) for each in node.keywords]


def _axes(given: ast.expr | None, default: int | None, operation: Operation) -> tuple[int, ...]:
    """The axes that an argument names."""
    if given is None and default is not None:
        return (default,)
    if given is None:
        raise Blocked(f"`{operation.name}` is told no axis", operation.node)
    return constants(given, operation.node)


def constants(given: ast.expr, node: ast.AST) -> tuple[int, ...]:
    """The axes that an expression names; raises Blocked where they are no constants."""
    parts = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
    found = [axis for part in parts if (axis := integer(part)) is not None]
    if len(found) != len(parts) or not found:
        raise Blocked("which axis is meant is no constant", node)
    return tuple(found)
