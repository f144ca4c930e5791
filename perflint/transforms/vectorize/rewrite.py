"""The fixes of a loop over time: its statements on all steps at once, or else the loop as a graph."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.links import Seen
from perflint.analysis.loops.calls import rnn_kind
from perflint.analysis.loops.flow import AUTOREGRESSIVE, RECURRENCE, VECTORIZABLE
from perflint.analysis.program import Kind, Program
from perflint.analysis.values.shapes import Shapes
from perflint.syntax.source import Fix, Safety
from perflint.syntax.walk import PlainLoop, operands, own_nodes, path_of, root_of, variables_in
from perflint.transforms.aliases import check_aliases
from perflint.transforms.capture.choices import graphed_or_drawn
from perflint.transforms.capture.host_part import draws
from perflint.transforms.operations import (
    Operation,
    ReplaceStatements,
    assignment,
    derived,
    expression,
    located,
    negated,
    new,
    number,
    same_code,
    standing_for,
)
from perflint.transforms.remedy import Remedy
from perflint.transforms.rewrite import Blocked, check_alone, of_torch, rewrite, shown
from perflint.transforms.vectorize.body import lift, lift_body
from perflint.transforms.vectorize.head import with_targets
from perflint.transforms.vectorize.modules import intercepts, is_told_by_class
from perflint.transforms.vectorize.peel import peeled
from perflint.transforms.vectorize.results import check_apart, stacked
from perflint.transforms.vectorize.scope import Line, Scope, placed, scope_of, written_paths
from perflint.transforms.vectorize.tidy import is_intricate, tidied
from perflint.transforms.vectorize.values import Batched, Induction, Parts, State, picked

_PLAIN = (ast.Constant, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.Compare, ast.cmpop, ast.expr_context)
_BY_HAND = (
    "drawn once a sequence, before the loop (a change of training that is yours to make),"
    " each answer is tried by itself"
)

_MOST = 6  # assumptions, beyond which a guard is no line that anybody reads


@dataclass(frozen=True)
class Vectorized:
    """The `statements` that replace a loop, and what else changes; `title` and `safety` are its fix's."""

    statements: tuple[ast.stmt, ...]
    others: tuple[Operation, ...]
    title: str
    safety: Safety
    is_awkward: bool

    def fix(self, program: Program, loop: PlainLoop, title: str = "") -> Fix:
        change = rewrite(program, ReplaceStatements((loop,), self.statements), *self.others)
        return Fix(title or self.title, self.safety, change, is_awkward=self.is_awkward)


def vectorize(program: Program, loop: PlainLoop) -> Vectorized:
    """Raises Blocked."""
    _check_around(program, loop)
    scope = with_targets(scope_of(program, loop, lift), loop)
    lines = [*lift_body(scope, loop.body)]
    lines, others = stacked(scope, lines)
    lines += [Line(loop.body[-1], (each,)) for each in _last_values(scope)]
    lines = tidied(scope, lines)
    check_alone(program, loop)
    safety = Safety.BEHAVIOUR if scope.draft.changes else Safety.ROUNDING
    title = "; ".join(["compute all steps at once", *sorted(scope.draft.changes)])
    is_awkward = bool(scope.draft.oddities) or any(is_intricate(each) for line in lines for each in line.new)
    return Vectorized(tuple(placed(lines)), tuple(others), title, safety, is_awkward)


def vectorize_where(program: Program, loop: PlainLoop, test: ast.expr, own: PlainLoop) -> Vectorized:
    both = ast.copy_location(ast.If(located(test, loop), [own], [copy.deepcopy(loop)]), loop)
    made = vectorize(program.with_statements(loop, [both]), own)
    body = [*_other_way(program, loop.body, test)]
    assert isinstance(loop, ast.For)  # which alone is vectorized
    other = standing_for(new(ast.For(loop.target, loop.iter, body, [])), loop, head=True)
    at_once = [standing_for(each, loop, last=loop.lineno - 1) for each in made.statements]  # its comments stay with it
    return replace(made, statements=(new(ast.If(test, at_once, [other])),))


