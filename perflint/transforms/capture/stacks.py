"""The lists that a loop fills and that are stacked behind it, once and in one way: the stack is all that is needed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflint.syntax.walk import PlainLoop, path_of
from perflint.transforms.capture.results import STACK, Collected, dimension, is_always_behind
from perflint.transforms.names import check_alone
from perflint.transforms.operations import Operation, Replace, ReplaceStatements
from perflint.transforms.template import reference

if TYPE_CHECKING:
    from perflint.analysis.program import Program


@dataclass(frozen=True)
class Stacks:
    """All are stacked along `dim`; `empty` are the statements that make the empty lists; `undone` takes it away."""

    dim: str
    empty: tuple[ast.stmt, ...]
    undone: tuple[Operation, ...]


def stacks_of(program: Program, loop: PlainLoop, found: Sequence[Collected]) -> Stacks | None:
    """How the lists are stacked, if nothing else is done with any of them."""
    names = {each.name for each in found}
    empty = [_empty(program, loop, each.name, names) for each in found]
    stacks = [_stack(program, loop, each) for each in found]
    if any(each.how != "append" for each in found) or None in empty or None in stacks:
        return None
    dims = {dim for _, dim in filter(None, stacks)}
    if len(dims) > 1:
        return None
    statements = tuple(dict.fromkeys(each for each in empty if each is not None))
    return Stacks(min(dims, default="0"), statements, tuple(each for each, _ in filter(None, stacks)))


def _empty(program: Program, loop: PlainLoop, name: str, names: set[str]) -> ast.stmt | None:
    """The statement in front of the loop that makes the empty list, perhaps with others of these names."""
    block = program.block_of(loop)
    for statement in block[: block.index(loop)]:
        if name in (made := _lists_made(statement)) and made <= names:
            return statement
    return None


def _lists_made(statement: ast.stmt) -> set[str]:
    """The names that a statement gives new empty lists, if it does nothing else."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.value, ast.List) and not statement.value.elts:
        return {path_of(statement.target)}
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return set()
    target, value = statement.targets[0], statement.value
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    are_new = all(isinstance(each, ast.List) and not each.elts for each in values)
    return {path_of(each) for each in targets} if are_new and len(targets) == len(values) else set()


def _stack(program: Program, loop: PlainLoop, each: Collected) -> tuple[Operation, str] | None:
    """Puts the name in the place of the call that stacks the list behind the loop, and says along which dimension."""
    uses = _uses(program, loop, each.name)
    others = [
        node for node in uses if isinstance(node.ctx, ast.Load) and program.statement_of(node) is not each.statement
    ]
    stores = [node for node in uses if isinstance(node.ctx, ast.Store)]
    call = program.parent(others[0]) if others else None
    if not isinstance(call, ast.Call) or program.qualified(call.func) != STACK or call.args[:1] != others[:1]:
        return None
    statement = program.statement_of(call)
    again = isinstance(statement, ast.Assign) and statement.value is call and stores[-1:] == statement.targets
    if not is_always_behind(program, call, loop, "") or len(stores) != (2 if again else 1):
        return None
    dim = dimension(program, call)
    if (len(others) > 1 and not again) or not dim:
        return None
    if not again:
        return Replace(call, reference(each.name)), dim
    check_alone(program, statement)
    return ReplaceStatements((statement,), ()), dim


def _uses(program: Program, loop: PlainLoop, name: str) -> list[ast.Name]:
    around = program.function_of(loop) or program.tree
    found = (node for node in ast.walk(around) if isinstance(node, ast.Name) and node.id == name)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))
