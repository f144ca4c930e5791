"""Rewrites a loop over time as statements on all of its steps at once."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

from perflint.analysis.program import Program
from perflint.syntax.edits import Fix, Safety
from perflint.syntax.walk import PlainLoop
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import check_alone
from perflint.transforms.operations import Operation, ReplaceStatements, located, new
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import assignment, expression, number
from perflint.transforms.vectorize import head
from perflint.transforms.vectorize.body import inner_statements, lift_body
from perflint.transforms.vectorize.expressions import lift
from perflint.transforms.vectorize.inline import intercepts
from perflint.transforms.vectorize.results import check_apart, stacked
from perflint.transforms.vectorize.scope import Line, Scope, placed, scope_of
from perflint.transforms.vectorize.values import Batched, Induction, Parts, State, picked


@dataclass(frozen=True)
class Vectorized:
    """The `statements` that take the place of a loop, and what else changes; `title` and `safety` are its fix's."""

    statements: tuple[ast.stmt, ...]
    others: tuple[Operation, ...]
    title: str
    safety: Safety


def vectorized(program: Program, loop: PlainLoop) -> Fix:
    """The fix that computes all steps of `loop` at once; raises Blocked, which says what stands in the way."""
    made = vectorize(program, loop)
    return Fix(made.title, made.safety, rewrite(program, ReplaceStatements((loop,), made.statements), *made.others))


def vectorize(program: Program, loop: PlainLoop) -> Vectorized:
    """What computes all steps of `loop` at once; raises Blocked."""
    _check_around(program, loop)
    scope = head.bound(scope_of(program, loop, lift, inner_statements), loop)
    lines = [*lift_body(scope, loop.body if isinstance(loop, ast.For) else loop.body[:-1])]
    lines, others = stacked(scope, lines)
    lines += [Line(loop.body[-1], (each,)) for each in _last_values(scope)]
    check_alone(program, loop)
    safety = Safety.BEHAVIOUR if scope.draft.changes else Safety.ROUNDING
    title = "; ".join(["compute all steps at once", *sorted(scope.draft.changes)])
    return Vectorized(tuple(placed(lines)), tuple(others), title, safety)


def vectorize_where(program: Program, loop: PlainLoop, test: ast.expr, own: PlainLoop) -> Vectorized:
    """What does so where `test` holds, on which `own`, a copy of the loop, counts, and stays as it is elsewhere."""
    both = ast.copy_location(ast.If(located(test, loop), [own], [copy.deepcopy(loop)]), loop)
    made = vectorize(program.with_statements(loop, [both]), own)
    return replace(made, statements=(new(ast.If(test, list(made.statements), [copy.deepcopy(loop)])),))


def _check_around(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked where what stands around the loop tells its steps apart."""
    for each in program.ancestors(loop):
        if getattr(each, "handlers", ()):
            raise Blocked("a handler around it may catch what one step raises", loop)
        heads = [item.context_expr for item in each.items] if isinstance(each, ast.With) else []
        heads += each.decorator_list if isinstance(each, ast.FunctionDef) else []
        if any("autocast" in program.segment(head) for head in heads):
            raise Blocked("autocast around it gives the steps of a Cell another type than it gives all at once", loop)
    function = next((each for each in program.ancestors(loop) if isinstance(each, ast.FunctionDef)), None)
    owner = program.class_of(function) if function else None
    if owner is not None and intercepts(owner):
        raise Blocked(f"`{owner.node.name}` says itself what its attributes are", loop)


def _last_values(scope: Scope) -> Iterator[ast.stmt]:
    """What gives the names that are read after the loop the values of its last step."""
    loop, own = scope.facts.loop, []
    for name in sorted(scope.facts.live_out - scope.draft.final):
        value = scope.values.get(name)
        if isinstance(value, State) and value.is_output:
            value = value.outputs
        is_counted = isinstance(value, Induction) and isinstance(loop, ast.While)
        if isinstance(value, State | Parts | Induction) and not is_counted:
            raise Blocked(f"`{name}` is read after the loop", loop)
        if isinstance(value, Induction):
            yield assignment(name, value.stop)
        if isinstance(value, Batched):
            own += [name] if value.own else []
            last = picked(value.code, value.axis, new(ast.Slice(number(-1))) if value.kept else number(-1))
            yield assignment(name, expression("{x}.clone()", x=last) if value.own else last)
    check_apart(scope, own)