def _other_way(program: Program, block: Sequence[ast.stmt], test: ast.expr) -> Iterator[ast.stmt]:
    """The statements where the answer to `test` is no."""
    for each in block:
        asked = each.test if isinstance(each, ast.If) else None
        is_taken = asked is not None and (same_code(asked, negated(test)) or same_code(negated(asked), test))
        if isinstance(each, ast.If) and (is_taken or same_code(each.test, test)) and not _has_comments(program, each):
            yield from _other_way(program, each.body if is_taken else each.orelse, test)
        elif asked is None and (
            parts := {**_answers(each, test, answer=False), **_answers(each, negated(test), answer=True)}
        ):
            yield standing_for(derived(each, parts), each)
        else:
            yield each


def _answers(node: ast.AST, test: ast.expr, *, answer: bool) -> dict[ast.expr, ast.expr]:
    asked = (each for each in ast.walk(node) if isinstance(each, ast.IfExp) and same_code(each.test, test))
    return {each: each.body if answer else each.orelse for each in asked}


def _has_comments(program: Program, node: ast.stmt) -> bool:
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return any("#" in program.source.line_text(line) for line in lines)


def _check_around(program: Program, loop: PlainLoop) -> None:
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
    loop, own = scope.facts.loop, []
    for name in sorted(scope.facts.live_out - scope.draft.final):
        value = scope.values.get(name)
        if isinstance(value, State) and value.outputs is not None:
            value = value.outputs
        if isinstance(value, State | Parts | Induction):
            raise Blocked(f"`{name}` is read after the loop", loop)
        if isinstance(value, Batched):
            own += [name] if value.own else []
            last = picked(value.code, value.axis, new(ast.Slice(number(-1))) if value.kept else number(-1))
            yield assignment(name, expression("{x}.clone()", x=last) if value.own else last)
    check_apart(scope, own)


def vectorized_or_unswitched(program: Program, loop: PlainLoop) -> Fix:
    """Raises Blocked."""
    try:
        return vectorize(program, loop).fix(program, loop)
    except Blocked:
        if (fix := _peeled(program, loop)) is not None:
            return fix
        if not (tests := list(_tests_of(loop))):
            raise
    test = _invariant_test(program, loop, tests)
    try:
        return _where(program, loop, test, answer=True)
    except Blocked as one:
        try:
            return _where(program, loop, test, answer=False)
        except Blocked as other:
            raise Blocked(f"{one.reason}; where `{ast.unparse(negated(test))}`, {other}", one.node) from None


def _peeled(program: Program, loop: PlainLoop) -> Fix | None:
    """Take the first step before the loop, and compute the others at once; None where the body doesn't ask.

    Raises Blocked.
    """
    if (parts := peeled(program, loop)) is None:
        return None
    with_targets(
        scope_of(program, loop, lift), loop
    )  # which raises Blocked where the first step changes how far it goes
    before = [located(copy.deepcopy(each), loop) for each in parts.first]
    made = vectorize(program.with_statements(loop, [*before, parts.others]), parts.others)
    code: tuple[ast.stmt, ...] = (*parts.first, *made.statements)
    if parts.tests is not None:
        is_first, are_others = parts.tests
        code = new(ast.If(is_first, parts.first, [])), new(ast.If(are_others, [*made.statements], []))
        made = replace(made, is_awkward=True)
    return replace(made, statements=code).fix(program, loop)


def _where(program: Program, loop: PlainLoop, test: ast.expr, *, answer: bool) -> Fix:
    own = _Answered(test, answer=answer).visit(copy.deepcopy(loop))
    if all(isinstance(each, ast.Pass) for each in own.body):
        raise Blocked("one answer leaves a step nothing to do", test)
    condition = test if answer else negated(test)
    made = vectorize_where(program, loop, condition, own)
    return made.fix(program, loop, f"where `{ast.unparse(condition)}`, {made.title}")


class _Answered(ast.NodeTransformer):
    """Reduces a loop to one answer to a test."""

    def __init__(self, test: ast.expr, *, answer: bool) -> None:
        self._test, self._answer = test, answer

    def visit(self, node: ast.AST) -> Any:
        """What is left of a statement; conditional expressions by the test become their part."""
        if isinstance(node, ast.expr):
            return derived(node, _answers(node, self._test, answer=self._answer))
        return super().visit(node)

    def visit_If(self, node: ast.If) -> Any:
        if not same_code(node.test, self._test):
            return self.generic_visit(node)
        taken = ast.Module(node.body if self._answer else node.orelse, [])
        self.generic_visit(taken)
        return taken.body or ast.copy_location(ast.Pass(), node)


