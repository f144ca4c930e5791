"""Lifts what moves, joins, parts or drops axes: with time in front of all others, each axis has a number one higher."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from perflint.fixes.blocked import Blocked
from perflint.fixes.text import atom
from perflint.lift.purity import invariant
from perflint.lift.scope import Scope
from perflint.lift.steps import Lifted, Parts, Steps, in_front
from perflint.program.shapes.shape import integer


@dataclass(frozen=True)
class Form:
    """The parameters of an operation behind its tensor; `axes` are those that name axes, with their defaults.

    `fewer`: so many axes go, unless `keepdim`. `is_pair`: it gives values and indices. `is_view`: of its input.
    """

    parameters: tuple[str, ...]
    axes: dict[str, int | None] = field(default_factory=dict)
    fewer: int = 0
    is_pair: bool = False
    is_view: bool = False


_DIM: dict[str, int | None] = {"dim": None}
_LAST: dict[str, int | None] = {"dim": -1}
_SWAP = Form(("dim0", "dim1"), {"dim0": None, "dim1": None}, is_view=True)
_REDUCED = Form(("dim", "keepdim"), _DIM, fewer=1)
FORMS = {
    "transpose": _SWAP,
    "swapaxes": Form(("axis0", "axis1"), {"axis0": None, "axis1": None}, is_view=True),
    "swapdims": _SWAP,
    "flatten": Form(("start_dim", "end_dim"), {"start_dim": 0, "end_dim": -1}, is_view=True),
    "chunk": Form(("chunks", "dim"), {"dim": 0}, is_view=True),
    "unsqueeze": Form(("dim",), _DIM, fewer=-1, is_view=True),
    "squeeze": Form(("dim",), _DIM, is_view=True),
    "select": Form(("dim", "index"), _DIM, fewer=1, is_view=True),
    "narrow": Form(("dim", "start", "length"), _DIM, is_view=True),
    "index_select": Form(("dim", "index"), _DIM),
    "flip": Form(("dims",), {"dims": None}),
    "roll": Form(("shifts", "dims"), {"dims": None}),
    "cumprod": Form(("dim",), _DIM),
    "repeat_interleave": Form(("repeats", "dim"), _DIM),
    "topk": Form(("k", "dim", "largest", "sorted"), _LAST, is_pair=True),
    "sort": Form(("dim", "descending"), _LAST, is_pair=True),
    "argsort": Form(("dim", "descending"), _LAST),
    "max": replace(_REDUCED, is_pair=True),
    "min": replace(_REDUCED, is_pair=True),
    "sum": _REDUCED,
    "mean": _REDUCED,
    "all": _REDUCED,
    "any": _REDUCED,
    "std": Form(("dim",), _DIM, fewer=1),
    "var": Form(("dim",), _DIM, fewer=1),
    "norm": Form(("p", "dim", "keepdim"), _DIM, fewer=1),
    "normalize": Form(("p", "dim", "eps"), {"dim": 1}),
    "glu": Form(("dim",), _LAST),
}
_NO_AXES = frozenset({"keepdim", "unbiased", "correction"})  # what more a reduction may be told


def laid_out(scope: Scope, node: ast.Call, name: str, operands: list[ast.expr], value: Steps) -> Lifted:
    """An operation, called `name`, on the axes of one tensor; raises Blocked."""
    front = in_front(value)
    if name == "permute":
        return _permuted(node, operands, front)
    if name in ("expand", "repeat"):
        return _widened(scope, node, name, operands, front)
    form = FORMS.get(name)
    if form is None:
        raise Blocked(f"there is no rule for all steps of `{name}` at once", node)
    given = _given(node, form, operands)
    axes = {each: _axes(given.get(each), default, node) for each, default in form.axes.items()}
    least = max(axis + 1 if axis >= 0 else -axis for each in axes.values() for axis in each)
    front = front.narrowed(least - (1 if form.fewer < 0 else 0))  # a new axis counts among those of the result
    named = {keyword.arg for keyword in node.keywords}
    found = ((each, _argument(scope, each, argument, axes)) for each, argument in given.items())
    texts = [f"{each}={text}" if each in named else text for each, text in found]
    texts += [f"{each}={_shifted(axis)}" for each, (axis, *_) in axes.items() if each not in given and axis >= 0]
    text = _written(scope, node, operands, front, texts)
    if name == "chunk":
        return _chunks(scope, node, given["chunks"], front, text)
    if name == "flatten":
        return _flattened(front, text, *axes["start_dim"], *axes["end_dim"], node=node)
    if name == "squeeze":
        some = f"{text} {scope.program.span(node)}"  # an axis of another size stays: it is the same in each step
        return replace(front.with_axes(-1, text), most=front.most, of=some)
    fewer = 0 if _is_kept(given, node) else form.fewer * max(map(len, axes.values()))
    made = front.with_axes(-fewer, text) if fewer else replace(front, text=text, dense=False)
    made = made if form.is_view else made.computed(text)
    return _pair(scope, made) if form.is_pair else made


def _given(node: ast.Call, form: Form, operands: list[ast.expr]) -> dict[str, ast.expr]:
    """The arguments behind the tensor, by parameter."""
    if len(operands) - 1 > len(form.parameters) and not (form.parameters == ("dims",)):
        raise Blocked("it gets more than axes", node)
    given: dict[str, ast.expr] = dict(zip(form.parameters, operands[1:], strict=False))
    if form.parameters == ("dims",) and len(operands) > 2:
        given = {"dims": ast.Tuple(operands[1:])}
    for keyword in node.keywords:
        if keyword.arg not in (*form.parameters, *_NO_AXES):
            raise Blocked(f"`{keyword.arg}` is not known to leave the axes alone", node)
        given[keyword.arg] = keyword.value
    return given


def _axes(given: ast.expr | None, default: int | None, node: ast.AST) -> tuple[int, ...]:
    """The axes that an argument names."""
    if given is None and default is not None:
        return (default,)
    parts = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
    found = [axis for part in parts if (axis := integer(part)) is not None]
    if len(found) != len(parts) or not found:
        raise Blocked("which axis is meant is no constant", node)
    return tuple(found)


def _shifted(axis: int) -> int:
    return axis if axis < 0 else axis + 1


def _argument(scope: Scope, name: str, given: ast.expr, axes: dict[str, tuple[int, ...]]) -> str:
    """An argument, as all steps take it."""
    if name in axes:
        new = [_shifted(axis) for axis in axes[name]]
        return str(tuple(new) if isinstance(given, ast.Tuple | ast.List) else new[0])
    if scope.varies(given):
        raise Blocked(f"`{name}` is another one in each step", given)
    return invariant(scope, given).text


def _written(scope: Scope, node: ast.Call, operands: list[ast.expr], value: Steps, arguments: list[str]) -> str:
    """The call, of a function or of a method as it was."""
    if isinstance(node.func, ast.Attribute) and node.func.value is operands[0]:
        return f"{atom(value.text)}.{node.func.attr}({', '.join(arguments)})"
    return f"{scope.text(node.func)}({', '.join([value.text, *arguments])})"


def _is_kept(given: dict[str, ast.expr], node: ast.AST) -> bool:
    keeps = given.get("keepdim", ast.Constant(False))
    if not isinstance(keeps, ast.Constant):
        raise Blocked("it is not known whether the axis is kept", node)
    return keeps.value is True


def _pair(scope: Scope, value: Steps) -> Parts:
    """Values and indices, which have the same shape."""
    pair = scope.bound(value.text)
    return Parts((value.named(f"{pair}[0]"), value.named(f"{pair}[1]")))


def _chunks(scope: Scope, node: ast.Call, count: ast.expr, value: Steps, text: str) -> Parts:
    parts = integer(count)
    if parts is None or parts < 1:
        raise Blocked("it is not known how many parts there are", node)
    chunks = scope.bound(text)
    return Parts(tuple(value.with_axes(0, f"{chunks}[{part}]") for part in range(parts)))


def _flattened(value: Steps, text: str, first: int, last: int, *, node: ast.AST) -> Steps:
    if value.least <= max(first, 0):
        raise Blocked("a step is not known to have an axis", node)
    if first >= 0 and last == -1:
        return replace(value, text=text, least=first + 1, most=first + 1, dense=False, of="")
    if (first < 0) is not (last < 0):
        raise Blocked("it is not known how many axes are left", node)
    return value.with_axes(first - last, text)


def _permuted(node: ast.Call, operands: list[ast.expr], value: Steps) -> Steps:
    parts = operands[1:]
    axes = _axes(ast.Tuple(parts) if len(parts) != 1 else parts[0], None, node)
    if node.keywords:
        raise Blocked("the new order of the axes is not in sight", node)
    value = value.narrowed(len(axes), len(axes))
    return value.with_axes(0, f"{atom(value.text)}.permute({', '.join(map(str, (0, *map(_shifted, axes))))})")


def _widened(scope: Scope, node: ast.Call, name: str, operands: list[ast.expr], value: Steps) -> Steps:
    """`x.expand(2, -1)` and `x.repeat(1, 3)`: new axes come behind time."""
    sizes = operands[1:]
    sizes = sizes[0].elts if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List) else sizes
    if value.rank is None or len(sizes) < value.rank or node.keywords:
        raise Blocked("it is not known how many axes a step has", node)
    if any(isinstance(size, ast.Starred) or scope.varies(size) for size in sizes):
        raise Blocked("the new shape is not known to be the same in each step", node)
    if len(sizes) == 1 and integer(sizes[0]) is None:
        raise Blocked("the new shape is not in sight", node)
    more = len(sizes) - value.rank
    texts = ["-1" if name == "expand" else "1", *(invariant(scope, size).text for size in sizes)]
    wide = atom(value.text) + ".unsqueeze(1)" * more
    made = value.with_axes(more, f"{wide}.{name}({', '.join(texts)})")
    return made if name == "expand" else made.computed(made.text)
