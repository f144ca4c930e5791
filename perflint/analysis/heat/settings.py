"""Tells conditions that ask how a run is set up, which no step changes, from those that ask what a step found."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.values.repeated import is_option
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import elements_of, integer, path_of


def asks_for_setting(program: Program, test: ast.expr) -> bool:
    """Is the condition the same in each step: of constants, attributes, settings given, and what no step makes?"""
    if isinstance(test, ast.BoolOp):
        return all(asks_for_setting(program, each) for each in test.values)
    if isinstance(test, ast.UnaryOp):
        return asks_for_setting(program, test.operand)
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return False  # what may be missing
    return all(_is_setting(program, part) for side in sides for part in elements_of(side))


def _is_setting(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return bool(path_of(node)) and (program.value(node).kind is not Kind.TENSOR or is_option(program, node))
    if isinstance(node, ast.Call):  # `is_distributed()`
        return (
            not (node.args or node.keywords) and program.value(node).kind is not Kind.TENSOR and _is_open(program, node)
        )
    if not isinstance(node, ast.Name):
        return isinstance(node, ast.Constant)
    definitions = [each for each in program.get(Flow).graph(node).definitions(node) if isinstance(each, Definition)]
    if any(isinstance(each.node, ast.arg) for each in definitions):
        compared = program.parent(node)
        others = [compared.left, *compared.comparators] if isinstance(compared, ast.Compare) else []
        return bool(others) and not any(integer(each) == 0 for each in others)  # a count of what was found
    loop = program.hot_loop(node)
    if loop is not None:
        inside = set(ast.walk(loop))
        return not any(each.node in inside for each in definitions)
    sources = [each.source for each in definitions]  # none for globals
    return all(
        isinstance(each, ast.Attribute | ast.Constant | ast.Call) and _is_setting(program, each) for each in sources
    )


def _is_open(program: Program, call: ast.Call) -> bool:
    """Is a function called, or a method of what is no tensor?"""
    if program.value(call).kind is Kind.TENSOR:
        return False
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner is None or (bool(path_of(owner)) and program.value(owner).kind is not Kind.TENSOR)
