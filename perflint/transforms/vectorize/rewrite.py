"""Rewrites a loop over time as statements on all of its steps at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perflint.syntax.edits import Fix, Safety
from perflint.syntax.walk import PlainLoop
from perflint.transforms.blocked import Blocked
from perflint.transforms.operations import Operation, ReplaceStatements, new
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import assignment, expression, number
from perflint.transforms.vectorize import head
from perflint.transforms.vectorize.body import inner_statements, lift_body
from perflint.transforms.vectorize.expressions import lift
from perflint.transforms.vectorize.facts import scope_of
from perflint.transforms.vectorize.inline import intercepts
from perflint.transforms.vectorize.lines import Line, placed
from perflint.transforms.vectorize.order import in_order
from perflint.transforms.vectorize.results import Results
from perflint.transforms.vectorize.scope import Lifter, Scope
from perflint.transforms.vectorize.stacks import stacked
from perflint.transforms.vectorize.steps import Index, Layers, Parts, State, Steps, picked

if TYPE_CHECKING:
    from perflint.analysis.program import Program


@dataclass(frozen=True)
class Lifting:
    """The `statements` that take the place of a loop, and what else changes; `title` and `safety` are its fix's."""

    statements: tuple[ast.stmt, ...]
    others: tuple[Operation, ...]
    title: str
    safety: Safety


def lifted(program: Program, loop: PlainLoop) -> Fix:
    """The fix that computes all steps of `loop` at once; raises Blocked, which says what stands in the way."""
    lifting = lift_loop(program, loop)
    change = rewrite(program, ReplaceStatements((loop,), lifting.statements), *lifting.others)
    return Fix(lifting.title, lifting.safety, change)


def check_head(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked unless the head of `loop` tells its steps, and the body leaves them as they are."""
    _scope(program, loop)


def _scope(program: Program, loop: PlainLoop) -> Scope:
    return head.bound(scope_of(program, loop, Lifter(lift, inner_statements)), loop)


def lift_loop(program: Program, loop: PlainLoop) -> Lifting:
    """What computes all steps of `loop` at once; raises Blocked."""
    if any(getattr(each, "handlers", ()) for each in program.ancestors(loop)):
        raise Blocked("a handler around it may catch what one step raises", loop)
    if any(_is_autocast(program, each) for each in program.ancestors(loop)):
        raise Blocked("autocast around it gives the steps of a Cell another type than it gives all at once", loop)
    function = next((each for each in program.ancestors(loop) if isinstance(each, ast.FunctionDef)), None)
    owner = program.class_of(function) if function else None
    if owner is not None and intercepts(owner):
        raise Blocked(f"`{owner.node.name}` says itself what its attributes are", loop)
    scope = _scope(program, loop)
    results = Results(loop)
    body, late = in_order(scope, loop.body if isinstance(loop, ast.For) else loop.body[:-1])
    lines = list(lift_body(replace(scope, late=late), body, results))
    lines, others = stacked(scope, loop, lines, results.lists)
    lines += [Line(loop.body[-1], (each,)) for each in _last_values(scope, results)]
    _check_lines(program, loop)
    safety = Safety.BEHAVIOUR if scope.draft.changes else Safety.ROUNDING
    title = "; ".join(["compute all steps at once", *sorted(scope.draft.changes)])
    return Lifting(tuple(placed(lines)), tuple(others), title, safety)


def _check_lines(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked where the loop shares a line with something else."""
    before = program.text[program.source.line_start(loop.lineno) : program.span(loop)[0]]
    if before.strip() or loop.body[0].lineno == loop.lineno:
        raise Blocked("the loop shares a line with something else", loop)


def _is_autocast(program: Program, around: ast.AST) -> bool:
    heads = [item.context_expr for item in around.items] if isinstance(around, ast.With) else []
    heads += around.decorator_list if isinstance(around, ast.FunctionDef) else []
    return any("autocast" in program.segment(head) for head in heads)


def _last_values(scope: Scope, results: Results) -> Iterator[ast.stmt]:
    """What gives the names that are read behind the loop the values of its last step."""
    loop = results.loop
    for name in sorted(scope.facts.read_behind - scope.draft.final):
        value = scope.values.get(name)
        if isinstance(value, State | Parts | Layers) and not (isinstance(value, State) and value.is_output):
            raise Blocked(f"`{name}` is read after the loop", loop)
        if isinstance(value, State):
            value = value.outputs
        if isinstance(value, Index) and isinstance(loop, ast.While):
            yield assignment(name, value.stop)
        elif isinstance(value, Index):
            raise Blocked(f"`{name}` is read after the loop", loop)
        if isinstance(value, Steps):
            results.check_apart(scope, name, value)
            last = picked(value.code, value.axis, new(ast.Slice(number(-1))) if value.kept else number(-1))
            yield assignment(name, expression("{x}.clone()", x=last) if value.own else last)
