"""Reads the head of a loop: what its targets are when all steps are computed at once."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.analysis.loops.header import called
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, integer
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import expression, number
from perflint.transforms.vectorize.parted import parted
from perflint.transforms.vectorize.purity import invariant
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.steps import MANY, Index, Lifted, Steps


def bound(scope: Scope, loop: PlainLoop) -> Scope:
    """The scope in which the targets of `loop` have their values; raises Blocked."""
    if loop.orelse:
        raise Blocked("the loop has an else", loop)
    if isinstance(loop, ast.For):
        _bind(scope, loop.target, loop.iter)
    else:
        _bind_while(scope, loop)
    return replace(scope, targets=dict(scope.values))


def _bind(scope: Scope, target: ast.expr, walked: ast.expr) -> None:
    name = called(walked)
    if isinstance(walked, ast.Call) and scope.program.qualified(walked.func) == "builtins.range":
        _assign(scope, target, _counter(scope, walked))
    elif isinstance(walked, ast.Call) and name == "enumerate" and len(walked.args) == 1 and not walked.keywords:
        parts = _parts(target, 2)
        sequence = _bind_sequences(scope, parts[1], walked.args[0])
        _assign(scope, parts[0], Index(number(0), expression("{x}.size({axis})", x=sequence.code, axis=sequence.axis)))
    elif isinstance(walked, ast.Call) and scope.program.qualified(walked.func) == "builtins.reversed":
        raise Blocked("the loop goes backwards", walked)
    else:
        _bind_sequences(scope, target, walked)


def _bind_sequences(scope: Scope, target: ast.expr, walked: ast.expr) -> Steps:
    """Give `target` the steps of a sequence, or of several at once, by `zip`; the first of them."""
    if not isinstance(walked, ast.Call) or called(walked) != "zip" or walked.keywords:
        sequence = _sequence(scope, walked)
        _assign(scope, target, sequence)
        return sequence
    sequences = [_sequence(scope, each) for each in walked.args]
    if len({_length(scope, each) for each in walked.args}) != 1 or not _length(scope, walked.args[0]):
        raise Blocked("the sequences are not known to be equally long", walked)
    for part, sequence in zip(_parts(target, len(sequences)), sequences, strict=True):
        _assign(scope, part, sequence)
    return sequences[0]


def _bind_while(scope: Scope, loop: ast.While) -> None:
    """`while t < steps:`, where `t` begins at a constant and the last statement adds one."""
    test = loop.test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or not isinstance(test.ops[0], ast.Lt):
        raise Blocked("how often it runs is not told by its head", loop)
    name, stop = test.left, test.comparators[0]
    counted = loop.body[-1]
    names = [node for node in scope.facts.inside if isinstance(node, ast.Name) and node.id == name.id]
    stores = [node for node in names if isinstance(node.ctx, ast.Store)]
    first = _start(scope, loop, name)
    if not _adds_one(counted, name.id) or len(stores) != 1 or len(test.ops) > 1 or first is None or first < 0:
        raise Blocked("it does not count its steps from a constant, one by one", loop)
    scope.values[name.id] = _index(scope, number(first), stop)


def _adds_one(node: ast.stmt, name: str) -> bool:
    return (
        isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and getattr(node.target, "id", "") == name
        and integer(node.value) == 1
    )


def _start(scope: Scope, loop: ast.While, name: ast.Name) -> int | None:
    """The constant that the counter has in front of the loop."""
    start = scope.start(name)
    if start is None:
        return None
    same_block = scope.program.block_of(scope.program.statement_of(start)) is scope.program.block_of(loop)
    return integer(start) if same_block else None


def _parts(target: ast.expr, count: int) -> list[ast.expr]:
    if not isinstance(target, ast.Tuple | ast.List) or len(target.elts) != count:
        raise Blocked("the loop's targets are no plain names", target)
    return target.elts


def _assign(scope: Scope, target: ast.expr, value: Lifted) -> None:
    if not isinstance(target, ast.Name):
        raise Blocked("the loop's targets are no plain names", target)
    scope.values[target.id] = value


def _counter(scope: Scope, walked: ast.Call) -> Index:
    if walked.keywords or not 1 <= len(walked.args) <= 3:
        raise Blocked("the loop does not go forward step by step", walked)
    if len(walked.args) == 3 and (stride := integer(walked.args[2])) != 1:
        is_back = stride is not None and stride < 0
        raise Blocked(f"the loop goes {'backwards' if is_back else 'by more than one step at a time'}", walked)
    first = integer(walked.args[0]) if len(walked.args) > 1 else 0
    if first is None or first < 0:
        raise Blocked("the loop does not begin at a constant", walked)
    return _index(scope, number(first), walked.args[min(1, len(walked.args) - 1)])


def _index(scope: Scope, first: ast.expr, end: ast.expr) -> Index:
    _check_bound(scope, end)
    return Index(first, scope.code(end), end=end)


def _check_bound(scope: Scope, node: ast.expr) -> None:
    """Raise Blocked unless `node` gives the same whenever it is worked out."""
    if scope.varies(node):
        raise Blocked("the loop changes what it walks", node)
    invariant(scope, node)


def _sequence(scope: Scope, walked: ast.expr) -> Steps:
    steps = parted(scope, walked)
    _check_bound(scope, walked if steps is None else steps.whole)
    if steps is not None:
        rank = scope.rank(steps.whole)
        least, most = _axes(steps.axis + 1, rank, 0 if steps.kept else 1)
        return Steps(scope.code(steps.whole), steps.axis, least, most, steps.kept)
    if scope.program.value(walked).kind is not Kind.TENSOR or not scope.program.value(walked).sure:
        raise Blocked(f"{shown(scope.program, walked)} is not known to be a tensor", walked)
    return Steps(scope.code(walked), 0, *_axes(1, scope.rank(walked), 1))


def _axes(least: int, rank: int | None, fewer: int) -> tuple[int, int]:
    """How many axes one step has at least and at most, of a sequence of `rank` axes."""
    return (max(least, rank or 0) - fewer, MANY if rank is None else rank - fewer)


def _length(scope: Scope, walked: ast.expr) -> str:
    """The symbol of how many steps there are; empty where it is not known."""
    steps = parted(scope, walked)
    whole, axis = (walked, 0) if steps is None else (steps.whole, steps.axis)
    return scope.facts.shapes.shape(whole).size(axis)
