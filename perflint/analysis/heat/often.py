"""Tells what runs in every step, and not only to refresh what is kept."""

from __future__ import annotations

import ast

from perflint.analysis.program import Heat, Program
from perflint.syntax.walk import path_of


def runs_often(program: Program, node: ast.AST) -> bool:
    """Does `node` run in every step, or time step, other than to refresh what an attribute keeps?

    Code that the file runs but to try itself out on the host does not count.
    """
    if program.heat(node) is Heat.ONCE or program.is_tried_out(node):
        return False
    return not any(isinstance(each, ast.If) and _is_kept(each) for each in program.ancestors(node))


def _is_kept(guard: ast.If) -> bool:
    """Does `guard` ask for what it sets itself: an attribute, or a part of what it tests?"""
    asked = {path_of(each) for each in ast.walk(guard.test)} - {""}
    stored = (each for each in ast.walk(guard) if isinstance(getattr(each, "ctx", None), ast.Store))
    return any(
        path_of(each.value) in asked
        if isinstance(each, ast.Subscript)
        else "." in path_of(each) and path_of(each) in asked
        for each in stored
    )
