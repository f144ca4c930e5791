"""Finds what was taken apart into its steps: where a loop walks them, or in front of the loop."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from perflint.analysis.loops.header import called, split_axis, split_base, split_size
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import integer, path_of
from perflint.transforms.blocked import Blocked
from perflint.transforms.shown import shown
from perflint.transforms.vectorize.scope import Scope


@dataclass(frozen=True)
class Parted:
    """`whole` was taken apart along `axis` into its steps; where it is `kept`, each still has that axis, of size 1."""

    whole: ast.expr
    axis: int
    kept: bool


def parted(scope: Scope, node: ast.expr) -> Parted | None:
    """What the steps that `node` holds were taken from; None where it is not known to hold any. Raises Blocked."""
    call = _given(scope, node) if isinstance(node, ast.Name) else node
    name = called(call) if call is not None else ""
    if not isinstance(call, ast.Call) or name not in ("split", "unbind", "chunk"):
        return None
    whole, axis = split_base(call), split_axis(call)
    rank = scope.rank(whole)
    if axis is None or (axis < 0 and rank is None):
        raise Blocked("the axis for time is not known", call)
    axis = axis if axis >= 0 else axis + (rank or 0)
    if not _are_single(scope, call, whole, axis):
        raise Blocked("several steps are taken at once", call)
    if call is not node:
        _check_unchanged(scope, call, whole)
    return Parted(whole, axis, kept=name != "unbind")


def _given(scope: Scope, name: ast.Name) -> ast.expr | None:
    """What `name` holds in all steps, given in front of the loop."""
    return scope.start(name) if scope.read(name) is None else None


def _are_single(scope: Scope, call: ast.Call, whole: ast.expr, axis: int) -> bool:
    """Is each part one step?"""
    if called(call) == "split":
        return integer(split_size(call)) == 1
    if called(call) == "unbind":
        return True
    count = split_size(call)
    is_tensor = scope.program.value(whole).kind is Kind.TENSOR
    return is_tensor and count is not None and scope.is_length(count, whole, axis)


def _check_unchanged(scope: Scope, call: ast.Call, whole: ast.expr) -> None:
    """Raise Blocked unless `whole` is still what was taken apart when the loop runs."""
    statement = scope.program.statement_of(call)
    block = scope.program.block_of(statement)
    since = block[block.index(statement) :]
    upto = next((place for place, each in enumerate(since) if scope.facts.loop in ast.walk(each)), None)
    is_own = isinstance(whole, ast.Name) and whole.id not in scope.facts.flow.bindings(call).shared
    nodes = (node for each in since[: (upto or 0) + 1] for node in ast.walk(each))
    if upto is None or not is_own or any(_changes(node, path_of(whole)) for node in nodes):
        raise Blocked(f"{shown(scope.program, whole)} may be another one than was taken apart", call)


def _changes(node: ast.AST, name: str) -> bool:
    """May `node` give `name` another value, or other axes?"""
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    if not isinstance(node, ast.Attribute) or path_of(node.value) != name:
        return False
    return not isinstance(node.ctx, ast.Load) or node.attr.endswith("_")
