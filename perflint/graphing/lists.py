"""The lists that a loop fills a step at a time, and the stack behind it that makes each of them one tensor."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.fixes.blocked import Blocked
from perflint.fixes.shown import shown
from perflint.fixes.text import whole_lines
from perflint.program.walk import nodes_of_body, own_nodes, path_of
from perflint.rule import Edit

if TYPE_CHECKING:
    from perflint.program import Program


@dataclass(frozen=True)
class StackedLists:
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


def stacked_lists(program: Program, loop: ast.For, end: ast.If) -> StackedLists:
    """The lists of `loop`; raises Blocked where they are more than stacked."""
    appends = tuple(each for each in loop.body if _appended(each) is not None)
    pairs = [_pair(program, loop, end, each) for each in appends]
    names = tuple(name for name, _ in pairs)
    stacks = [_stack(program, loop, each, name) for each, name in zip(appends, names, strict=True)]
    dims = {dim for _, dim in stacks}
    if len(dims) > 1 or len(set(names)) < len(names):
        raise Blocked("its results are stacked in different ways", loop)
    empty = tuple(dict.fromkeys(_empty(program, loop, name, names) for name in names))
    values = tuple(value for _, value in pairs)
    edits = tuple(edit for edit, _ in stacks)
    steps = _steps(program, loop)
    if not names and not steps.strip("0").isdigit():
        # where results are stacked, it must take one
        raise Blocked("it may take no step at all, and no list of its results is stacked after it", loop)
    return StackedLists(steps, names, values, appends, empty, min(dims, default="0"), edits)


def _pair(program: Program, loop: ast.For, end: ast.If, append: ast.stmt) -> tuple[str, str]:
    """The list, and the name whose value is appended to it."""
    call = _appended(append)
    assert call is not None and isinstance(call.func, ast.Attribute)
    value, name = call.args[0], path_of(call.func.value)
    if loop.body.index(append) > loop.body.index(end):
        raise Blocked(f"the last step leaves `{name}` as it is", append)
    if not isinstance(value, ast.Name):
        raise Blocked(f"{shown(program, value)} is appended, and not the value of a name", append)
    if _is_set_behind(loop, append, value.id):
        raise Blocked(f"`{value.id}` is set again after the line that appends it", append)
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
    used = any(isinstance(node, ast.Name) and node.id == index for node in nodes_of_body(loop))
    if used or len(call.args) != 2 or not isinstance(call.args[0], ast.Constant):
        raise Blocked("its steps don't count from 0", loop)
    return f"{program.segment(call.args[1])} - {program.segment(call.args[0])}"


def _uses(program: Program, loop: ast.For, name: str) -> list[ast.Name]:
    around = program.function_of(loop) or program.tree
    found = (node for node in ast.walk(around) if isinstance(node, ast.Name) and node.id == name)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _empty(program: Program, loop: ast.For, name: str, names: Sequence[str]) -> ast.stmt:
    """The statement in front of the loop that makes the empty list, perhaps with others of these names."""
    block = program.block_of(loop)
    for statement in block[: block.index(loop)]:
        if name in (made := _lists_made(statement)) and made <= set(names):
            return statement
    raise Blocked(f"`{name}` is not known to be empty in front of the loop", loop)


def _lists_made(statement: ast.stmt) -> set[str]:
    """The names that a statement gives new empty lists, if it does nothing else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return set()
    target, value = statement.targets[0], statement.value
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    are_new = all(isinstance(each, ast.List) and not each.elts for each in values)
    return {path_of(each) for each in targets} if are_new and len(targets) == len(values) else set()


def _stack(program: Program, loop: ast.For, append: ast.stmt, name: str) -> tuple[Edit, str]:
    """Puts the name in the place of the call that stacks the list behind the loop, and says along which dimension."""
    uses = [node for node in _uses(program, loop, name) if isinstance(node.ctx, ast.Load)]
    others = [node for node in uses if program.statement_of(node) is not append]
    stores = [node for node in _uses(program, loop, name) if isinstance(node.ctx, ast.Store)]
    call = program.parent(others[0]) if others else None
    if not isinstance(call, ast.Call) or program.qualified(call.func) != "torch.stack" or call.args[:1] != others[:1]:
        raise Blocked(f"`{name}` is more than stacked after the loop", loop)
    statement = program.statement_of(call)
    again = isinstance(statement, ast.Assign) and statement.value is call and stores[-1:] == statement.targets
    always = program.parent(statement) in list(program.ancestors(loop))
    if (
        not always
        or statement.lineno < loop.lineno
        or len(stores) != (2 if again else 1)
        or (len(others) > 1 and not again)
    ):
        raise Blocked(f"`{name}` is more than stacked after the loop", loop)
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
