"""Finds the `if` that sets a variable which a step reads only on the same test."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.ir.flow import Flow
from perflint.analysis.program import Program
from perflint.syntax.walk import FUNCTIONS, own_nodes, path_of

_Test = tuple[str, bool]  # what is asked, and the answer
_LOAD = ast.Load()
_PLAIN = (ast.Compare, ast.UnaryOp, ast.Constant, ast.cmpop, ast.unaryop, ast.expr_context)


def set_on_the_same_test(program: Program, name: str, reads: list[ast.Name], outermost: ast.AST) -> ast.If | None:
    """The `if` in front of `outermost` that sets the variable on a test under which all `reads` stand as well.

    Both must ask it of the same values, and nothing in front of the `if` may have set the variable.
    """
    scope = program.function_of(outermost)
    if not isinstance(scope, ast.FunctionDef) or not isinstance(outermost, ast.stmt):
        return None
    graph, block = program.get(Flow).graph(outermost), program.block_of(outermost)
    if name in graph.shared or name in graph.captured:
        return None
    bindings = [each.node for each in graph.bindings.get(name, ())]
    for each in block[: block.index(outermost)]:
        if not isinstance(each, ast.If) or not _is_steady(program, each.test, scope):
            continue
        taken = [answer for part, answer in ((each.body, True), (each.orelse, False)) if _sets(part, name)]
        is_first = not any(node not in {*ast.walk(each)} and graph.runs_after(each, node) for node in bindings)
        tests = [{_normal(test, answer) for test, answer in _tests_around(program, read)} for read in reads]
        if is_first and any(all(_normal(each.test, answer) in found for found in tests) for answer in taken):
            return each
    return None


def _sets(block: list[ast.stmt], name: str) -> bool:
    """Does one of the statements set the variable, unconditionally?"""
    targets = (target for each in block if isinstance(each, ast.Assign) for target in each.targets)
    return any(isinstance(each, ast.Name) and each.id == name for each in targets)


def _tests_around(program: Program, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that the node stands under, with the answers for which it runs."""
    inner = node
    for each in program.ancestors(node):
        if isinstance(each, FUNCTIONS):
            break
        if isinstance(each, ast.If) and inner is not each.test:
            yield each.test, inner in each.body
        inner = each


def _normal(test: ast.expr, answer: bool) -> _Test:
    """A form that a test has in common with its opposite and the other answer."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, answer = test.operand, not answer
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.NotEq):
        test, answer = ast.Compare(test.left, [ast.Eq()], test.comparators), not answer
    return ast.dump(test), answer


def _is_steady(program: Program, test: ast.expr, scope: ast.FunctionDef) -> bool:
    """Does the test read only variables that the function doesn't set, and attributes that no function sets?"""
    parts = list(ast.walk(test))
    if not all(isinstance(each, _PLAIN) or path_of(each) for each in parts):
        return False
    inside = (each for each in program.of_type(ast.Attribute) if program.function_of(each) is not None)
    found = [each for each in (*own_nodes(scope), *inside) if not isinstance(getattr(each, "ctx", _LOAD), ast.Load)]
    names = {each.id for each in found if isinstance(each, ast.Name)}
    attributes = {each.attr for each in found if isinstance(each, ast.Attribute)}
    return not any(getattr(each, "id", "") in names or getattr(each, "attr", "") in attributes for each in parts)
