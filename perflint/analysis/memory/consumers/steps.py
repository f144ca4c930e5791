"""Reads what becomes of a tensor, by the steps for tensors, for containers of them, and those that both have."""

from __future__ import annotations

import ast

from perflint.analysis.ir.flow import Flow
from perflint.analysis.memory.consumers import containers, tensors
from perflint.analysis.memory.consumers.following import Follower, Step, Steps
from perflint.analysis.memory.consumers.roles import OutOfSight, Reading
from perflint.analysis.memory.consumers.trace import Trace


def reading(flow: Flow, node: ast.expr) -> Reading | None:
    """What happens to the value of `node`; None where that is not all in sight, or the tensor is written to."""
    follower = Follower(flow, _step_of)
    try:
        follower.follow(node, Trace())
    except OutOfSight:
        return None
    return Reading(
        tuple(follower.consumers), follower.measured, follower.converted, follower.shown, follower.unfinished
    )


def _step_of(parent: ast.AST, trace: Trace) -> Step | None:
    return _STEPS.get(type(parent)) or (containers if trace.inside else tensors).STEPS.get(type(parent))


def _assign(follower: Follower, parent: ast.Assign, node: ast.expr, trace: Trace) -> None:
    for target in parent.targets:
        follower.assigned(target, node, trace)


def _annotated(follower: Follower, parent: ast.AnnAssign, node: ast.expr, trace: Trace) -> None:
    follower.assigned(parent.target, node, trace)


def _named(follower: Follower, parent: ast.NamedExpr, node: ast.expr, trace: Trace) -> None:
    follower.assigned(parent.target, node, trace)
    follower.follow(parent, trace)


def _return(follower: Follower, parent: ast.Return, node: ast.expr, trace: Trace) -> None:
    follower.returned(parent, trace)


def _chosen(follower: Follower, parent: ast.IfExp, node: ast.expr, trace: Trace) -> None:
    if node is parent.test:
        raise OutOfSight
    follower.follow(parent, trace)


def _ignored(follower: Follower, parent: ast.Expr, node: ast.expr, trace: Trace) -> None:
    """A statement of its own does nothing with its value."""


def _collected(follower: Follower, parent: ast.Tuple | ast.List, node: ast.expr, trace: Trace) -> None:
    around = follower.program.parent(parent)
    if isinstance(around, ast.Subscript) and parent is around.slice:
        if trace.inside:
            raise OutOfSight
        tensors.index(follower, around, node)
        return
    starred = any(isinstance(each, ast.Starred) for each in parent.elts[: parent.elts.index(node)])
    follower.follow(parent, trace.into(None if starred else parent.elts.index(node), node))


def _element(follower: Follower, parent: ast.ListComp | ast.GeneratorExp, node: ast.expr, trace: Trace) -> None:
    follower.follow(parent, trace.into(None, node))


def _entry(follower: Follower, parent: ast.Dict, node: ast.expr, trace: Trace) -> None:
    key = next(key for key, value in zip(parent.keys, parent.values, strict=True) if value is node or key is node)
    if key is node or not isinstance(key, ast.Constant) or not isinstance(key.value, int | str):
        raise OutOfSight
    follower.follow(parent, trace.into(key.value, node))


_STEPS: Steps = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.NamedExpr: _named,
    ast.Return: _return,
    ast.IfExp: _chosen,
    ast.Expr: _ignored,
    ast.Tuple: _collected,
    ast.List: _collected,
    ast.ListComp: _element,
    ast.GeneratorExp: _element,
    ast.Dict: _entry,
}
