"""One parsed file: its text and tree, what stands around each node and where, and whether it is a script or a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cached_property

from perflint.syntax.source import Source
from perflint.syntax.walk import Walk, path_of


def _is_script(tree: ast.Module) -> bool:
    """Does running it do something: a main guard, or a loop or call at module level?"""
    return any(
        isinstance(statement, ast.For | ast.While | ast.With)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call))
        or is_main_guard(statement)
        for statement in tree.body
    )


def is_main_guard(statement: ast.AST) -> bool:
    """Does it ask for the name of the module, as `if __name__ == "__main__":` does?"""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


class Module(Walk):
    """One file, parsed.

    Raises SyntaxError (ValueError for null bytes, RecursionError for nesting beyond Python's own limits) where the
    text is not a program of the running Python.
    """

    def __init__(self, text: str, tree: ast.Module | None = None) -> None:
        super().__init__(tree or ast.parse(text, type_comments=False))
        self.text = text
        self.source = Source(text)

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

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        return self.source.span(node)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        return self.source.segment(node)

    @cached_property
    def is_script(self) -> bool:
        return _is_script(self.tree)


def _listed(part: object) -> list[object]:
    return part if isinstance(part, list) else [part]


_FRAMEWORKS = frozenset({"pytest", "unittest"})
_TEST_CLASS = re.compile(r"Test(s|Case|[A-Z_]|$)|\w+Tests?(Case)?$")


def holds_tests(tree: ast.Module, *, is_script: bool) -> bool:
    """Are the functions called `test_...` for a test runner, rather than part of training like `test_epoch(model)`?

    A runner calls functions without arguments, unless it is pytest, which has fixtures.
    """
    tests = list(_tests(tree))
    if not tests:
        return False
    if imports_framework(tree):
        return True
    return not is_script and not any(test.args.args[is_method:] for test, is_method in tests)


def _tests(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """The functions of which each may be a test, and whether it is a method."""
    yield from ((each, False) for each in _named_so(tree.body))
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and _is_test_class(statement):
            yield from ((each, True) for each in _named_so(statement.body))


def _named_so(block: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    return (each for each in block if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"))


def _is_test_class(node: ast.ClassDef) -> bool:
    return bool(_TEST_CLASS.match(node.name)) or any(path_of(base).endswith("TestCase") for base in node.bases)


def imports_framework(tree: ast.Module) -> bool:
    """Does the file import a test framework?"""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        else:
            continue
        if any(name.partition(".")[0] in _FRAMEWORKS for name in names):
            return True
    return False
