"""The changes that rewrites are made of, on the syntax tree of the checked program.

New code is plain `ast` (see `template`) in which nodes of the program may stand: these keep their text as it was
written, comments, quotes and line breaks included.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_NEW, _FROM, _APART = "_perflint_new", "_perflint_from", "_perflint_apart"


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


def standing_for(statement: Node, old: ast.stmt, *, head: bool = False) -> Node:
    """Let the new `statement` have the comments of `old`, or of its head alone, where these would be lost."""
    last = _head_end(old) if head else old.end_lineno
    setattr(statement, _FROM, last)
    return statement


def last_line(statement: ast.stmt) -> int:
    """The last line of the program for which the new `statement` stands; 0 where it stands for none."""
    found: int = getattr(statement, _FROM, 0)
    return found


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
