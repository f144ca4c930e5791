"""The batching rules of a loop's head: its targets stand for all steps of what it walks."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from perflint.analysis.memory.roles import FILLS
from perflint.analysis.program import Program
from perflint.analysis.values.shapes import Shapes
from perflint.analysis.values.values import UNKNOWN, Kind, Value, join_all, sequence_of
from perflint.syntax.walk import PlainLoop, integer, path_of, receiver_of
from perflint.transforms.operations import assignment, expression, number, reference, statement, tuple_of
from perflint.transforms.rewrite import Blocked, shown
from perflint.transforms.vectorize import values
from perflint.transforms.vectorize.indexing import split_of
from perflint.transforms.vectorize.modules import check_invariant
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import MANY, Batched, Induction


def with_targets(scope: Scope, loop: PlainLoop) -> Scope:
    if loop.orelse:
        raise Blocked("the loop has an else", loop)
    if not isinstance(loop, ast.For):
        raise Blocked("how often it runs is not told by its head", loop)
    _bind(scope, loop.target, loop.iter)
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
    """Give `target` the steps of a sequence, or of several by `zip`; the first of them."""
    is_zip = isinstance(walked, ast.Call) and scope.program.qualified(walked.func) == "builtins.zip"
    if not isinstance(walked, ast.Call) or not is_zip or walked.keywords:
        return _bind_sequence(scope, target, walked)
    lengths = [_length(scope, each) for each in walked.args]
    ends: list[ast.expr | None] = [None] * len(lengths)
    if len({*lengths}) != 1 or not lengths[0]:
        if any(split_of(scope, each) is not None for each in walked.args):
            raise Blocked("the sequences are not known to be equally long", walked)
        ends = [*_ends(scope, walked.args)]
    parts = zip(_targets(target, len(lengths)), walked.args, ends, strict=True)
    found = [_bind_sequence(scope, part, each, end) for part, each, end in parts]
    return found[0]


def _ends(scope: Scope, walked: Sequence[ast.expr]) -> list[ast.expr]:
    """Where each of several sequences ends if all are walked as far as the shortest one goes."""
    lengths = [expression("len({x})", x=scope.code(each)) for each in walked]
    if len(lengths) == 2:
        return lengths[::-1]
    shortest = scope.bound(expression("min({*lengths})", lengths=lengths), "length")
    return [reference(shortest) for _ in walked]


def _bind_sequence(scope: Scope, target: ast.expr, walked: ast.expr, end: ast.expr | None = None) -> Batched:
    """Give `target` the steps of a sequence, up to an `end`, if there is one before its own."""
    value = _filled(scope.program, walked)
    if value.kind is not Kind.SEQUENCE or split_of(scope, walked) is not None:
        sequence = _sequence(scope, walked, end)
        _assign(scope, target, sequence)
        return sequence
    item, parts = value.item, [target]
    items = [item] if item is not None else []
    if item is not None and item.kind is Kind.SEQUENCE and item.items is not None:
        items, parts = [*item.items], _targets(target, len(item.items))
    if not items or any(each.kind is not Kind.TENSOR or not each.sure for each in items):
        raise Blocked(f"{shown(scope.program, walked)} is not known to hold tensors", walked)
    found = [_stacked(scope, part, each) for part, each in zip(parts, _apart(scope, parts, walked, end), strict=True)]
    return found[0]


def _filled(program: Program, walked: ast.expr) -> Value:
    """The value of what is walked: of a list that is an attribute, by all that the file puts into one of that name."""
    value, calls = program.value(walked), program.of_type(ast.Call)
    is_list = value.kind is Kind.SEQUENCE and (value.item is None or value.item.is_blank)
    if not isinstance(walked, ast.Attribute) or not (is_list or value.kind in (Kind.UNKNOWN, Kind.METHOD)):
        return value
    named = [each for each in program.of_type(ast.Attribute) if each.attr == walked.attr]
    filled = [each for each in calls if receiver_of(each, *FILLS) in named]
    items = [program.value(each.args[0]) if receiver_of(each, "append") else UNKNOWN for each in filled]
    are_lists = all(program.value(each).kind is Kind.SEQUENCE for each in named if isinstance(each.ctx, ast.Store))
    return sequence_of(join_all(items)) if items and are_lists else value


def _stacked(scope: Scope, target: ast.expr, tensors: ast.expr) -> Batched:
    if path_of(target) in scope.facts.live_out:
        raise Blocked(f"`{path_of(target)}` is read after the loop", target)
    name = scope.draft.taken.fresh(f"{path_of(target)}s")
    stacked = expression("{torch}.stack({x})", torch=scope.facts.torch, x=tensors)
    scope.draft.before.append(assignment(name, stacked))
    steps = Batched(reference(name), 0, 0, dense=True)
    _assign(scope, target, steps)
    return steps


def _apart(scope: Scope, parts: list[ast.expr], walked: ast.expr, end: ast.expr | None) -> list[ast.expr]:
    """The tensors of a list, or the columns of a list of tuples of them, up to an `end`."""
    _check_bound(scope, walked)
    if not scope.facts.torch or not path_of(walked):
        raise Blocked(f"{shown(scope.program, walked)} is not known to be a list", walked)
    scope.draft.changes.add(f"it fails if the tensors in {shown(scope.program, walked)} differ in shape")
    whole = _up_to(scope, walked, end)
    if len(parts) == 1:
        return [whole]
    names = [scope.draft.taken.fresh(f"all_{path_of(each)}s") for each in parts]
    columns = statement("{names} = zip(*{x})", names=tuple_of(names, ast.Store()), x=whole)
    scope.draft.before.append(columns)
    return [reference(each) for each in names]


def _up_to(scope: Scope, walked: ast.expr, end: ast.expr | None) -> ast.expr:
    code = scope.code(walked)
    return code if end is None else expression("{x}[: {end}]", x=code, end=end)


def _targets(target: ast.expr, count: int) -> list[ast.expr]:
    if not isinstance(target, ast.Tuple | ast.List) or len(target.elts) != count:
        raise Blocked("the loop's targets are no plain names", target)
    return target.elts


def _assign(scope: Scope, target: ast.expr, value: values.Value) -> None:
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
    if scope.varies(node):
        raise Blocked("the loop changes what it walks", node)
    check_invariant(scope, node)


def _sequence(scope: Scope, walked: ast.expr, end: ast.expr | None = None) -> Batched:
    split = split_of(scope, walked)
    whole, axis, fewer = (walked, 0, 1) if split is None else (split.whole, split.axis, 0 if split.kept else 1)
    _check_bound(scope, whole)
    value, rank = scope.program.value(walked), scope.rank(whole)
    if split is None and (value.kind is not Kind.TENSOR or not value.sure):
        raise Blocked(f"{shown(scope.program, walked)} is not known to be a tensor", walked)
    least, most = max(axis + 1, rank or 0) - fewer, MANY if rank is None else rank - fewer
    return Batched(_up_to(scope, whole, end), axis, least, most, kept=not fewer)


def _length(scope: Scope, walked: ast.expr) -> str:
    split = split_of(scope, walked)
    whole, axis = (walked, 0) if split is None else (split.whole, split.axis)
    return scope.program.get(Shapes).shape(whole).size(axis)
