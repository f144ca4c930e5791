"""Makes new code from templates: Python with `{name}` where a part is filled in, `{*name}` for several."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from perflint.syntax.walk import integer
from perflint.transforms.operations import new

Part = ast.expr | ast.stmt | str | int | float | Sequence[ast.expr] | Sequence[ast.stmt]

_PLACE = re.compile(r"\{(\*?)(\w+)\}")
_MARK = "_perflint_part_"


def expression(template: str, **parts: Part) -> ast.expr:
    """The expression of `template`: a string is a dotted name, a number itself; several are items or arguments."""
    (statement,) = statements(template, **parts)
    assert isinstance(statement, ast.Expr)
    return statement.value


def statements(template: str, **parts: Part) -> list[ast.stmt]:
    """The statements of `template`; statements, one or several, stand where a line is a part's alone."""
    return list(_several(_parsed(template).body, parts))  # type: ignore[arg-type]


def statement(template: str, **parts: Part) -> ast.stmt:
    """The one statement of `template`."""
    (only,) = statements(template, **parts)
    return only


@lru_cache(maxsize=512)
def _parsed(template: str) -> ast.Module:
    return ast.parse(_PLACE.sub(rf"\1{_MARK}\2", template))


def _several(nodes: Sequence[object], parts: Mapping[str, Part]) -> Iterator[object]:
    for node in nodes:
        inner = node.value if isinstance(node, ast.Expr) else node
        inner = inner.value if isinstance(inner, ast.Starred) else inner if isinstance(node, ast.Expr) else None
        part = parts[name] if (name := _name(inner)) else None
        if name and isinstance(part, ast.stmt):
            yield part
        elif name and not isinstance(part, str | int | float | ast.AST):
            assert part is not None
            yield from part
        else:
            yield _filled(node, parts)


def _filled(node: object, parts: Mapping[str, Part]) -> object:
    if isinstance(node, list):
        return list(_several(node, parts))
    if isinstance(node, str) and node.startswith(_MARK):
        return parts[node.removeprefix(_MARK)]
    if not isinstance(node, ast.AST) or isinstance(node, ast.expr_context):
        return node
    if name := _name(node):
        part = parts[name]
        if isinstance(part, ast.AST):
            return part
        return number(part) if isinstance(part, int | float) else reference(str(part), node.ctx)  # type: ignore[attr-defined]
    fields = {field: _filled(getattr(node, field, None), parts) for field in node._fields}
    return new(type(node)(**fields))


def _name(node: object) -> str:
    is_place = isinstance(node, ast.Name) and node.id.startswith(_MARK)
    return node.id.removeprefix(_MARK) if isinstance(node, ast.Name) and is_place else ""


def assignment(target: str, value: ast.expr) -> ast.stmt:
    return statement(f"{target} = {{value}}", value=value)


def call_like(call: ast.Call, func: ast.expr) -> ast.expr:
    """A call of `func` with the arguments of `call`."""
    return new(ast.Call(func, call.args, call.keywords))


def reference(dotted: str, ctx: ast.expr_context | None = None) -> ast.expr:
    owner, _, name = dotted.rpartition(".")
    where = ctx or ast.Load()
    return new(ast.Attribute(reference(owner), name, where) if owner else ast.Name(name, where))


def tuple_of(items: Sequence[ast.expr | str], ctx: ast.expr_context | None = None) -> ast.expr:
    parts = [reference(each, ctx) if isinstance(each, str) else each for each in items]
    return parts[0] if len(parts) == 1 else new(ast.Tuple(parts, ctx or ast.Load()))


def number(value: int | float) -> ast.expr:
    """The literal of a number."""
    if value < 0:
        return new(ast.UnaryOp(ast.USub(), new(ast.Constant(-value))))
    return new(ast.Constant(value))


def plus(node: ast.expr, offset: int) -> ast.expr:
    """The number `node` plus `offset`, written briefly."""
    value = integer(node)
    if value is not None:
        return number(value + offset)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = integer(node.right)
        if right is not None:
            offset += right if isinstance(node.op, ast.Add) else -right
            node = node.left
    return node if offset == 0 else expression("{x} + {n}" if offset > 0 else "{x} - {n}", x=node, n=abs(offset))
