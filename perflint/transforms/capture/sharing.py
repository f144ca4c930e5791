"""Which names of a function may stand for the same memory, so that a write to one of them is seen by another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.analysis.loops.calls import is_metadata
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import arguments_of
from perflint.syntax.walk import PlainLoop, own_nodes, root_of
from perflint.transforms.capture.ownership import is_new

if TYPE_CHECKING:
    from perflint.analysis.program import Program

ELSEWHERE = "<elsewhere>"  # stands for all that is no name of the function
_PLAIN = frozenset(
    {Kind.NUMBER, Kind.STRING, Kind.NONE, Kind.MODULE, Kind.LIBRARY, Kind.FUNCTION, Kind.CLASS, Kind.DEVICE}
)
_FILLS = frozenset("append extend insert add update setdefault appendleft".split())


def sharing(program: Program, loop: PlainLoop, name: str) -> set[str]:
    """The other names that may stand for memory of `name` while the loop runs; ELSEWHERE if what is no name may."""
    function = program.function_of(loop)
    last = loop.end_lineno or loop.lineno
    found, links = (
        {name},
        [
            each
            for node in own_nodes(function or loop)
            if getattr(node, "lineno", 0) <= last
            for each in _links(program, loop, node)
        ],
    )
    while more := {each for link in links if link & found for each in link} - found:
        found |= more
    return found - {name}


def _links(program: Program, loop: PlainLoop, node: ast.AST) -> Iterator[set[str]]:
    """The sets of names that one statement or call makes share memory."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bound(program, target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from _bound(program, node.target, node.value)
    elif isinstance(node, ast.AugAssign):
        if program.value(node.target).kind not in (Kind.TENSOR, Kind.NUMBER):
            yield _roots(node.target) | sources(program, node.value)
    elif isinstance(node, ast.For | ast.comprehension):
        yield _roots(node.target) | sources(program, node.iter)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield _roots(node.optional_vars) | sources(program, node.context_expr)
    elif isinstance(node, ast.Call):
        yield from _called(program, loop, node)


def _bound(program: Program, target: ast.expr, value: ast.expr) -> Iterator[set[str]]:
    pairs = _pairs(target, value)
    if pairs:
        for one, part in pairs:
            yield from _bound(program, one, part)
        return
    is_copied = isinstance(target, ast.Subscript) and program.value(target.value).kind is Kind.TENSOR
    if not is_copied:
        yield _roots(target) | sources(program, value)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What is bound to what by `a, b = x, y`."""
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return []
    if len(target.elts) != len(value.elts) or any(isinstance(each, ast.Starred) for each in target.elts):
        return []
    return list(zip(target.elts, value.elts, strict=True))


def _called(program: Program, loop: PlainLoop, call: ast.Call) -> Iterator[set[str]]:
    """What a call keeps of its arguments: a list that is filled, or somebody else where no graph was asked for yet."""
    given = {name for each in arguments_of(call) for name in sources(program, each)}
    if isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS:
        yield _roots(call.func.value) | given
    elif call.lineno < loop.lineno and not _forgets(program, call):
        yield {ELSEWHERE} | given


def _forgets(program: Program, call: ast.Call) -> bool:
    """Does the call keep none of its arguments, as functions of torch and methods of tensors do not?"""
    value = program.value(call.func)
    if value.kind is Kind.LIBRARY:
        return value.name.startswith(("torch.", "builtins.", "math."))
    return isinstance(call.func, ast.Attribute) and program.value(call.func.value).kind is Kind.TENSOR


def sources(program: Program, value: ast.expr) -> set[str]:
    """The names whose memory may be in what the expression gives."""
    if isinstance(value, ast.Name):
        return set() if program.value(value).kind in _PLAIN or value.id in ("self", "cls") else {value.id}
    if isinstance(value, ast.Constant | ast.Compare | ast.UnaryOp | ast.JoinedStr) or is_metadata(value):
        return set()
    if isinstance(value, ast.BinOp) and program.value(value).kind in (Kind.TENSOR, Kind.NUMBER):
        return set()
    if isinstance(value, ast.Call):
        return _given_by_call(program, value)
    if isinstance(value, ast.Attribute):
        return sources(program, value.value) or {ELSEWHERE}
    if isinstance(value, ast.Subscript):
        return sources(program, value.value)
    if isinstance(value, ast.IfExp):
        return sources(program, value.body) | sources(program, value.orelse)
    return {
        name for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr) for name in sources(program, part)
    }


def _given_by_call(program: Program, call: ast.Call) -> set[str]:
    """All that is given to a call may come back, unless it is known to make something new."""
    if program.value(call).kind is Kind.NUMBER or is_new(program, call):
        return set()
    parts = [*arguments_of(call), *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
    return {name for part in parts for name in sources(program, part)}


def _roots(target: ast.expr) -> set[str]:
    """The names that a target binds, or holds what is bound; ELSEWHERE for an attribute."""
    if isinstance(target, ast.Tuple | ast.List):
        return {name for each in target.elts for name in _roots(each)}
    if isinstance(target, ast.Starred):
        return _roots(target.value)
    root = root_of(target)
    if isinstance(root, ast.Name) and not isinstance(target, ast.Attribute):
        return {ELSEWHERE} if root.id in ("self", "cls") else {root.id}
    return {ELSEWHERE}
