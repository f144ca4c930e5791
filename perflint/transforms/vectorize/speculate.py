"""Speculation on what a run has shown: the loop is vectorized where a guard holds, and stays as it is elsewhere."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition
from perflint.analysis.links import Seen
from perflint.analysis.program import Kind, Program
from perflint.analysis.values.shapes import Shapes
from perflint.syntax.edits import Fix
from perflint.syntax.walk import PlainLoop, operands, own_nodes, path_of, root_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.names import of_torch
from perflint.transforms.operations import ReplaceStatements, new, same_code
from perflint.transforms.rewrite import rewrite
from perflint.transforms.template import expression
from perflint.transforms.vectorize.modules import is_told_by_class
from perflint.transforms.vectorize.rewrite import Vectorized, vectorize_where

_MOST = 6  # assumptions, beyond which a guard is no line that anybody reads


@dataclass(frozen=True)
class Assumption:
    """What is assumed of a variable: `words` for it, and the `test` that asks at run time."""

    words: str
    test: ast.expr


def speculated(program: Program, loop: PlainLoop) -> Fix:
    """The fix that computes all steps at once where what a run has shown is so again; raises Blocked.

    Of what was seen, no more is assumed than the proof needs.
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
    change = rewrite(program, ReplaceStatements((loop,), made.statements), *made.others)
    fix = Fix(f"{made.title}, if {words}, as seen in the run ({run})", made.safety, change)
    return replace(fix, assumes=words)


def _vectorized(program: Program, loop: PlainLoop, assumed: Sequence[Assumption]) -> Vectorized | None:
    """What computes all steps at once where the assumptions hold; None where it can't be proved to."""
    try:
        return vectorize_where(program, loop, _all(assumed), copy.deepcopy(loop))
    except Blocked:
        return None


def _all(assumed: Sequence[Assumption]) -> ast.expr:
    tests = [copy.deepcopy(test) for each in assumed for test in operands(each.test, ast.And)]
    return new(ast.BoolOp(ast.And(), tests)) if len(tests) > 1 else tests[0]


def _assumptions(program: Program, loop: PlainLoop, seen: dict[str, Seen]) -> Iterator[Assumption]:
    """What may be assumed of the variables that a loop reads and leaves alone, where the program doesn't tell."""
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
    """Has the variable a value in front of the loop, which leaves it as it is: a parameter, or one assigned there?"""
    root = root_of(node)
    values = program.get(Flow).graph(root).definitions(root) if isinstance(root, ast.Name) else frozenset()
    return bool(values) and all(isinstance(each, Definition) for each in values)
