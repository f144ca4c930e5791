"""Tells how far code computes the same once gradients are switched off for it."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard

from perflint.analysis.autograd.evaluations import is_told_to_evaluate
from perflint.analysis.autograd.graph_use import observers
from perflint.analysis.program import Effect, Fate, GraphUse, Program
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bound_names
from perflint.syntax.source import Safety
from perflint.transforms.operations import ReplaceStatements, statement
from perflint.transforms.rewrite import Blocked, of_torch

_ATTENTION = re.compile(r"MultiheadAttention|Transformer|\bvit_")
_PLAIN = frozenset({Kind.NONE, Kind.NUMBER, Kind.STRING, Kind.DEVICE, Kind.LIBRARY})


def without_gradients(
    program: Program, place: ast.AST, uses: Iterable[GraphUse] = (), *, told: bool = False
) -> tuple[Safety, str]:
    """What running `place` under `torch.no_grad()` promises, and a proviso for the title.

    `uses` are those of what `place` gives; `told`: an argument has it skip what differentiates inside. Unknown modules
    may differentiate, which fails there. Transformers, also those of other files, may take their fast path, which
    zeroes padding rows. Raises Blocked where what is run asks for gradients, or keeps a graph.
    """
    inside = observers(program, place)
    found = [*uses, *(each for each in inside if not told or each.fate is not Fate.DIFFERENTIATED)]
    for use in found:
        if use.fate is Fate.ASKED:
            raise Blocked(f"`{ast.unparse(use.node)}` decides what is computed", use.node)
        if use.fate in (Fate.KEPT, Fate.DIFFERENTIATED):
            raise Blocked(f"others may back-propagate `{ast.unparse(use.node)}`", use.node)
    if program.effects(place, Effect.UNSEEN):
        return Safety.BEHAVIOUR, ", if nothing that it runs needs a graph"
    if any(use.fate is Fate.HOOKED for use in found):
        return Safety.BEHAVIOUR, ", if no hook needs a graph"
    if seen := next((use.node for use in found if use.fate in (Fate.OBSERVED, Fate.LOST)), None):
        shown = ast.unparse(seen.func if isinstance(seen, ast.Call) else seen).splitlines()[0]
        return Safety.BEHAVIOUR, f", if `{shown}` needs no graph"
    if "key_padding_mask" in program.text:
        return Safety.BEHAVIOUR, ", if nobody reads the rows of padding, which a transformer's fast path sets to zero"
    may_be_fast = _ATTENTION.search(program.text) or program.effects(place, Effect.ELSEWHERE)
    return (Safety.ROUNDING if may_be_fast else Safety.EXACT), ""


def told_under_no_grad(program: Program, place: ast.stmt) -> tuple[ReplaceStatements, Safety, str]:
    """`place`, and statements beside it that tell a function not to train, without gradients, and what that promises.

    Raises Blocked where `place` does more: the rest may be differentiated.
    """
    block = program.block_of(place)
    before, behind = block[: block.index(place)], block[block.index(place) :]
    group = [*itertools.takewhile(lambda each: _only_evaluates(program, each), reversed(before))][::-1]
    group += itertools.takewhile(lambda each: _only_evaluates(program, each), behind)
    if place not in group:
        raise Blocked("the statement does more than evaluate: write `with torch.no_grad():` around this call")
    promises = []
    for each in group:
        uses = program.graph_uses(each)
        if any(use.fate is Fate.RETURNED for use in uses):
            raise Blocked("what it returns may be back-propagated in another file", each)
        promises.append(without_gradients(program, each, uses, told=True))
    safety = max((each for each, _ in promises), key=list(Safety).index)
    return under_no_grad(program, group), safety, "".join(dict.fromkeys(proviso for _, proviso in promises))


def _only_evaluates(program: Program, statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return) else None
    if isinstance(value, ast.Call) and program.call_of(value, "builtins.print"):
        shown = [each for each in value.args if not isinstance(each, ast.Name | ast.Constant)]
        value = shown[0] if len(shown) == 1 and not value.keywords else None
    while isinstance(value, ast.Subscript | ast.Attribute):
        value = value.value
    return isinstance(value, ast.Call) and is_told_to_evaluate(program, value)


def together(program: Program, statement: ast.stmt, dead: Collection[ast.stmt]) -> list[ast.stmt]:
    """`statement` and what belongs in one block with it, which needs no graph either.

    That are others of `dead`, also an `if` around them that has nothing else, and what only computes with their results
    between them.
    """
    while _is_among(parent := program.parent(statement), dead):
        statement = parent
    found, between = list[ast.stmt](), list[ast.stmt]()
    for each in program.block_of(statement):
        if _is_among(each, dead):
            found, between = [*found, *between, each], []
        elif found and _follows(program, each, {name for made in (*found, *between) for name in bound_names(made)}):
            between.append(each)
        elif statement in found:
            break
        else:
            found, between = [], []
    return found


def _is_among(node: ast.AST | None, dead: Collection[ast.AST]) -> TypeGuard[ast.stmt]:
    if not isinstance(node, ast.If):
        return node in dead
    is_plain = not any(isinstance(each, ast.Call | ast.NamedExpr) for each in ast.walk(node.test))
    return is_plain and bool(node.orelse) and all(_is_among(each, dead) for each in (*node.body, *node.orelse))


def _follows(program: Program, statement: ast.stmt, made: Collection[str]) -> bool:
    """Does it only name what operations of torch give for what is `made`?"""
    if not isinstance(statement, ast.Assign) or not all(isinstance(each, ast.Name) for each in statement.targets):
        return False
    parts = [*ast.walk(statement.value)]
    names = (each for each in parts if isinstance(each, ast.Name) and each.id not in made)
    is_known = all(program.value(each).sure and program.value(each).kind in _PLAIN for each in names)
    return is_known and all(operation(program, each) is not None for each in parts if isinstance(each, ast.Call))


def under_no_grad(program: Program, group: Sequence[ast.stmt]) -> ReplaceStatements:
    """Put `group` under `with torch.no_grad()`, in one block with such a block behind them."""
    block = program.block_of(group[0])
    joined = [
        each
        for each in block[block.index(group[-1]) + 1 :][:1]
        if isinstance(each, ast.With) and _is_no_grad(program, each)
    ]
    kept = [*group, *(inner for each in joined for inner in each.body)]
    quiet = statement("with {no}():\n    {kept}", no=of_torch(program, "no_grad", group[0]), kept=kept)
    return ReplaceStatements((*group, *joined), (quiet,))


def _is_no_grad(program: Program, block: ast.With) -> bool:
    called = [getattr(each.context_expr, "func", None) for each in block.items]
    return [each and program.value(each).name for each in called] == ["torch.no_grad"]
