"""What a variable may hold that is given what a call of a function of this file returns, or an item of that."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.ir.graph import Definition
from perflint.analysis.memory.library import decorators_of
from perflint.syntax.walk import own_nodes, returned_values


def returned(program: Program, node: ast.expr) -> list[ast.expr]:
    """What a call of a function of this file may give; empty where it is none, or not all of that is known."""
    callee = program.callee(node) if isinstance(node, ast.Call) else None
    if not isinstance(callee, ast.FunctionDef) or callee.name == "__init__" or decorators_of(program, callee):
        return []
    own, found = own_nodes(callee), returned_values(callee)
    is_plain = not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own)
    is_all = len(found) == sum(isinstance(each, ast.Return) for each in own)
    return found if is_plain and is_all else []


def given(program: Program, definition: Definition) -> list[ast.expr]:
    """The expressions of which one gives a variable its value, be it an item of a tuple; empty where it isn't known."""
    source, steps = definition.source, definition.steps
    if source is None or definition.updates is not None:
        return []
    if not steps:
        return [source]
    step, tuples = steps[0], returned(program, source)
    if len(steps) > 1 or not isinstance(step, int):
        return []
    items = [each.elts[step] for each in tuples if isinstance(each, ast.Tuple) and step < len(each.elts)]
    is_known = len(items) == len(tuples) and not any(isinstance(each, ast.Starred) for each in items)
    return items if is_known else []
