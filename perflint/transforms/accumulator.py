"""The variable to which a loop adds, and whether it can wait until the loop is over."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.occurrences import occurrences, seen_elsewhere
from perflint.analysis.program import Program
from perflint.syntax.walk import FUNCTIONS, LOOPS, Loop, own_nodes, path_of, receiver_of
from perflint.transforms.host_reads import Read
from perflint.transforms.rewrite import Blocked


@dataclass(frozen=True)
class Accumulator:
    """A variable to which each iteration of `loop` adds; `additions` are the statements that do."""

    path: str
    loop: Loop
    scope: ast.AST
    additions: tuple[ast.stmt, ...]


def accumulator_of(program: Program, read: Read, statement: ast.stmt, path: str) -> Accumulator:
    """What `statement` adds to in a hot loop; raises Blocked where others may look at it meanwhile."""
    scope = program.function_of(statement) or program.tree
    loop = program.hot_loop(read.top)
    if not isinstance(loop, LOOPS):
        raise Blocked(f"the loop that makes it hot is elsewhere, and `{path}` lives longer than one call")
    loop = alone_in(program, loop, scope, path)
    additions = tuple(
        {program.statement_of(node): None for node in occurrences(loop, path) if _is_addition(program, node, path)}
    )
    return Accumulator(path, loop, scope, additions)


def alone_in(program: Program, loop: Loop, scope: ast.AST, path: str) -> Loop:
    """The outermost loop around `loop` that uses the variable no more than it does.

    Raises Blocked where anybody else, in `scope` or out of it, may look at the variable before that loop is over.
    """
    loop = _outermost(program, loop, path)
    if reason := seen_elsewhere(program, scope, path, loop):
        raise Blocked(reason)
    if any(occurrences(each, path) for each in loop.orelse):
        raise Blocked(f"the loop's else reads `{path}`")
    _check_exits(program, loop, scope, path)
    return loop


def _is_addition(program: Program, node: ast.Name | ast.Attribute, path: str) -> bool:
    statement = program.statement_of(node)
    if isinstance(statement, ast.AugAssign):
        return statement.target is node and isinstance(statement.op, ast.Add | ast.Sub)
    if isinstance(statement, ast.Assign):
        value = statement.value
        return (
            len(statement.targets) == 1
            and path_of(statement.targets[0]) == path
            and isinstance(value, ast.BinOp)
            and path_of(value.left) == path
        )
    return isinstance(statement, ast.Expr) and receiver_of(statement.value, "append") is node


def _outermost(program: Program, loop: Loop, path: str) -> Loop:
    uses = len(occurrences(loop, path))
    for parent in program.ancestors(loop):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(parent, LOOPS):
            if len(occurrences(parent, path)) != uses:
                break
            loop = parent
    return loop


def _check_exits(program: Program, loop: Loop, scope: ast.AST, path: str) -> None:
    for node in own_nodes(loop):
        if isinstance(node, ast.Return) and occurrences(node, path):
            raise Blocked(f"line {node.lineno} leaves the loop with `{path}` unread")
        if isinstance(node, ast.Delete) and occurrences(node, path):
            raise Blocked(f"line {node.lineno} deletes `{path}`")
    graph = program.get(Flow).graph(loop)
    left = graph.raises_to(loop)
    read = (graph.places[node][0] in left for node in occurrences(scope, path) if node in graph.places)
    if any(read):
        raise Blocked(f"an exception may leave the loop, and `{path}` is read after it")


def last_converted(program: Program, loop: ast.stmt) -> ast.stmt:
    """The last statement right behind the loop, in its order, that converts its sum or list; or the loop."""
    block = program.block_of(loop)
    for each in block[block.index(loop) + 1 :]:
        if not _converts(program, each):
            break
        loop = each
    return loop


def _converts(program: Program, statement: ast.stmt) -> bool:
    """Is it `x = float(x)`, `x = torch.cat(x_parts)`, or `x = torch.stack(x).tolist()` below `if x:`?"""
    if isinstance(statement, ast.If):
        is_alone = len(statement.body) == 1 and not statement.orelse
        value = _assigned_call(statement.body[0]) if is_alone else None
        stacked = receiver_of(value, "tolist")
        stacked = receiver_of(stacked, "flatten") or stacked
        is_stack = isinstance(stacked, ast.Call) and program.qualified(stacked.func) == "torch.stack"
        return is_stack and _converted(statement.body[0], stacked) == (path_of(statement.test),) * 2
    value = _assigned_call(statement)
    path, given = _converted(statement, value)
    name = program.qualified(value.func) if value is not None else ""
    if name in ("builtins.float", "builtins.int"):
        return given == path
    return name in ("torch.cat", "torch.stack") and given in (f"{path}_parts", f"{path}Parts")


def _assigned_call(statement: ast.stmt) -> ast.Call | None:
    value = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    return value if isinstance(value, ast.Call) else None


def _converted(statement: ast.stmt, call: ast.expr | None) -> tuple[str, str]:
    """The paths of what a statement sets and of what `call` is given besides constants, or ""."""
    if not isinstance(statement, ast.Assign) or not isinstance(call, ast.Call) or not call.args:
        return "", "?"
    rest = (*call.args[1:], *(each.value for each in call.keywords))
    is_plain = all(isinstance(each, ast.Constant) for each in rest)
    return path_of(statement.targets[0]), path_of(call.args[0]) if is_plain else "?"
