"""The operations that rewrites are made of, on the syntax tree of the checked program, and the new code in them.

New code is plain `ast` made from templates: Python with `{name}` for a part, `{*name}` for several. Nodes of the
program in it keep their text, comments, quotes and line breaks included.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from perflint.syntax.walk import integer

Node = TypeVar("Node", bound=ast.AST)
FIT = 0  # rows: as they fit

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_OPPOSITES |= {opposite: each for each, opposite in _OPPOSITES.items()}
_NOTE = "_perflint_note"


@dataclass(frozen=True)
class Replace:
    old: ast.expr
    new: ast.expr


@dataclass(frozen=True)
class ReplaceStatements:
    old: tuple[ast.stmt, ...]
    new: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class InsertBefore:
    statement: ast.stmt
    new: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class InsertAfter:
    statement: ast.stmt
    new: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class AddKeywords:
    """Gives a call new keyword arguments, before any `**`, in its own layout."""

    call: ast.Call
    keywords: tuple[tuple[str, ast.expr], ...]


@dataclass(frozen=True)
class AddName:
    statement: ast.ImportFrom
    name: str


@dataclass(frozen=True)
class Decorate:
    definition: Definition
    decorator: ast.expr


Operation = Replace | ReplaceStatements | InsertBefore | InsertAfter | AddKeywords | AddName | Decorate


@dataclass(frozen=True)
class Note:
    """What is known of code beside its syntax.

    `is_new`: it is not the program's, even at a place there. `is_apart`: a blank line goes above it. `rows`: how many
    arguments go on each line. It stands for the program up to the line `last`, whose comments it has; the one at the
    end goes after it where it stands `alone` for that.
    """

    is_new: bool = False
    is_apart: bool = False
    rows: tuple[int, ...] = ()
    last: int = 0
    alone: bool = True


_PLAIN = Note()


def note_of(node: ast.AST) -> Note:
    found: Note = getattr(node, _NOTE, _PLAIN)
    return found


def _noted(node: Node, **told: Any) -> Node:
    setattr(node, _NOTE, replace(note_of(node), **told))
    return node


def takes_keywords(call: ast.Call) -> bool:
    """Can the call be given keywords, with no bare generator as its argument?"""
    return not (len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and not call.keywords)


def new(node: Node) -> Node:
    return _noted(node, is_new=True)


def again(node: ast.expr) -> ast.expr:
    fields: dict[str, Any] = {name: getattr(node, name, None) for name in node._fields}
    return new(type(node)(**fields))


def is_new(node: ast.AST) -> bool:
    return note_of(node).is_new or not hasattr(node, "lineno")


def derived(old: Node, parts: Mapping[ast.expr, ast.expr]) -> Node:
    def copied(node: Any) -> Any:
        if isinstance(node, list):
            items = [copied(each) for each in node]
            return node if all(one is other for one, other in zip(items, node, strict=True)) else items
        if not isinstance(node, ast.AST):
            return node
        if isinstance(node, ast.expr) and node in parts:
            return parts[node]
        fields = {name: copied(getattr(node, name, None)) for name in node._fields}
        if all(value is getattr(node, name, None) for name, value in fields.items()):
            return node
        made = new(type(node)(**fields))
        return ast.copy_location(made, node) if isinstance(node, ast.expr) else made

    return cast(Node, copied(old))


def in_rows(node: Node, *rows: int) -> Node:
    """Put the arguments of a new call, or the parameters or items, on lines of so many each.

    With FIT on the call's line if they fit, or on one or more of their own.
    """
    return _noted(node, rows=rows)


def standing_for(statement: Node, old: ast.stmt, *, head: bool = False, last: int = 0, alone: bool = True) -> Node:
    """Let `statement` have the comments of `old`, or of its head, or up to the line `last`.

    The one at the end goes after it where it stands `alone` for that.
    """
    return _noted(statement, last=last or (_head_end(old) if head else old.end_lineno), alone=alone)


def located(node: Node, at: ast.expr | ast.stmt) -> Node:
    for each in _new_nodes(node):
        if "lineno" in each._attributes:
            ast.copy_location(each, at)
    return node


def _new_nodes(node: ast.AST) -> Iterator[ast.AST]:
    if is_new(node):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _new_nodes(child)


def same_code(one: ast.AST, other: ast.AST) -> bool:
    return one is other or ast.dump(one) == ast.dump(other)


def apart(statement: Node) -> Node:
    """Put a blank line above the new `statement`."""
    return _noted(statement, is_apart=True)


def _head_end(statement: ast.stmt) -> int:
    parts = [getattr(statement, field, None) for field in ("test", "iter", "returns")]
    return max([statement.lineno, *(part.end_lineno or 0 for part in parts if isinstance(part, ast.expr))])


Part = ast.expr | ast.stmt | str | int | float | Sequence[ast.expr] | Sequence[ast.stmt]

_PLACE = re.compile(r"\{(\*?)(\w+)\}")
_MARK = "_perflint_part_"


def expression(template: str, **parts: Part) -> ast.expr:
    """The expression of `template`: strings are dotted names, numbers themselves, several are items or arguments."""
    (statement,) = statements(template, **parts)
    assert isinstance(statement, ast.Expr)
    return statement.value


def statements(template: str, **parts: Part) -> list[ast.stmt]:
    """The statements of `template`; statements take the place of a part alone on its line."""
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
    return new(ast.Call(func, call.args, call.keywords))


def reference(dotted: str, ctx: ast.expr_context | None = None) -> ast.expr:
    owner, _, name = dotted.rpartition(".")
    where = ctx or ast.Load()
    return new(ast.Attribute(reference(owner), name, where) if owner else ast.Name(name, where))


def tuple_of(items: Sequence[ast.expr | str], ctx: ast.expr_context | None = None) -> ast.expr:
    parts = [reference(each, ctx) if isinstance(each, str) else each for each in items]
    return parts[0] if len(parts) == 1 else new(ast.Tuple(parts, ctx or ast.Load()))


def negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        opposite = _OPPOSITES[type(test.ops[0])]()
        return located(new(ast.Compare(test.left, [opposite], test.comparators)), test)
    return located(expression("not {test}", test=test), test)


def number(value: int | float) -> ast.expr:
    """The literal of a number."""
    if value < 0:
        return new(ast.UnaryOp(ast.USub(), new(ast.Constant(-value))))
    return new(ast.Constant(value))


def plus(node: ast.expr, offset: int) -> ast.expr:
    value = integer(node)
    if value is not None:
        return number(value + offset)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = integer(node.right)
        if right is not None:
            offset += right if isinstance(node.op, ast.Add) else -right
            node = node.left
    return node if offset == 0 else expression("{x} + {n}" if offset > 0 else "{x} - {n}", x=node, n=abs(offset))
