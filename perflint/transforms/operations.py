"""The changes that rewrites are made of, on the syntax tree of the checked program.

New code is plain `ast` (see `template`) in which nodes of the program may stand: these keep their text as it was
written, comments, quotes and line breaks included.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)
FIT = 0  # rows: as they fit

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_NEW, _FROM, _APART, _DERIVED, _ROWS, _BARE = (
    f"_perflint_{name}" for name in ("new", "from", "apart", "derived", "rows", "bare")
)


@dataclass(frozen=True)
class Replace:
    """One expression stands in the place of another."""

    old: ast.expr
    new: ast.expr


@dataclass(frozen=True)
class ReplaceStatements:
    """Statements stand in the place of others, which follow each other in one block; the old ones may be among them."""

    old: tuple[ast.stmt, ...]
    new: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class InsertBefore:
    """Statements stand in front of another one."""

    statement: ast.stmt
    new: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class InsertAfter:
    """Statements stand behind another one."""

    statement: ast.stmt
    new: tuple[ast.stmt, ...]


@dataclass(frozen=True)
class AddKeywords:
    """A call is given keyword arguments that it does not have, before any `**`, in its own layout."""

    call: ast.Call
    keywords: tuple[tuple[str, ast.expr], ...]


@dataclass(frozen=True)
class AddName:
    """`from module import ...` imports one name more."""

    statement: ast.ImportFrom
    name: str


@dataclass(frozen=True)
class Decorate:
    """A definition has one more decorator, directly above it."""

    definition: Definition
    decorator: ast.expr


Operation = Replace | ReplaceStatements | InsertBefore | InsertAfter | AddKeywords | AddName | Decorate


def takes_keywords(call: ast.Call) -> bool:
    """Can the call be given keywords: is its argument no bare generator?"""
    return not (len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and not call.keywords)


def new(node: Node) -> Node:
    """Mark `node` as new code, also where it is told to stand at a place of the program."""
    setattr(node, _NEW, True)
    return node


def is_new(node: ast.AST) -> bool:
    """Is `node` new code, and no part of the program?"""
    return getattr(node, _NEW, False) or not hasattr(node, "lineno")


def derived(old: ast.expr, parts: Mapping[ast.expr, ast.expr]) -> ast.expr:
    """The expression `old` of the program, or one derived of it, with other `parts` in it, written as it stands there.

    What is made stands where it did.
    """
    if not parts:
        return old
    used: dict[ast.expr, ast.expr] = {}

    def copied(node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and node in parts:
            used[node] = parts[node]
            return parts[node]
        before = set(used)
        fields = {name: each(getattr(node, name, None)) for name in node._fields}
        if len(used) == len(before):
            return node
        made = new(type(node)(**fields))
        if isinstance(node, ast.expr):
            ast.copy_location(made, node)
            base, first = derivation(node) or (node, {})
            kept = {part: derived(code, parts) for part, code in first.items()}
            inside = {part for code in first.values() for part in ast.walk(code)}
            more = {part: used[part] for part in used if part not in before and part not in inside}
            setattr(made, _DERIVED, (base, {**kept, **more}))
        return made

    def each(value: object) -> object:
        if isinstance(value, list):
            return [each(item) for item in value]
        return copied(value) if isinstance(value, ast.AST) else value

    return cast(ast.expr, copied(old))


def derivation(node: ast.AST) -> tuple[ast.expr, Mapping[ast.expr, ast.expr]] | None:
    """The expression of the program that `node` was derived from, and the other parts; None where it was from none."""
    found: tuple[ast.expr, Mapping[ast.expr, ast.expr]] | None = getattr(node, _DERIVED, None)
    return found


def in_rows(node: ast.expr, *rows: int) -> ast.expr:
    """Let the arguments of the new call, or the items of the new tuple, stand on lines of so many each.

    With FIT they stand as they fit: on the line of the call, or on one or more of their own.
    """
    setattr(node, _ROWS, rows)
    return node


def rows_of(node: ast.AST) -> tuple[int, ...]:
    """How many arguments stand on each line; empty where that is not said."""
    found: tuple[int, ...] = getattr(node, _ROWS, ())
    return found


def without_comments(statement: Node) -> Node:
    """Let a copy of a statement of the program leave its comments to another one."""
    setattr(statement, _BARE, True)
    return statement


def is_bare(statement: ast.AST) -> bool:
    """Does this copy of a statement leave its comments to another one?"""
    return bool(getattr(statement, _BARE, False))


def standing_for(statement: Node, old: ast.stmt, *, head: bool = False, last: int = 0, alone: bool = True) -> Node:
    """Let the new `statement` have the comments of `old`, or of its head, or up to the line `last`.

    The one at the end goes behind it where it stands `alone` for that.
    """
    setattr(statement, _FROM, (last or (_head_end(old) if head else old.end_lineno), alone))
    return statement


def forget_comments(statements: Sequence[ast.stmt], lines: set[int]) -> None:
    """Let statements leave the comments of what they stand for to others, but for those on these lines."""
    for each in (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.stmt)):
        found: tuple[int, bool] = getattr(each, _FROM, (0, False))[:2]
        setattr(each, _FROM, (*found, frozenset(lines)))
    if lines and statements and is_new(statements[-1]):
        setattr(statements[-1], _FROM, (max(lines), False, frozenset(lines)))


def may_take(statement: ast.stmt, line: int) -> bool:
    """May the new `statement` have a comment on this line?"""
    found: tuple[int, bool, frozenset[int]] | tuple[()] = getattr(statement, _FROM, ())
    return len(found) < 3 or line in found[2]


def located(node: Node, at: ast.expr | ast.stmt) -> Node:
    """The new code `node`, told to stand where `at` does."""
    for each in _new_nodes(node):
        if "lineno" in each._attributes:
            ast.copy_location(each, at)
    return node


def _new_nodes(node: ast.AST) -> Iterator[ast.AST]:
    if is_new(node) or not hasattr(node, "lineno"):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _new_nodes(child)


def last_line(statement: ast.stmt) -> int:
    """The last line of the program for which the new `statement` stands; 0 where it stands for none."""
    found: tuple[int, ...] = getattr(statement, _FROM, (0,))
    return found[0]


def stands_alone(statement: ast.stmt) -> bool:
    """May a comment at the end of what the new `statement` stands for go behind it?"""
    found: tuple[int, ...] = getattr(statement, _FROM, (0, True))
    return bool(found[1])


def same_code(one: ast.AST, other: ast.AST) -> bool:
    """Is it the same code, however it is written?"""
    return one is other or ast.dump(one) == ast.dump(other)


def apart(statement: Node) -> Node:
    """Let there be a blank line above the new `statement`."""
    setattr(statement, _APART, True)
    return statement


def is_apart(statement: ast.stmt) -> bool:
    """Is there to be a blank line above the new `statement`?"""
    return bool(getattr(statement, _APART, False))


def _head_end(statement: ast.stmt) -> int:
    parts = [getattr(statement, field, None) for field in ("test", "iter", "returns")]
    return max([statement.lineno, *(part.end_lineno or 0 for part in parts if isinstance(part, ast.expr))])