def _tests_of(loop: PlainLoop) -> Iterator[ast.If | ast.IfExp]:
    for each in loop.body:
        if isinstance(each, ast.If):
            yield each
        found = [node for node in own_nodes(each) if isinstance(node, ast.IfExp)]
        yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _invariant_test(program: Program, loop: PlainLoop, tests: list[ast.If | ast.IfExp]) -> ast.expr:
    written = {*written_paths(loop)}
    around = [each.test for each in program.ancestors(loop) if isinstance(each, ast.If)]
    for node in tests:
        if _is_invariant_test(program, node.test, written):
            if any(same_code(each, node.test) or same_code(each, negated(node.test)) for each in around):
                raise Blocked("each step asks again what was asked before the loop", node)
            return node.test
    for node in tests:
        if _is_drawn(program, loop, node.test):
            raise Blocked(f"{shown(program, node.test)} is drawn anew in each step; {_BY_HAND}", node)
    raise Blocked(f"{shown(program, tests[0].test)} may have another answer in each step", tests[0])


def _is_invariant_test(program: Program, test: ast.expr, written: set[str]) -> bool:
    for part in ast.walk(test):
        if isinstance(part, ast.Name | ast.Attribute):
            is_object = program.value(part).kind is Kind.INSTANCE and not isinstance(
                program.parent(part), ast.Attribute
            )
            if is_object or not path_of(part) or path_of(part) in written:
                return False
        elif not isinstance(part, _PLAIN):
            return False
    return True


def _is_drawn(program: Program, loop: PlainLoop, test: ast.expr) -> bool:
    names = variables_in(test)
    given = [node for node in own_nodes(loop) if isinstance(node, ast.Assign)]
    parts = [test, *(node.value for node in given if any(path_of(target) in names for target in node.targets))]
    return any(draws(program, part) for each in parts for part in ast.walk(each))


@dataclass(frozen=True)
class Assumption:
    """An assumption about a variable: in `words`, and the `test` that asks at run time."""

    words: str
    test: ast.expr


def speculated(program: Program, loop: PlainLoop) -> Fix:
    """The fix that computes all steps at once if what a run showed is so again; raises Blocked.

    No more is assumed than the proof needs.
    """
    seen = program.seen_in(program.function_of(loop))
    assumed = [*_assumptions(program, loop, seen)][:_MOST] if seen else []
    if not assumed or _vectorized(program, loop, assumed) is None:
        raise Blocked("what a run has shown doesn't help", loop)
    for each in [*assumed]:
        fewer = [other for other in assumed if other is not each]
        if fewer and _vectorized(program, loop, fewer) is not None:
            assumed = fewer
    made = _vectorized(program, loop, assumed)
    assert made is not None
    words = " and ".join(each.words for each in assumed)
    run = next(iter(seen.values())).run
    return replace(made.fix(program, loop, f"{made.title}, if {words}, as seen in the run ({run})"), assumes=words)


def _vectorized(program: Program, loop: PlainLoop, assumed: Sequence[Assumption]) -> Vectorized | None:
    try:
        return vectorize_where(program, loop, _all(assumed), copy.deepcopy(loop))
    except Blocked:
        return None


def _all(assumed: Sequence[Assumption]) -> ast.expr:
    tests = [copy.deepcopy(test) for each in assumed for test in operands(each.test, ast.And)]
    return new(ast.BoolOp(ast.And(), tests)) if len(tests) > 1 else tests[0]


