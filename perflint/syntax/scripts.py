"""Distinguishes scripts from modules that are only imported."""

from __future__ import annotations

import ast


def is_script(tree: ast.Module) -> bool:
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
