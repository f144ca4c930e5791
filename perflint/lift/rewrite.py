"""Rewrites a loop over time as statements on all of its steps at once."""

from __future__ import annotations

import ast
import itertools
import re
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from perflint.fixes.accumulator import indent_of
from perflint.fixes.names import name_of_torch
from perflint.lift import head
from perflint.lift.body import Line, inner_statements, lift_body
from perflint.lift.expressions import lift
from perflint.lift.results import Results, collected_paths
from perflint.lift.scope import Scope
from perflint.lift.shifts import handed_on
from perflint.lift.stacks import stacked
from perflint.lift.steps import Cannot, Index, State, Steps, atom
from perflint.program.consumers import Flow
from perflint.program.shapes.infer import Shapes
from perflint.program.walk import FUNCTIONS, LOOPS, own_nodes, path_of
from perflint.rule import Edit, Fix, Safety

if TYPE_CHECKING:
    from perflint.program import Program


def lifted(program: Program, loop: ast.For | ast.While) -> Fix:
    """The fix that computes all steps of `loop` at once; raises Cannot, which says what stands in the way."""
    if any(getattr(each, "handlers", ()) for each in program.ancestors(loop)):
        raise Cannot("a handler around it may catch what one step raises", loop)
    scope = _scope(program, loop)
    head.bind(scope, loop)
    results = Results(loop)
    body = loop.body if isinstance(loop, ast.For) else loop.body[:-1]
    lines = list(lift_body(scope, body, results))
    lines, edits = stacked(scope, loop, lines, results.lists)
    lines += [Line(loop.body[-1], (text,)) for text in _last_values(scope, loop)]
    safety = Safety.BEHAVIOUR if scope.draws else Safety.ROUNDING
    title = "; ".join(["compute all steps at once", *sorted(scope.draws)])
    return Fix(title, safety, tuple(sorted([_replaced(scope, loop, lines), *edits])))


def _scope(program: Program, loop: ast.For | ast.While) -> Scope:
    for node in own_nodes(loop):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            raise Cannot("other code may run in each step", node)
    flow, shapes = program.once(_flow_and_shapes)
    stored = {
        path_of(node)
        for node in own_nodes(loop)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    assigned = frozenset((stored | collected_paths(loop.body)) - {""})
    inside = frozenset(own_nodes(loop))
    inner = program.source.indentation(loop.body[0].lineno)
    return Scope(
        program,
        flow,
        shapes,
        name_of_torch(program),
        assigned,
        inside,
        _read_behind(program, flow, loop, inside),
        lift,
        inner_statements,
        "\n" + inner,
        handed_on=handed_on(loop.body),
        bound_names=_bound_names(program, loop),
        taken=_names(program, loop),
    )


def _bound_names(program: Program, loop: ast.For | ast.While) -> frozenset[str]:
    """The names that the function around `loop` gives a value; none of a module's own code."""
    around = program.function_of(loop)
    if around is None:
        return frozenset()
    stores = {node.id for node in own_nodes(around) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(stores | {node.arg for node in ast.walk(around.args) if isinstance(node, ast.arg)})


def _names(program: Program, loop: ast.For | ast.While) -> set[str]:
    """All names in the function around `loop`, and those that the functions it calls may read from around them."""
    around = program.function_of(loop) or program.tree
    names = {node.id for node in ast.walk(around) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(around) if isinstance(node, ast.arg)}
    return names | {name for statement in program.tree.body for name in _bound_by(statement)}


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module gives a value."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        yield getattr(statement, "name", "")
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _read_behind(program: Program, flow: Flow, loop: ast.For | ast.While, inside: frozenset[ast.AST]) -> frozenset[str]:
    bindings = flow.bindings(loop)
    stores = [node for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    if hidden := sorted({node.id for node in stores} & bindings.shared):
        raise Cannot(f"a function defined here uses `{hidden[0]}`", loop)
    behind = {node.id for node in stores if any(use not in inside for use in bindings.uses.get(node, ()))}
    return frozenset(behind | (_met_again(flow, inside) if _is_repeated(program, loop) else set()))


def _is_repeated(program: Program, loop: ast.For | ast.While) -> bool:
    """Does the loop stand in another one of the same function?"""
    outer = itertools.takewhile(lambda each: not isinstance(each, FUNCTIONS), program.ancestors(loop))
    return any(isinstance(each, LOOPS) for each in outer)


def _met_again(flow: Flow, inside: frozenset[ast.AST]) -> set[str]:
    """The names that the loop sets, and reads as they were in front of it: the next time it runs, as it left them."""
    reads = [node for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return {node.id for node in reads if (found := flow.definitions(node)) & inside and found - inside}


def _flow_and_shapes(program: Program) -> tuple[Flow, Shapes]:
    flow = Flow(program)
    return flow, Shapes(program, flow)


def _last_values(scope: Scope, loop: ast.For | ast.While) -> Iterator[str]:
    """What gives the names that are read behind the loop the values of its last step."""
    for name in sorted(scope.read_behind - scope.final):
        value = scope.values.get(name)
        if isinstance(value, State):
            value = value.outputs
        if isinstance(value, Index) and isinstance(loop, ast.While):
            yield f"{name} = {value.stop}"
        elif isinstance(value, Index):
            raise Cannot(f"`{name}` is read behind the loop", loop)
        if isinstance(value, Steps):
            before = ":, " * value.axis
            last = "-1:" if value.kept else "-1"
            yield f"{name} = {atom(value.text)}[{before}{last}]"


def _replaced(scope: Scope, loop: ast.For | ast.While, lines: list[Line]) -> Edit:
    """The edit that puts `lines` in the place of the loop, with the comments of the statements they stand for."""
    source, text = scope.program.source, scope.program.text
    indent = indent_of(scope.program, loop)
    start, end = source.line_start(loop.lineno), source.line_end(loop.end_lineno or loop.lineno)
    inner = source.indentation(loop.body[0].lineno)
    if indent.strip() or loop.body[0].lineno == loop.lineno or not inner.startswith(indent):
        raise Cannot("the loop shares a line with something else", loop)
    pending = _comments(scope.program, loop)
    written: list[str] = []
    for line in lines:
        statements = [each.replace("\n" + inner, "\n" + indent) for each in line.texts]
        last = line.statement.end_lineno or line.statement.lineno
        above = [comment for at, comment in pending if at <= last and not any(comment in each for each in statements)]
        pending = [(at, comment) for at, comment in pending if at > last]
        if (
            above
            and len(statements) == 1
            and "\n" not in statements[0]
            and text[: source.line_end(last)].rstrip().endswith(above[-1])
        ):
            statements = [f"{statements[0]}  {above.pop()}"]
        written += [*above, *statements]
    written += [comment for _, comment in pending]
    broken = "\n" if text[start:end].endswith(("\n", "\r")) else ""
    return Edit(start, end, "\n".join(indent + each for each in written) + broken)


def _comments(program: Program, loop: ast.For | ast.While) -> list[tuple[int, str]]:
    """The comments of the loop, by line."""
    source = program.source
    lines = [source.line_text(line) for line in range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)]
    return [
        (loop.lineno + token.start[0] - 1, token.string) for token in _tokens(lines) if token.type == tokenize.COMMENT
    ]


def _tokens(lines: list[str]) -> Iterator[tokenize.TokenInfo]:
    """The tokens of some lines out of a program, which may be the inside of a block."""
    readline = (re.sub(r"[\r\n]+$", "\n", line) for line in lines)
    with suppress(tokenize.TokenError, IndentationError):
        yield from tokenize.generate_tokens(lambda: next(readline, ""))
