"""Parameters that switch parts of a function on or off, and the calls that pass them."""

from __future__ import annotations

import ast
from typing import NamedTuple

from perflint.analysis.facts import Program
from perflint.syntax.arguments import defaults_of
from perflint.syntax.walk import Function, stores


class Switch(NamedTuple):
    """A parameter, and the truth value that it must have for the guarded code to run."""

    parameter: str
    wanted: bool


def switch(program: Program, guard: ast.AST, part: ast.AST) -> Switch | None:
    """The parameter that `guard` tests, if the function never reassigns it, with the value for which `part` runs."""
    if not isinstance(guard, ast.If) or part is guard.test:
        return None
    test, wanted = guard.test, part in guard.body
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, wanted = test.operand, not wanted
    function = program.function_of(guard)
    if not isinstance(test, ast.Name) or function is None or isinstance(function, ast.Lambda):
        return None
    arguments = function.args
    names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if test.id not in names or stores(function, test.id):
        return None
    return Switch(test.id, wanted)


def may_turn_on(program: Program, site: ast.AST, function: Function, flag: Switch) -> bool:
    """May the call at `site` of `function` run the code that `flag` guards?"""
    if not isinstance(site, ast.Call):
        return True
    bound = program.arguments(site, function)
    given = bound.get(flag.parameter) or (None if bound.is_open else defaults_of(function).get(flag.parameter))
    return not isinstance(given, ast.Constant) or bool(given.value) is flag.wanted
