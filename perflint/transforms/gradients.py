"""Tells how far code computes the same once gradients are switched off for it."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard

from perflint.analysis.autograd.evaluations import is_told_to_evaluate
from perflint.analysis.autograd.graph_use import observers
from perflint.analysis.autograd.unused import UnusedGraph
from perflint.analysis.data.origins import Origins
from perflint.analysis.memory.roles import converts
from perflint.analysis.program import Effect, Fate, GraphUse, Program
from perflint.analysis.values.dtypes import assigned
from perflint.analysis.values.operations import operation
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import bound_names
from perflint.syntax.source import Safety
from perflint.syntax.walk import PlainLoop, own_nodes
from perflint.transforms.operations import Decorate, Replace, ReplaceStatements, expression, statement
from perflint.transforms.rewrite import Blocked, of_torch

_ATTENTION = re.compile(r"MultiheadAttention|Transformer|\bvit_")
_WHY = {
    Fate.DIFFERENTIATED: "what it computes is back-propagated",
    Fate.KEPT: "others may back-propagate `{}`",
    Fate.RETURNED: "what it returns may be back-propagated in another file",
    Fate.LOST: "it isn't known what becomes of `{}`",
}
_LAYER = re.compile(r"torch\.nn\.(Linear|Conv\w+|LayerNorm|BatchNorm\w+|Embedding)$")
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


def all_quiet(
    program: Program, place: ast.FunctionDef | PlainLoop, few: Sequence[ast.stmt] = ()
) -> tuple[Decorate | ReplaceStatements, Safety, str]:
    """A function, or a loop or just `few` statements in it, without gradients, and what that promises.

    Raises Blocked if anybody may differentiate what is computed.
    """
    uses = program.graph_uses(place)
    for use in uses:
        if use.fate in _WHY:
            raise Blocked(_WHY[use.fate].format(ast.unparse(use.node)), use.node)
    safety, title = without_gradients(program, place, uses)
    if not isinstance(place, ast.FunctionDef):
        return under_no_grad(program, few or [place]), safety, title
    return Decorate(place, expression("{no}()", no=of_torch(program, "no_grad", place))), safety, title


def told_quiet(program: Program, place: ast.stmt) -> tuple[ReplaceStatements, Safety, str]:
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
        elif found and _follows(program, each, (*found, *between)):
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


def _follows(program: Program, statement: ast.stmt, before: Sequence[ast.stmt]) -> bool:
    """Does it only name what operations of torch give for what is made `before`, of which nothing starts a graph?"""
    if not isinstance(statement, ast.Assign) or not all(isinstance(each, ast.Name) for each in statement.targets):
        return False
    if any("requires_grad" in program.segment(each) for each in (*before, statement)):
        return False
    made = bound_names(*before)
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


def dead_detach(program: Program, found: UnusedGraph) -> list[Replace]:
    """What drops the `detach` of a graph that is no longer recorded, where what it is called on has none for sure."""
    cut, end, statement = found.cut, found.end(program), program.statement_of(found.run)
    if end is None or end.args or not isinstance(cut, ast.Attribute) or cut.attr != "detach":
        return []
    if program.statement_of(cut) is not statement or "requires_grad" in program.segment(statement):
        return []
    method, behind = itertools.islice(program.ancestors(end), 2)
    goes_on = isinstance(behind, ast.Call) and behind.func is method and _makes(program, behind)
    seen = operation(program, cut.value) if cut.value is not found.run else None
    is_new = goes_on or (seen is not None and _makes(program, found.run if "view" in seen.traits else cut.value))
    is_last = getattr(statement, "value", None) is end
    return [Replace(end, cut.value)] if is_new or (is_last and not _may_return_its_input(program, found.run)) else []


def _may_return_its_input(program: Program, run: ast.Call) -> bool:
    """May the call give an argument itself, or is it not in sight what it gives?"""
    callee = program.callee(run)
    returned = [each.value for each in own_nodes(callee) if isinstance(each, ast.Return)] if callee else []
    return not returned or not all(each is not None and _makes(program, each) for each in returned)


def _makes(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        values = assigned(program, node) or []
        return bool(values) and all(not isinstance(each, ast.Name) and _makes(program, each) for each in values)
    found = operation(program, node)
    if found is not None:
        is_same = found.does.writes or "view" in found.traits or converts(found.name) or "dropout" in found.name
        return not is_same and found.name != "numpy"  # which shares memory, and takes no leaf that needs gradients
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.BinOp)
    built = program.get(Origins).calls(node.func) if program.value(node.func).name.endswith(".Sequential") else []
    layers = [[part for each in call.args for part in ast.walk(each) if isinstance(part, ast.Call)] for call in built]
    has_layers = bool(layers) and all(any(_LAYER.match(program.qualified(each.func)) for each in few) for few in layers)
    return has_layers or _LAYER.match(program.value(node.func).name) is not None
