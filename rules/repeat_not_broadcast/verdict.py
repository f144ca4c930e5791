"""Decides whether a copy costs something, and by what its readers could do without it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from perflint.program import Heat
from perflint.program.consumers import Consumer, Reading, Role
from perflint.program.rarity import makes_rare
from perflint.program.shapes import Shapes
from perflint.program.values import Kind
from perflint.program.walk import FUNCTIONS, LOOPS, path_of
from perflint.rules.repeat_not_broadcast.copies import MOVES, Copy

if TYPE_CHECKING:
    from perflint.program import Program

_SETUP = re.compile(r"^_*(init|reset|setup|build_model|main|test_|post_init|__init__|__post_init__|register)")


def is_one_time(program: Program, call: ast.Call) -> bool:
    """Does the call run once, or now and then? A function that nothing in the file calls is taken to be called often, unless it sets something up."""
    return program.heat(call) is Heat.ONCE and _runs_once(program, call, frozenset())


def _runs_once(program: Program, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
    function = program.function_of(node)
    if function is None or function in seen or _SETUP.match(getattr(function, "name", "")):
        return True
    child = node
    for parent in program.ancestors(node):
        if makes_rare(program, parent, child):
            return True
        if parent is function:
            break
        child = parent
    sites = program.call_sites(function)
    return bool(sites) and all(_runs_once(program, site, seen | {function}) for site in sites)


def kind_of(program: Program, reading: Reading) -> str:
    """ "broadcast" where each reader combines the copy with another tensor, element by element; else "expand"."""
    return "broadcast" if all(_broadcasts(program, consumer) for consumer in reading.consumers) else "expand"


def _broadcasts(program: Program, consumer: Consumer) -> bool:
    """Does the operation, or the next one that takes its result, bring a tensor of the full shape?"""
    node = consumer.node
    while consumer.role is Role.ELEMENTWISE:
        if consumer.in_place or any(not _is_number(program, other) for other in other_operands(consumer)):
            return True
        parent = program.parent(node)
        if not isinstance(node, ast.expr) or not isinstance(parent, ast.BinOp | ast.Compare | ast.UnaryOp):
            return False
        consumer = Consumer(parent, node, Role.ELEMENTWISE)
        node = parent
    return False


def other_operands(consumer: Consumer) -> list[ast.expr]:
    """What an elementwise consumer combines the tensor with, in order."""
    node = consumer.node
    if isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    elif isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.Call):
        method = isinstance(node.func, ast.Attribute)
        operands = [*([node.func.value] if method else []), *node.args]  # type: ignore[attr-defined]
    else:
        operands = []
    return [each for each in operands if each is not consumer.operand and not isinstance(each, ast.Starred)]


def _is_number(program: Program, node: ast.expr) -> bool:
    return program.value(node).kind in (Kind.NUMBER, Kind.STRING, Kind.LIBRARY, Kind.NONE)


def is_worth_it(program: Program, shapes: Shapes, copy: Copy, reading: Reading) -> bool:
    """Would a view save the copy, and not just put it off to the reader?"""
    if reading.converted and any(consumer.role is not Role.ELEMENTWISE for consumer in reading.consumers):
        return False
    return not any(consumer.role is Role.MATMUL and _is_folded(shapes, consumer) for consumer in reading.consumers)


def _is_folded(shapes: Shapes, consumer: Consumer) -> bool:
    """Does matmul reshape its operand, which copies a view: four axes or more, or a matrix on the other side?"""
    rank = shapes.shape(consumer.operand).rank
    others = [shapes.shape(each).rank for each in other_operands(consumer)]
    name = consumer.node.func.attr if isinstance(consumer.node, ast.Call) and isinstance(consumer.node.func, ast.Attribute) else "matmul"
    return name == "matmul" and ((rank or 0) > 3 or any(other is not None and other < 3 for other in others))


def source_changes(program: Program, copy: Copy) -> bool:
    """May the source be written to while the copy is in use, so that a view would show the change?"""
    root = _root(copy.source)
    function = program.function_of(copy.call) or program.tree
    if not root:
        return False
    start = program.statement_of(copy.call).lineno
    loop = next((each for each in program.ancestors(copy.call) if isinstance(each, LOOPS)), None)
    rebound = loop is not None and any(
        isinstance(each, ast.Assign | ast.For) and any(path_of(t) == root for t in getattr(each, "targets", [getattr(each, "target", each)]))
        for each in ast.walk(loop)
    )
    if loop is not None and not rebound and not isinstance(program.parent(loop), FUNCTIONS):
        start = loop.lineno
    return any(_writes(each, root) for each in ast.walk(function) if getattr(each, "lineno", 0) >= start)


def _writes(node: ast.AST, root: str) -> bool:
    if isinstance(node, ast.AugAssign):
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        return path_of(target) == root
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Subscript) and path_of(target.value) == root for target in node.targets)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr.endswith("_") and not node.func.attr.endswith("__") and path_of(node.func.value) in (root, f"{root}.data")
    return False


def _root(node: ast.expr) -> str:
    """The name whose memory `node` may share."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            return path_of(node)


__all__ = ["MOVES", "is_one_time", "is_worth_it", "kind_of", "other_operands", "source_changes"]
