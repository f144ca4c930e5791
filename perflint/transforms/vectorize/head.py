"""Reads the head of a loop: what its targets are when all steps are computed at once."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import PlainLoop, integer, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.template import expression, number
from perflint.transforms.vectorize.indexing import split_of
from perflint.transforms.vectorize.invariants import check_invariant
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Induction, Value


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
    name = scope.program.qualified(walked.func) if isinstance(walked, ast.Call) else ""
    call = walked if isinstance(walked, ast.Call) else ast.Call(walked, [], [])
    if name == "builtins.range":
        _assign(scope, target, _counter(scope, call))
    elif name == "builtins.enumerate" and len(call.args) == 1 and not call.keywords:
        parts = _targets(target, 2)
        sequence = _bind_sequences(scope, parts[1], call.args[0])
        stop = expression("{x}.size({axis})", x=sequence.code, axis=sequence.axis)
        _assign(scope, parts[0], Induction(number(0), stop))
    elif name == "builtins.reversed":
        raise Blocked("the loop goes backwards", walked)
    else:
        _bind_sequences(scope, target, walked)


def _bind_sequences(scope: Scope, target: ast.expr, walked: ast.expr) -> Batched:
    """Give `target` the steps of a sequence, or of several at once, by `zip`; the first of them."""
    is_zip = isinstance(walked, ast.Call) and scope.program.qualified(walked.func) == "builtins.zip"
    if not isinstance(walked, ast.Call) or not is_zip or walked.keywords:
        sequence = _sequence(scope, walked)
        _assign(scope, target, sequence)
        return sequence
    sequences = [_sequence(scope, each) for each in walked.args]
    if len({_length(scope, each) for each in walked.args}) != 1 or not _length(scope, walked.args[0]):
        raise Blocked("the sequences are not known to be equally long", walked)
    for part, sequence in zip(_targets(target, len(sequences)), sequences, strict=True):
        _assign(scope, part, sequence)
    return sequences[0]


def _bind_while(scope: Scope, loop: ast.While) -> None:
    """`while t < steps:`, where `t` begins at a constant and the last statement adds one."""
    test = loop.test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or not isinstance(test.ops[0], ast.Lt):
        raise Blocked("how often it runs is not told by its head", loop)
    name, stop = test.left, test.comparators[0]
    stores = [node for node in scope.uses(name.id, inside=True) if isinstance(node.ctx, ast.Store)]
    first = _start(scope, loop, name)
    if not _adds_one(loop.body[-1], name.id) or len(stores) != 1 or len(test.ops) > 1 or first is None or first < 0:
        raise Blocked("it does not count its steps from a constant, one by one", loop)
    scope.values[name.id] = _induction(scope, number(first), stop)


def _adds_one(node: ast.stmt, name: str) -> bool:
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
        return False
    return path_of(node.target) == name and integer(node.value) == 1


def _start(scope: Scope, loop: ast.While, name: ast.Name) -> int | None:
    """The constant that the counter has before the loop."""
    start = scope.start(name)
    if start is None:
        return None
    same_block = scope.program.block_of(scope.program.statement_of(start)) is scope.program.block_of(loop)
    return integer(start) if same_block else None


def _targets(target: ast.expr, count: int) -> list[ast.expr]:
    if not isinstance(target, ast.Tuple | ast.List) or len(target.elts) != count:
        raise Blocked("the loop's targets are no plain names", target)
    return target.elts


def _assign(scope: Scope, target: ast.expr, value: Value) -> None:
    if not isinstance(target, ast.Name):
        raise Blocked("the loop's targets are no plain names", target)
    scope.values[target.id] = value


def _counter(scope: Scope, walked: ast.Call) -> Induction:
    if walked.keywords or not 1 <= len(walked.args) <= 3:
        raise Blocked("the loop does not go forward step by step", walked)
    if len(walked.args) == 3 and (stride := integer(walked.args[2])) != 1:
        is_back = stride is not None and stride < 0
        raise Blocked(f"the loop goes {'backwards' if is_back else 'by more than one step at a time'}", walked)
    first = integer(walked.args[0]) if len(walked.args) > 1 else 0
    if first is None or first < 0:
        raise Blocked("the loop does not begin at a constant", walked)
    return _induction(scope, number(first), walked.args[min(1, len(walked.args) - 1)])


def _induction(scope: Scope, first: ast.expr, end: ast.expr) -> Induction:
    _check_bound(scope, end)
    return Induction(first, scope.code(end), end=end)


def _check_bound(scope: Scope, node: ast.expr) -> None:
    """Raise Blocked unless `node` gives the same whenever it is computed."""
    if scope.varies(node):
        raise Blocked("the loop changes what it walks", node)
    check_invariant(scope, node)


def _sequence(scope: Scope, walked: ast.expr) -> Batched:
    split = split_of(scope, walked)
    whole, axis, fewer = (walked, 0, 1) if split is None else (split.whole, split.axis, 0 if split.kept else 1)
    _check_bound(scope, whole)
    value, rank = scope.program.value(walked), scope.rank(whole)
    if split is None and (value.kind is not Kind.TENSOR or not value.sure):
        raise Blocked(f"{shown(scope.program, walked)} is not known to be a tensor", walked)
    least, most = max(axis + 1, rank or 0) - fewer, MANY if rank is None else rank - fewer
    return Batched(scope.code(whole), axis, least, most, kept=not fewer)


def _length(scope: Scope, walked: ast.expr) -> str:
    """The symbol of how many steps there are; empty where it is not known."""
    split = split_of(scope, walked)
    whole, axis = (walked, 0) if split is None else (split.whole, split.axis)
    return scope.program.get(Shapes).shape(whole).size(axis)
