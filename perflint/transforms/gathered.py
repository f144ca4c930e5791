"""Writes the lists of what a loop walks, and the code on them, in place of the loop."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from perflint.syntax.walk import path_of
from perflint.transforms.operations import FIT, expression, in_rows, new, standing_for, statement, tuple_of
from perflint.transforms.rewrite import Taken


def gathered(
    loop: ast.For, conditions: Sequence[ast.expr], lists: Mapping[str, ast.expr], code: Sequence[ast.stmt], taken: Taken
) -> list[ast.stmt]:
    """The `code` on the `lists`, made by name of what the loop walks where the `conditions` hold, if there is any.

    torch._foreach_* takes no empty lists. What several hold is walked once, so that they are as long.
    """
    name = next(iter(lists)) if len(lists) == 1 else taken.fresh("pairs")
    made = statement("{name} = {listed}", name=name, listed=_listed(tuple_of([*lists.values()]), loop, conditions))
    if len(lists) > 1:
        code = _unzipped(name, [*lists], code)
    return [standing_for(made, loop), statement("if {name}:\n    {*code}", name=name, code=code)]


def _listed(leaf: ast.expr, loop: ast.For, conditions: Sequence[ast.expr]) -> ast.expr:
    if ast.unparse(leaf) == ast.unparse(loop.target) and not conditions:
        return expression("list({walked})", walked=loop.iter)
    return in_rows(new(ast.ListComp(leaf, [new(ast.comprehension(loop.target, loop.iter, [*conditions], 0))])), FIT)


def _unzipped(pairs: str, names: Sequence[str], code: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The code, with the lists in it: one call that takes them first, and once, is handed them as they are zipped."""
    call = code[0].value if len(code) == 1 and isinstance(code[0], ast.Expr) else None
    uses = [each.id for node in code for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in names]
    if isinstance(call, ast.Call) and uses == [*map(path_of, call.args[: len(names)])] == [*names]:
        zipped = expression("f(*zip(*{pairs}))", pairs=pairs).args  # type: ignore[attr-defined]
        args = [*zipped, *call.args[len(names) :]]
        return [new(ast.Expr(in_rows(new(ast.Call(call.func, args, call.keywords)), FIT)))]
    unzipped = new(ast.Assign([tuple_of(names, ast.Store())], expression("zip(*{pairs})", pairs=pairs)))
    return [unzipped, *code]
