"""The lists that a loop fills a step at a time, and the stack behind it that makes each of them one tensor."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.fixes.blocked import Blocked
from perflint.fixes.shown import shown
from perflint.fixes.text import whole_lines
from perflint.program.walk import own_nodes, path_of
from perflint.rule import Edit

if TYPE_CHECKING:
    from perflint.program import Program


@dataclass(frozen=True)
class Collected:
    """How many `steps` a loop has, and its lists: `names`, the `values` that a step appends, where these `appends` are.

    They start as the `empty` ones, and all are stacked along `dim`; `stacks` take away the calls that do so.
    """

    steps: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    appends: tuple[ast.stmt, ...]
    empty: tuple[ast.stmt, ...]
    dim: str
    stacks: tuple[Edit, ...]


def collected(program: Program, loop: ast.For, end: ast.If) -> Collected:
    """The lists of `loop`; raises Blocked where they are more than stacked."""
    appends = tuple(each for each in loop.body if _appended(each) is not None)
    pairs = [_pair(program, loop, end, each) for each in appends]
    names = tuple(name for name, _ in pairs)
    stacks = [_stack(program, loop, each, name) for each, name in zip(appends, names, strict=True)]
    dims = {dim for _, dim in stacks}
    if len(dims) > 1 or len(set(names)) < len(names):
        raise Blocked("its results are stacked in different ways", loop)
    empty = tuple(_empty(program, loop, name) for name in names)
    values = tuple(value for _, value in pairs)
    edits = tuple(edit for edit, _ in stacks)
    steps = _steps(program, loop)
    if not names and not steps.strip("0").isdigit():
        raise Blocked("it may take no step at all", loop)  # where results are stacked, it must take one
    return Collected(steps, names, values, appends, empty, min(dims, default="0"), edits)


def _pair(program: Program, loop: ast.For, end: ast.If, append: ast.stmt) -> tuple[str, str]:
    """The list, and the name whose value is appended to it."""
    call = _appended(append)
    assert call is not None and isinstance(call.func, ast.Attribute)
    value, name = call.args[0], path_of(call.func.value)
    if loop.body.index(append) > loop.body.index(end):
        raise Blocked(f"the last step leaves `{name}` as it is", append)
    if not isinstance(value, ast.Name) or _is_set_behind(loop, append, value.id):
        raise Blocked(f"{shown(program, value)} is appended, and not the value of a name", append)
    return name, value.id


def _appended(statement: ast.stmt) -> ast.Call | None:
    """The call, if the statement is `name.append(value)`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return None
    return call if call.func.attr == "append" and isinstance(call.func.value, ast.Name) else None


def _is_set_behind(loop: ast.For, append: ast.stmt, name: str) -> bool:
    rest = loop.body[loop.body.index(append) + 1 :]
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for each in rest
        for node in own_nodes(each)
    )


def _steps(program: Program, loop: ast.For) -> str:
    call = loop.iter
    if not isinstance(call, ast.Call) or program.qualified(call.func) != "builtins.range" or call.keywords:
        raise Blocked("its steps are not counted by range()", loop)
    if not isinstance(loop.target, ast.Name):
        raise Blocked("its steps are not counted by one name", loop)
    if len(call.args) == 1:
        return program.segment(call.args[0])
    index = loop.target.id
    used = any(isinstance(node, ast.Name) and node.id == index for each in loop.body for node in own_nodes(each))
    if used or len(call.args) != 2 or not isinstance(call.args[0], ast.Constant):
        raise Blocked("its steps don't count from 0", loop)
    return f"{program.segment(call.args[1])} - {program.segment(call.args[0])}"


def _uses(program: Program, loop: ast.For, name: str) -> list[ast.Name]:
    around = program.function_of(loop) or program.tree
    return [node for node in ast.walk(around) if isinstance(node, ast.Name) and node.id == name]


def _empty(program: Program, loop: ast.For, name: str) -> ast.stmt:
    """The statement in front of the loop that makes the empty list."""
    block = program.block_of(loop)
    for statement in block[: block.index(loop)]:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if [path_of(each) for each in targets] != [name]:
            continue
        assert isinstance(statement, ast.Assign)
        if isinstance(statement.value, ast.List) and not statement.value.elts:
            return statement
    raise Blocked(f"`{name}` is not known to be empty in front of the loop", loop)


def _stack(program: Program, loop: ast.For, append: ast.stmt, name: str) -> tuple[Edit, str]:
    """Puts the name in the place of the call that stacks the list behind the loop, and says along which dimension."""
    uses = [node for node in _uses(program, loop, name) if isinstance(node.ctx, ast.Load)]
    others = [node for node in uses if program.statement_of(node) is not append]
    stores = [node for node in _uses(program, loop, name) if isinstance(node.ctx, ast.Store)]
    call = program.parent(others[0]) if others else None
    if not isinstance(call, ast.Call) or program.qualified(call.func) != "torch.stack" or call.args[:1] != others[:1]:
        raise Blocked(f"`{name}` is more than stacked behind the loop", loop)
    statement = program.statement_of(call)
    again = isinstance(statement, ast.Assign) and statement.value is call and stores[-1:] == statement.targets
    always = program.parent(statement) in list(program.ancestors(loop))
    if (
        not always
        or statement.lineno < loop.lineno
        or len(stores) != (2 if again else 1)
        or (len(others) > 1 and not again)
    ):
        raise Blocked(f"`{name}` is more than stacked behind the loop", loop)
    dim = _dim(program, call)
    return (whole_lines(program, statement) if again else Edit(*program.span(call), name)), dim


def _dim(program: Program, call: ast.Call) -> str:
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg == "dim")]
    if len(given) != len(call.args) - 1 + len(call.keywords) or len(given) > 1:
        raise Blocked("it is stacked in another way", call)
    text = program.segment(given[0]) if given else "0"
    if not text.removeprefix("-").isdigit():
        raise Blocked("it is stacked in another way", call)
    return text
