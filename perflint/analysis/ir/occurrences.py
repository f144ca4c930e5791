"""Where a variable or attribute occurs in a function, who else may look at it, and which variables depend on others."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.roles import SEE_ALL
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.walk import FUNCTIONS, bindings_of, own_nodes, path_of, variables_in

_SEES_ALL = SEE_ALL | {"builtins.vars"}  # which is locals() without an argument


def occurrences(scope: ast.AST, path: str) -> list[ast.Name | ast.Attribute | ast.Subscript]:
    """The places in the own code of `scope` that read, bind or delete `path`, in source order.

    Behind those of an item are those of what holds it, as a whole.
    """
    whole, is_item, _ = path.partition("[")
    nodes = own_nodes(scope)
    found = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and path_of(node) == whole]
    items = [node for node in nodes if isinstance(node, ast.Subscript)] if is_item else []
    parted = {each.value for each in items if isinstance(each.slice, ast.Constant)}
    return [*(each for each in items if variable_of(each) == path), *(each for each in found if each not in parted)]


def variable_of(node: ast.expr) -> str:
    """The path of a variable or attribute, or of an item of one by a key that is written out; else empty."""
    is_item = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and path_of(node.value)
    return ast.unparse(node) if is_item else path_of(node)


def is_rebound(program: Program, path: str, start: ast.AST, end: ast.AST) -> bool:
    """May the variable or attribute `path` be given something not made of itself after `start`, and before `end`?

    The statement around `start`, which may do so itself, doesn't count.
    """
    graph = program.get(Flow).graph(end)
    for target in occurrences(graph.scope, path):
        statement = program.statement_of(target)
        if isinstance(target.ctx, ast.Load) or statement is program.statement_of(start):
            continue
        is_between = graph.runs_after(target, start) and graph.runs_after(end, target)
        if is_between and not any(isinstance(each.ctx, ast.Load) for each in occurrences(statement, path)):
            return True
    return False


def start_region(
    program: Program, loop: ast.stmt, path: str, is_start: Callable[[Value], bool]
) -> list[ast.stmt] | None:
    """The statements from the one that certainly gives `path` its value before `loop`, to the one that holds `loop`.

    None where there is no such assignment, of a value for which `is_start` holds, in the same function.
    """
    here: ast.stmt = loop
    while True:
        block = program.block_of(here)
        index = next(position for position, each in enumerate(block) if each is here)
        for position in range(index - 1, -1, -1):
            if _starts(program, block[position], path, is_start):
                return block[position : index + 1]
        parent = program.parent(here)
        if isinstance(parent, ast.ExceptHandler | ast.match_case):
            parent = program.parent(parent)
        if not isinstance(parent, ast.stmt) or isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            return None
        here = parent


def is_empty_list(value: Value) -> bool:
    return value.kind is Kind.SEQUENCE and value.items == ()


def _starts(program: Program, statement: ast.stmt, path: str, is_start: Callable[[Value], bool]) -> bool:
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    stores = [node for node in occurrences(statement, path) if isinstance(node.ctx, ast.Store)]
    return bool(stores) and all(is_start(program.value(node)) for node in stores)


def seen_elsewhere(program: Program, scope: ast.AST, path: str, within: ast.AST) -> str:
    """Who else may look at the variable while `within` runs; empty where nobody can."""
    graph = program.get(Flow).graph(within)
    if "." in path:
        return f"other code may look at `{path}` meanwhile: use a variable, and assign that after the loop"
    if path in graph.shared:
        return f"`{path}` is a variable of an outer scope"
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and program.qualified(node) in _SEES_ALL:
            return f"`{node.id}` may look at `{path}`"
        if isinstance(node, ast.ClassDef) and node is not scope and occurrences(node, path):
            return f"a class defined here uses `{path}`"
    return f"a function defined here uses `{path}`" if path in graph.captured else ""


def reads(node: ast.AST, names: Iterable[str]) -> bool:
    """Does `node` name one of these variables?"""
    known = frozenset(names)
    return any(isinstance(each, ast.Name) and each.id in known for each in ast.walk(node))


def dependents(scope: ast.AST, names: Iterable[str]) -> frozenset[str]:
    """These variables, and those that the own code of `scope` computes of them, or hands them to by a method."""
    return computed_of(own_nodes(scope), names)


def computed_of(
    nodes: Iterable[ast.AST], names: Iterable[str], is_source: Callable[[ast.AST], bool] = lambda _: False
) -> frozenset[str]:
    """These variables, and those that `nodes` compute of them or of sources, or hand such to by a method."""
    bound = [pair for node in nodes for pair in _bound(node)]
    found, size = set(names), -1
    while size != len(found):
        size = len(found)
        for target, given in bound:
            if reads(given, found) or any(map(is_source, ast.walk(given))):
                found |= variables_in(target)
    return frozenset(found)


def _bound(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        owner = node.value.func.value
        return [(owner, node.value)] if isinstance(owner, ast.Name) and owner.id != "self" else []
    return bindings_of(node)
