"""The batching rule of what no other rule batches: torch.vmap of the expression, on the steps that it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.memory.dispatch import is_scripted
from perflint.analysis.program import Kind, Place
from perflint.syntax.walk import elements_of, integer
from perflint.transforms.host_reads import item_of
from perflint.transforms.operations import FIT, derived, expression, in_rows, new
from perflint.transforms.rewrite import shown
from perflint.transforms.vectorize.axes import NEED_NO_RESULT
from perflint.transforms.vectorize.modules import called_operation, check_invariant, module_of
from perflint.transforms.vectorize.scope import Scope
from perflint.transforms.vectorize.values import Batched

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.MatMult)
_MAPPED = frozenset({"pointwise", "reduction", "matmul", "same_shape", "view", "cast", "indexing"})
_NOT_MAPPED = frozenset({"random", "factory", "pairing", "counting"})
_SHARING = frozenset({"view", "keeping", "cast", "move"})  # whose result may be what they are given
_LONG = 36


def mapped(scope: Scope, node: ast.expr) -> Batched | None:
    """All steps of `node` by torch.vmap, where it computes one tensor of them; raises Blocked."""
    if scope.callee is not None or not scope.facts.torch or is_scripted(scope.program):
        return None
    if (copied := _copied(scope, node)) is not None:
        value = scope.tensor(copied)
        code = expression("{x}.detach().reshape(-1, 1)", x=value.code)
        return Batched(code, 0, 1, 1) if isinstance(value, Batched) and not value.axis else None
    if not _computes(scope, node):
        return None
    names = [*dict.fromkeys(each.id for each in _steps(scope, node))]
    steps = [each for each in map(scope.values.get, names) if isinstance(each, Batched)]
    if not names or len(steps) < len(names):
        return None
    arguments = new(ast.arguments([], [new(ast.arg(each)) for each in names], None, [], [], None, []))
    function = new(ast.Lambda(arguments, derived(node, dict(_read_there(scope, node)))))
    given = [each.in_front().code for each in steps]
    call = expression("{torch}.vmap({f})({*steps})", torch=scope.facts.torch, f=function, steps=given)
    is_long = sum(len(ast.unparse(each)) for each in given) > _LONG
    code = in_rows(call, len(steps) if is_long else FIT)
    is_plain = not any(isinstance(each, ast.Call | ast.Subscript) for each in ast.walk(node))
    is_dense = is_plain and all((each.dense and not each.axis) or not each.most for each in steps)
    is_fresh = isinstance(node, ast.BinOp) and isinstance(node.op, NEED_NO_RESULT)
    return Batched(code, 0, 0, dense=is_dense, own=True, fresh=is_fresh)


def _steps(scope: Scope, node: ast.expr) -> Iterator[ast.Name]:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name) and scope.varies(each))
    yield from sorted(names, key=lambda each: (each.lineno, each.col_offset))


def _read_there(scope: Scope, node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is written in a function of torch.vmap where a step reads a number on the host."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and (tensor := item_of(each)) is not None:
            scope.draft.changes.add(f"{shown(scope.program, each)} stays a tensor, with its own type")
            yield each, expression("{x}.detach().reshape(())", x=tensor)
        elif isinstance(each, ast.Call) and (copied := _copied(scope, each)) is not None:
            yield each, expression("{x}.detach().reshape(1)", x=copied)


def _copied(scope: Scope, node: ast.expr) -> ast.expr | None:
    """The step whose one number is copied into a new tensor on the host, where it is: `torch.tensor([step])`."""
    call = scope.program.call_of(node, "torch.tensor")
    parts = call.args[0] if call is not None and len(call.args) == 1 and not call.keywords else None
    if not isinstance(parts, ast.List) or len(parts.elts) != 1 or not scope.varies(parts):
        return None
    value = scope.program.value(parts.elts[0])
    is_there = value.kind is Kind.TENSOR and value.sure and value.place is Place.HOST
    return parts.elts[0] if is_there else None


def _computes(scope: Scope, node: ast.expr, *, is_part: bool = False) -> bool:
    """Does it compute a new tensor of steps, or is it such a step, or the same in all steps, where it `is_part`?"""
    if not scope.varies(node):
        check_invariant(scope, node)
        return is_part
    if isinstance(node, ast.Name):
        return is_part and isinstance(scope.read(node), Batched)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _computes(scope, node.operand, is_part=True)
    if isinstance(node, ast.BinOp):
        is_known = isinstance(node.op, _OPERATORS)
        return is_known and all(_is_operand(scope, each, node) for each in (node.left, node.right))
    if isinstance(node, ast.Subscript):
        is_basic = all(isinstance(each, ast.Slice) or integer(each) is not None for each in elements_of(node.slice))
        is_invariant = not scope.varies(node.slice)
        return is_part and is_basic and is_invariant and _computes(scope, node.value, is_part=True)
    return isinstance(node, ast.Call) and _is_known(scope, node, is_part=is_part)


def _is_operand(scope: Scope, node: ast.expr, around: ast.BinOp) -> bool:
    """May it be computed for all steps, or be a number that is read of one, and meets a tensor?"""
    if (tensor := item_of(node)) is None:
        return _computes(scope, node, is_part=True)
    other = scope.program.value(around.right if around.left is node else around.left)
    return other.kind is Kind.TENSOR and other.sure and _computes(scope, tensor, is_part=True)


def _is_known(scope: Scope, node: ast.Call, *, is_part: bool) -> bool:
    given = [*node.args, *(each.value for each in node.keywords)]
    if (module := module_of(scope.program, node.func)) is not None:
        is_pure = not scope.varies(node.func) and module.is_function(scope.program)
        return is_pure and all(_computes(scope, each, is_part=True) for each in given)
    if (copied := _copied(scope, node)) is not None:
        return _computes(scope, copied, is_part=True)
    found = called_operation(scope, node)
    if found is None or found.tensor is None or scope.program.value(node).kind is not Kind.TENSOR:
        return False
    does = found.does
    if does.result != "tensor" or does.in_place or does.syncs or does.traits.isdisjoint(_MAPPED):
        return False
    if does.traits & _NOT_MAPPED or (not is_part and (does.shares or does.traits & _SHARING)):
        return False
    if any(isinstance(each, ast.Constant) and isinstance(each.value, bool) for each in found.arguments):
        return False  # it may ask for a change in place
    parts = [found.tensor, *found.arguments, *(each.value for each in node.keywords)]
    return all(_computes(scope, each, is_part=True) for each in parts)
