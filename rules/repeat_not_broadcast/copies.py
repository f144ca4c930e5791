"""Recognises the calls that write a tensor out several times."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint import api
from perflint.api import WRAPPERS, Bound, Kind, Program, converts

MATERIALISING = frozenset({"contiguous", "clone"})
_DEPTH = 4
_INTERLEAVE = ("repeats", "dim")


@dataclass(frozen=True)
class Copy:
    """A call that repeats `source`.

    `form` is "repeat" (with `counts` per axis), "interleave", "cat", "stack" (`counts` holds one, for `axis`), or
    "expanded": `source` is a call of expand or expand_as, which `call` makes real. `counts` is None where they aren't
    written out.
    """

    call: ast.Call
    form: str
    source: ast.expr
    counts: tuple[ast.expr, ...] | None = None
    axis: int | None = None


def recognise(program: Program, call: ast.Call) -> Copy | None:
    """The copy that `call` makes, if it is one of these forms."""
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return None
    qualified = program.qualified(call.func)
    if qualified:
        return _of_function(program, call) if qualified.startswith("torch.") else None
    if not isinstance(call.func, ast.Attribute):
        return None
    name, source = call.func.attr, call.func.value
    if name == "repeat_interleave" and _is_tensor(program, source, 3):
        return _interleaved(call, source, api.bind(call, _INTERLEAVE))
    if name == "repeat":
        counts = _counts(program, call.args)
        is_of_tensor = _is_tensor(program, source, len(counts or ()))
        return Copy(call, name, source, counts) if is_of_tensor and call.args and not call.keywords else None
    if name in MATERIALISING or converts(name):
        expanded = _expansion(program, source)
        return Copy(call, "expanded", expanded) if expanded is not None else None
    return None


def _of_function(program: Program, call: ast.Call) -> Copy | None:
    found = api.operation(program, call)
    if found is None or not call.args:
        return None
    if found.name == "repeat_interleave":
        return _interleaved(call, call.args[0], api.bind(call, ("input", *_INTERLEAVE)))
    times = _times(call.args[0]) if found.name in ("cat", "stack") else None
    if times is None or len(call.keywords) + len(call.args) > 2:
        return None
    return Copy(call, found.name, times[0], (times[1],), found.joined_axis)


def _interleaved(call: ast.Call, source: ast.expr, bound: Bound) -> Copy | None:
    count, dim = bound.get("repeats"), bound.get("dim")
    if count is None or dim is None or api.integer(dim) is None or bound.others:
        return None
    return Copy(call, "interleave", source, (count,), api.integer(dim))


def _counts(program: Program, arguments: list[ast.expr]) -> tuple[ast.expr, ...] | None:
    if len(arguments) == 1 and isinstance(arguments[0], ast.Tuple | ast.List):
        arguments = arguments[0].elts
    elif len(arguments) == 1 and program.value(arguments[0]).kind is not Kind.NUMBER:
        return None  # it may be a tuple
    return None if any(isinstance(each, ast.Starred) for each in arguments) else tuple(arguments)


def _times(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """`x` and `n` of `[x] * n` and `n * [x]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for items, count in ((node.left, node.right), (node.right, node.left)):
            if (
                isinstance(items, ast.List | ast.Tuple)
                and len(items.elts) == 1
                and not isinstance(items.elts[0], ast.Starred)
            ):
                return items.elts[0], count
    return None


def _expansion(program: Program, node: ast.expr) -> ast.Call | None:
    """The call of expand or expand_as that gives `node`, by other names or wrapped."""
    for _ in range(_DEPTH):
        if isinstance(node, ast.Name):
            values = api.assigned(program, node)
            if len(values) != 1:
                return None
            node = values[0]
        elif isinstance(node, ast.Call) and len(node.args) == 1 and program.qualified(node.func) in WRAPPERS:
            node = node.args[0]
        else:
            break
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("expand", "expand_as")
        and node.args
        and program.value(node.func.value).kind in (Kind.TENSOR, Kind.UNKNOWN)
    ):
        return node
    return None


def _is_tensor(program: Program, node: ast.expr, counts: int) -> bool:
    """Is it a tensor, for sure or by its counts? Arrays take at most two arguments in `repeat`."""
    kind = program.value(node).kind
    return kind is Kind.TENSOR or (kind is Kind.UNKNOWN and counts > 2)
