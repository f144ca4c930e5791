"""Where a variable or attribute occurs, who else may look at it, what depends on it, and which loop carries it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.roles import SEE_ALL
from perflint.analysis.values.values import Kind, Value
from perflint.syntax.walk import (
    FUNCTIONS,
    LOOPS,
    Loop,
    bindings_of,
    own_nodes,
    path_of,
    receiver_of,
    root_of,
    variables_in,
)

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
    """May `path` be given something not made of itself after `start`, and before `end`?

    The statement around `start` doesn't count.
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

    None where the function has no such assignment, of a value for which `is_start` holds.
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
    """Who else may look at the variable while `within` runs; empty if nobody."""
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
    """These variables, and those that `scope` itself computes of them, or hands them to by a method."""
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
    if isinstance(node, ast.Expr) and (owner := receiver_of(node.value)) is not None:
        return [(owner, node.value)] if isinstance(owner, ast.Name) and owner.id != "self" else []
    return bindings_of(node)


def carrying_loop(program: Program, use: ast.expr, definition: ast.expr) -> Loop | None:
    """The innermost loop around both that carries what `definition` is given to `use`, an iteration later.

    Of a slot, `kept[key]`, it is a loop around those that walk the keys, unless it makes the container anew.
    """
    if not (isinstance(use, ast.Name) and isinstance(definition, ast.Name)):
        return _carrying_slots(program, definition)
    if definition not in program.get(Flow).definitions(use):
        return None
    around = [each for each in program.ancestors(definition) if isinstance(each, LOOPS)]
    return next((each for each in program.ancestors(use) if isinstance(each, LOOPS) and each in around), None)


def _carrying_slots(program: Program, target: ast.expr) -> Loop | None:
    keys = _keys(target)
    for parent in program.ancestors(target):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(parent, LOOPS) and keys.isdisjoint(_walked(parent)):
            names = dict.fromkeys((_holder(target), path_of(root_of(target))))
            stores = (each for name in names for each in occurrences(parent, name) if isinstance(each.ctx, ast.Store))
            is_carried = all(each is target or (keys and _is_instead(program, each, target)) for each in stores)
            return parent if is_carried and _holder(target) else None
    return None


def _walked(loop: Loop) -> set[str]:
    counters = {path_of(each.target) for each in loop.body if isinstance(each, ast.AugAssign)}
    return counters if isinstance(loop, ast.While) else counters | variables_in(loop.target)


def other_reads(program: Program, loop: Loop, own: ast.expr) -> list[ast.expr]:
    """What `loop` reads of what holds `own`, but for that itself.

    Of slots, these are neither those that become more of what they hold, nor what runs in the other branch.
    """
    found = [each for each in occurrences(loop, _holder(own)) if isinstance(each.ctx, ast.Load) and each is not own]
    return [
        each for each in found if not (_keys(own) and (_is_grown(program, each) or _is_instead(program, each, own)))
    ]


def _holder(node: ast.expr) -> str:
    """The path of a variable or an item by a key that is written out, or else of the container."""
    while isinstance(node, ast.Subscript) and not variable_of(node):
        node = node.value
    return variable_of(node)


def _keys(node: ast.expr) -> frozenset[str]:
    found: set[str] = set()
    while isinstance(node, ast.Subscript):
        found |= {each.id for each in ast.walk(node.slice) if isinstance(each, ast.Name)}
        node = node.value
    return frozenset(found)


def _is_grown(program: Program, read: ast.expr) -> bool:
    """Does it ask for the keys, or stand in `kept[key] = f([kept[key], part])`?"""
    node, around = read, program.parent(read)
    while isinstance(around, ast.Subscript) and around.value is node:
        node, around = around, program.parent(around)
    if isinstance(around, ast.Call) and path_of(around.func) == "len":
        return True
    if isinstance(around, ast.Attribute) and around.attr == "keys":
        return True
    targets = getattr(program.statement_of(read), "targets", [])
    is_part = isinstance(around, ast.List | ast.Tuple) and ast.unparse(node) in map(ast.unparse, targets)
    return node in targets or is_part


def _is_instead(program: Program, node: ast.AST, other: ast.AST) -> bool:
    branches = dict(_branches(program, other))
    return any(branches.get(guard, is_true) is not is_true for guard, is_true in _branches(program, node))


def _branches(program: Program, node: ast.AST) -> Iterator[tuple[ast.If, bool]]:
    child = node
    for parent in program.ancestors(node):
        if isinstance(parent, ast.If) and child is not parent.test:
            yield parent, child in parent.body
        child = parent
