"""Tells which methods are those of meters: they add up what they are given, and do nothing else."""

from __future__ import annotations

import ast
from collections.abc import Collection

from perflint.analysis.autograd.effects import runs_backward
from perflint.analysis.program import Program
from perflint.analysis.values.codes import named_functions
from perflint.analysis.values.repeated import is_number
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import own_nodes, path_of

PURE = frozenset(f"builtins.{name}" for name in "len int float str round max min abs sum bool tuple list".split())
_PLAIN = (Kind.NUMBER, Kind.STRING, Kind.NONE)


def is_meters(program: Program, call: ast.Call) -> bool:
    callee = program.callee(call)
    if callee is not None:
        return _is_meter(program, callee)
    return isinstance(program.parent(call), ast.Expr) and program.counts_elsewhere(call)


def is_differentiated_once(program: Program) -> bool:
    """Does only the step's backward pass run, so that nothing differentiates what a meter holds?"""
    return sum(runs_backward(program, each) for each in program.of_type(ast.Call)) == 1


def counted(program: Program, functions: Collection[str]) -> frozenset[str]:
    """Those methods of the program, named as other files do, that only add up numbers in attributes of their object."""
    named = named_functions(program.tree) if functions else ()
    return frozenset(
        name for name, node in named
        if name in functions and "." in name and not node.decorator_list and _is_meter(program, node)
    )  # fmt: skip


def _is_meter(program: Program, function: ast.AST) -> bool:
    """Does a method only add up, in attributes of its object, numbers that it is given?"""
    if not isinstance(function, ast.FunctionDef):
        return False
    nodes = list(own_nodes(function))
    own = {each.arg for each in nodes if isinstance(each, ast.arg)}
    own |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    added = {path_of(each.target) for each in nodes if isinstance(each, ast.AugAssign)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and {*map(path_of, node.targets)} & added:
            return False  # what it is given may be a tensor
        if isinstance(node, ast.Global | ast.Nonlocal | ast.Subscript | ast.Lambda):
            return False
        if isinstance(node, ast.Call) and program.qualified(node.func) not in PURE:
            return False
        is_foreign = isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id not in own)
        if is_foreign and not (program.qualified(node) or _counts_itself(program, node, function)):
            return False
    return True


def _counts_itself(program: Program, node: ast.AST, method: ast.FunctionDef) -> bool:
    """Is it a constant, or an attribute that only the method and numbers set?"""
    if not isinstance(node, ast.Attribute):
        return program.value(node).is_literal
    if program.is_edited_elsewhere(node.attr):
        return False
    named = (each for each in program.of_type(ast.Attribute) if each.attr == node.attr)
    stores = [each for each in named if not isinstance(each.ctx, ast.Load) and _may_be_of(program, each, method)]
    others = (each for each in stores if program.function_of(each) is not method)
    are_numbers = all(program.value(each).kind in _PLAIN or is_number(program, each) for each in others)
    return path_of(node.value) == "self" and bool(stores) and are_numbers


def _may_be_of(program: Program, node: ast.Attribute, method: ast.FunctionDef) -> bool:
    one, other = program.class_around(node), program.class_around(method)
    is_related = one in program.lineage(other) or other in program.lineage(one)
    return is_related or path_of(node.value) != "self"
