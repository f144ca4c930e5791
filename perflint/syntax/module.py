"""One parsed file: its text and tree, what stands around each node, and where in the text that is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from perflint.syntax.scripts import is_script
from perflint.syntax.source import Source
from perflint.syntax.walk import LOOPS, Function, PlainLoop, Walk

Node = TypeVar("Node", bound=ast.AST)


class Module:
    """One file, parsed.

    Raises SyntaxError (ValueError for null bytes, RecursionError for nesting beyond Python's own limits) where the
    text is not a program of the running Python.
    """

    def __init__(self, text: str, tree: ast.Module | None = None) -> None:
        self.text = text
        self.source = Source(text)
        self.tree = tree or ast.parse(text, type_comments=False)

    @cached_property
    def _walk(self) -> Walk:
        return Walk(self.tree)

    def of_type(self, *classes: type[Node]) -> list[Node]:
        """The nodes of these classes, in source order."""
        return self._walk.of_type(*classes)

    def plain_loops(self) -> list[PlainLoop]:
        """The loops that don't wait for another task, in source order."""
        return [loop for loop in self._walk.of_type(*LOOPS) if isinstance(loop, PlainLoop)]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node directly around `node`."""
        return self._walk.parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, the nearest first."""
        return self._walk.ancestors(node)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node`, or is it."""
        return self._walk.statement_of(node)

    def stands_before(self, one: ast.AST, other: ast.AST) -> bool:
        """Does `one` stand before `other`, which is no part of it, and not in another branch of the same test?"""
        ways = [[node, *self.ancestors(node)][::-1] for node in (one, other)]
        depth = next((at for at, (a, b) in enumerate(zip(*ways, strict=False)) if a is not b), 0)
        if not depth:
            return False  # one holds the other
        around, first, second = ways[0][depth - 1], ways[0][depth], ways[1][depth]
        parts = [(name, each) for name, part in ast.iter_fields(around) for each in _listed(part)]
        (name, at), (other_name, behind) = (
            next((name, at) for at, (name, each) in enumerate(parts) if each is node) for node in (first, second)
        )
        return at < behind and not (isinstance(around, ast.If) and {name, other_name} == {"body", "orelse"})

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements of the block in which `statement` stands."""
        return self._walk.block_of(statement)

    def function_of(self, node: ast.AST) -> Function | None:
        """The function whose body holds `node`, or None at module level."""
        return self._walk.function_of(node)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The characters [start, end) of `node`."""
        return self.source.span(node)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The text of `node`."""
        return self.source.segment(node)

    @cached_property
    def is_script(self) -> bool:
        """Does running it as a program do something?"""
        return is_script(self.tree)


def _listed(part: object) -> list[object]:
    return part if isinstance(part, list) else [part]
