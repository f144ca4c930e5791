"""Tells what runs in every step, and not only to refresh what is kept."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.heat.scale import Heat
from perflint.syntax.walk import path_of


def runs_often(program: Program, node: ast.AST) -> bool:
    """Does `node` run in every step, or time step, other than to refresh what an attribute keeps?

    Code that the file runs but to try itself out on the host does not count.
    """
    return program.heat(node) is not Heat.ONCE and not program.is_tried_out(node) and not refreshes(program, node)


def refreshes(program: Program, node: ast.AST) -> bool:
    """Does `node` run to refresh what an attribute keeps?"""
    return any(isinstance(each, ast.If) and _is_kept(each) for each in program.ancestors(node))


def _is_kept(guard: ast.If) -> bool:
    """Does `guard` ask for what it sets itself: an attribute, or a part of what it tests?"""
    asked = {_asked_for(each) for each in ast.walk(guard.test)} - {""}
    stored = (each for each in ast.walk(guard) if isinstance(getattr(each, "ctx", None), ast.Store))
    return any(
        path_of(each.value) in asked
        if isinstance(each, ast.Subscript)
        else "." in path_of(each) and path_of(each) in asked
        for each in stored
    )


def _asked_for(test: ast.AST) -> str:
    """The variable or attribute that a part of a test is, or that it asks for by `hasattr(self, "x")`."""
    if isinstance(test, ast.Call) and path_of(test.func) == "hasattr" and len(test.args) == 2:
        name = test.args[1]
        return f"{path_of(test.args[0])}.{getattr(name, 'value', '')}"
    return path_of(test)