def _assumptions(program: Program, loop: PlainLoop, seen: dict[str, Seen]) -> Iterator[Assumption]:
    asked = [*_asked_before(program, loop)]
    stored = {path_of(node) for node in own_nodes(loop) if _is_stored(node)}
    found: dict[str, ast.expr] = {}
    for node in own_nodes(loop):
        path = path_of(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        if path in seen and path not in stored and isinstance(node, ast.expr):
            found.setdefault(path, node)
    for path, node in sorted(found.items()):
        if not _is_bound(program, node):
            continue
        assumption = _assumption(program, node, path, seen[path])
        if assumption is not None and not any(
            same_code(test, other) for test in operands(assumption.test, ast.And) for other in asked
        ):
            yield assumption


def _assumption(program: Program, node: ast.expr, path: str, seen: Seen) -> Assumption | None:
    value = program.value(node)
    if seen.rank is not None:
        if isinstance(node, ast.Attribute) or program.get(Shapes).shape(node).rank is not None:
            return None
        axes = f"{seen.rank} ax{'i' if seen.rank == 1 else 'e'}s"
        is_tensor = expression("isinstance({x}, {tensor})", x=path, tensor=of_torch(program, "Tensor", node))
        has_rank = expression("{x}.dim() == {rank}", x=path, rank=seen.rank)
        if value.kind is Kind.TENSOR and value.sure:
            return Assumption(f"`{path}` has {axes}", has_rank)
        return Assumption(f"`{path}` is a tensor of {axes}", new(ast.BoolOp(ast.And(), [is_tensor, has_rank])))
    if value.kind not in (Kind.UNKNOWN, Kind.MODULE) or value.name or not is_told_by_class(seen.kind):
        return None
    kind = of_torch(program, seen.kind.removeprefix("torch."), node)
    return Assumption(f"`{path}` is a {seen.kind}", expression("type({x}) is {kind}", x=path, kind=kind))


def _asked_before(program: Program, loop: PlainLoop) -> Iterator[ast.expr]:
    """The tests that have failed, all or some, where the loop runs."""
    child: ast.AST = loop
    for around in program.ancestors(loop):
        if isinstance(around, ast.If) and child in around.orelse:
            yield from operands(around.test, ast.And)
        child = around


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Load)


def _is_bound(program: Program, node: ast.expr) -> bool:
    root = root_of(node)
    values = program.get(Flow).graph(root).definitions(root) if isinstance(root, ast.Name) else frozenset()
    return bool(values) and all(isinstance(each, Definition) for each in values)


def remedy(program: Program, loop: PlainLoop, kind: str, because: str) -> Remedy:
    tried: list[tuple[str, Fix | Blocked]] = []
    if kind == RECURRENCE and program.get(_runs_rnns):  # it is one for what stands in the way of this
        tried.append(("", _try(program, loop, vectorized_or_unswitched)))
    elif kind not in (AUTOREGRESSIVE, RECURRENCE):
        tried.append(("not all steps can be computed at once", _try(program, loop, vectorized_or_unswitched)))
    is_at_once = bool(tried) and isinstance(tried[0][1], Fix)
    if kind == VECTORIZABLE and not is_at_once and isinstance(guess := _try(program, loop, speculated), Fix):
        return Remedy(kind, because, (guess,))
    if kind != VECTORIZABLE or not is_at_once:  # next to which a graph is no faster
        failed = "no CUDA graph can capture the loop as it is"
        tried.append((failed, _try(program, loop, graphed_or_drawn)))
    fixes = tuple(found for _, found in tried if isinstance(found, Fix))
    is_open = not fixes and kind not in (AUTOREGRESSIVE, VECTORIZABLE)
    if is_open and isinstance(guess := _try(program, loop, speculated), Fix):
        return Remedy(kind, because, (guess,))
    if not fixes:
        reasons = (f"{failed}: {found}" for failed, found in tried if failed)
        return Remedy(kind, because, blocked="; ".join(reasons))
    if kind == RECURRENCE and is_at_once:
        kind, because = VECTORIZABLE, "what it carries is no more than the state of a torch RNN or Cell"
    return Remedy(kind, because, fixes)


def _runs_rnns(program: Program) -> bool:
    """Does it call an RNN or a Cell, which alone carry a state computable for all steps at once?"""
    return any(rnn_kind(program, each.func) for each in program.of_type(ast.Call))


def _try(program: Program, loop: PlainLoop, way: Callable[[Program, PlainLoop], Fix]) -> Fix | Blocked:
    try:
        fix = way(program, loop)
        if way is not graphed_or_drawn:
            check_aliases(program, loop)
        return fix
    except Blocked as blocked:
        return blocked
