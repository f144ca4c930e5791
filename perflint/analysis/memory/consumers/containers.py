"""The steps from a list, tuple or mapping that holds a tensor to what takes it out."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.analysis.memory.consumers.following import Follower, Steps
from perflint.analysis.memory.consumers.roles import OutOfSight, Role, joins
from perflint.analysis.memory.consumers.trace import Key, Trace

_ONLY_LOOK = frozenset({"builtins.len", "builtins.isinstance", "builtins.print", "builtins.type", "builtins.range"})
_SAME_ITEMS = frozenset({"builtins.list", "builtins.tuple"})
_GROWING = frozenset({"append", "extend", "insert"})


def _attribute(follower: Follower, parent: ast.Attribute, node: ast.expr, trace: Trace) -> None:
    """Only what puts more into it is known to leave the tensor where it is, unless that goes in front of it."""
    call = follower.program.parent(parent)
    shifts = parent.attr == "insert" and trace.inside[0] is not None
    if shifts or parent.attr not in _GROWING or not isinstance(call, ast.Call) or call.func is not parent:
        raise OutOfSight


def _subscript(follower: Follower, parent: ast.Subscript, node: ast.expr, trace: Trace) -> None:
    if node is not parent.value:
        raise OutOfSight
    if not isinstance(parent.ctx, ast.Load):
        return  # another item is put into it, or taken away
    if isinstance(parent.slice, ast.Slice):
        follower.follow(parent, _anywhere(trace))
    elif _may_be(trace.inside[0], parent.slice):
        follower.follow(parent, trace.out())


def _may_be(key: Key, index: ast.expr) -> bool:
    """May the index be the key? One that is counted from the end may be any."""
    return key is None or not isinstance(index, ast.Constant) or index.value == key


def _anywhere(trace: Trace) -> Trace:
    return replace(trace, inside=(None, *trace.inside[1:]))


def _iterated(follower: Follower, parent: ast.For | ast.comprehension, node: ast.expr, trace: Trace) -> None:
    if node is not parent.iter or isinstance(trace.inside[0], str):
        raise OutOfSight
    follower.assigned(parent.target, node, trace.out())


def _joined(follower: Follower, parent: ast.BinOp, node: ast.expr, trace: Trace) -> None:
    in_front = isinstance(parent.op, ast.Add) and node is parent.left
    follower.follow(parent, trace if in_front else _anywhere(trace))


def _grown(follower: Follower, parent: ast.AugAssign, node: ast.expr, trace: Trace) -> None:
    follower.assigned(parent.target, node, _anywhere(trace))


def _spread(follower: Follower, parent: ast.Starred, node: ast.expr, trace: Trace) -> None:
    around = follower.program.parent(parent)
    if not isinstance(around, ast.List | ast.Tuple):
        raise OutOfSight
    follower.follow(around, _anywhere(trace))


def _argument(follower: Follower, call: ast.Call, node: ast.expr, trace: Trace) -> None:
    program = follower.program
    callee, name = program.callee(call), program.qualified(call.func)
    if node is call.func:
        raise OutOfSight
    if callee is not None:
        follower.into(callee, call, node, trace, "")
    elif joins(name) and len(trace.inside) == 1 and trace.tensor is not None:
        follower.consume(call, trace.tensor, Role.READ)
    elif name in _SAME_ITEMS:
        follower.follow(call, trace)
    elif name == "builtins.enumerate":
        follower.follow(call, replace(trace, inside=(None, 1, *trace.inside[1:])))
    elif name == "builtins.zip":
        follower.follow(call, replace(trace, inside=(None, call.args.index(node), *trace.inside[1:])))
    elif isinstance(call.func, ast.Attribute) and call.func.attr in _GROWING and isinstance(call.func.value, ast.Name):
        follower.put(call.func.value, node, None, trace.out() if call.func.attr == "extend" else trace)
    elif name not in _ONLY_LOOK:
        raise OutOfSight


def _keyword(follower: Follower, parent: ast.keyword, node: ast.expr, trace: Trace) -> None:
    call = follower.program.parent(parent)
    callee = follower.program.callee(call) if isinstance(call, ast.Call) else None
    if callee is None or parent.arg is None or not isinstance(call, ast.Call):
        raise OutOfSight
    follower.into(callee, call, node, trace, parent.arg)


STEPS: Steps = {
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.For: _iterated,
    ast.comprehension: _iterated,
    ast.BinOp: _joined,
    ast.AugAssign: _grown,
    ast.Starred: _spread,
    ast.Call: _argument,
    ast.keyword: _keyword,
}
