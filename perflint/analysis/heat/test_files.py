"""Recognises test files, whose functions called `test_...` do not train."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint.syntax.walk import path_of

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
