"""Rewrites a loop over time as statements on all of its steps at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from perflint.syntax.edits import Edit, Fix, Safety
from perflint.syntax.walk import PlainLoop
from perflint.transforms.blocked import Blocked
from perflint.transforms.text import atom, comments, indent_of
from perflint.transforms.vectorize import head
from perflint.transforms.vectorize.body import inner_statements, lift_body
from perflint.transforms.vectorize.expressions import lift
from perflint.transforms.vectorize.facts import scope_of
from perflint.transforms.vectorize.inline import intercepts
from perflint.transforms.vectorize.lines import Line
from perflint.transforms.vectorize.order import in_order
from perflint.transforms.vectorize.results import Results
from perflint.transforms.vectorize.scope import Lifter, Scope
from perflint.transforms.vectorize.stacks import stacked
from perflint.transforms.vectorize.steps import Index, Layers, Parts, State, Steps

if TYPE_CHECKING:
    from perflint.analysis.program import Program


def lifted(program: Program, loop: PlainLoop) -> Fix:
    """The fix that computes all steps of `loop` at once; raises Blocked, which says what stands in the way."""
    try:
        return _lifted(program, loop)
    except SyntaxError as error:
        raise Blocked("there is no rule that writes all steps of it", loop) from error


def check_head(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked unless the head of `loop` tells its steps, and the body leaves them as they are."""
    _scope(program, loop)


def _scope(program: Program, loop: PlainLoop) -> Scope:
    return head.bound(scope_of(program, loop, Lifter(lift, inner_statements)), loop)


def _lifted(program: Program, loop: PlainLoop) -> Fix:
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
    lines, edits = stacked(scope, loop, lines, results.lists)
    lines += [Line(loop.body[-1], (text,)) for text in _last_values(scope, results)]
    safety = Safety.BEHAVIOUR if scope.draft.changes else Safety.ROUNDING
    title = "; ".join(["compute all steps at once", *sorted(scope.draft.changes)])
    return Fix(title, safety, tuple(sorted([_replaced(scope, loop, lines), *edits])))


def _is_autocast(program: Program, around: ast.AST) -> bool:
    heads = [item.context_expr for item in around.items] if isinstance(around, ast.With) else []
    heads += around.decorator_list if isinstance(around, ast.FunctionDef) else []
    return any("autocast" in program.segment(head) for head in heads)


def _last_values(scope: Scope, results: Results) -> Iterator[str]:
    """What gives the names that are read behind the loop the values of its last step."""
    loop = results.loop
    for name in sorted(scope.facts.read_behind - scope.draft.final):
        value = scope.values.get(name)
        if isinstance(value, State | Parts | Layers) and not (isinstance(value, State) and value.is_output):
            raise Blocked(f"`{name}` is read after the loop", loop)
        if isinstance(value, State):
            value = value.outputs
        if isinstance(value, Index) and isinstance(loop, ast.While):
            yield f"{name} = {value.stop}"
        elif isinstance(value, Index):
            raise Blocked(f"`{name}` is read after the loop", loop)
        if isinstance(value, Steps):
            before = ":, " * value.axis
            last = "-1:" if value.kept else "-1"
            results.check_apart(scope, name, value)
            yield f"{name} = {atom(value.text)}[{before}{last}]{'.clone()' if value.own else ''}"


def _replaced(scope: Scope, loop: PlainLoop, lines: list[Line]) -> Edit:
    """The edit that puts `lines` in the place of the loop, with the comments of the statements they stand for."""
    source, text = scope.program.source, scope.program.text
    indent = indent_of(scope.program, loop)
    start, end = source.line_start(loop.lineno), source.line_end(loop.end_lineno or loop.lineno)
    inner = source.indentation(loop.body[0].lineno)
    if indent.strip() or loop.body[0].lineno == loop.lineno or not inner.startswith(indent):
        raise Blocked("the loop shares a line with something else", loop)
    pending = comments(scope.program, loop)
    written: list[str] = []
    for line in lines:
        statements = [each.replace("\n" + inner, "\n" + indent) for each in line.texts]
        last, deeper = line.last, inner.removeprefix(indent) * line.depth
        above = [comment for at, comment in pending if at <= last and not any(comment in each for each in statements)]
        pending = [(at, comment) for at, comment in pending if at > last]
        if (
            above
            and len(statements) == 1
            and len(statements[0].splitlines()) == 1
            and text[: source.line_end(last)].rstrip().endswith(above[-1])
        ):
            statements = [f"{statements[0]}  {above.pop()}"]
        written += [deeper + each for each in (*above, *statements)]
    written += [comment for _, comment in pending]
    broken = "\n" if text[start:end].endswith(("\n", "\r")) else ""
    return Edit(start, end, "\n".join(indent + each for each in written) + broken)
