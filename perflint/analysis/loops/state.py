"""Decides whether a loop-carried state is one that a torch RNN carries through a sequence itself."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.loops.calls import is_metadata, rnn_kind
from perflint.analysis.loops.flow import LoopFlow
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import Function, own_nodes, path_of


def is_carried_by_rnn(program: Program, flow: LoopFlow, name: str) -> bool:
    """Is `name` read as the state of an RNN or a Cell alone, and loop-carried as what that returns, unchanged?"""
    end = flow.ends[name]
    returned = {call for call, _ in end.definitions}
    calls = [call for call in flow.calls if any(given == name for given, _ in call.direct)]
    if not calls or not all(_takes_state(program, call.node, name) for call in calls):
        return False
    if not any(id(call.node) in returned for call in calls):
        return False
    inside = {id(part) for call in calls for part in ast.walk(call.node)}
    return all(id(read) in inside for read in flow.reads.get(name, ()))


def rnn_name(flow: LoopFlow) -> str:
    """How the program calls the module that carries the state."""
    names = [path_of(call.node.func) for call in flow.calls if call.sort.model and call.direct]
    return names[0] if names and names[0] else "the RNN"


def unseen_name(program: Program, flow: LoopFlow) -> str:
    """How the program calls what carries the state, where the file does not define it: it may be an RNN."""
    for call in flow.calls:
        seen = rnn_kind(program, call.node.func) or program.callee(call.node) is not None
        if call.sort.model and call.direct and not seen and path_of(call.node.func):
            return path_of(call.node.func)
    return ""


def _takes_state(program: Program, call: ast.Call, name: str) -> bool:
    """Is what is called an RNN, or a function that hands it to one, and uses it for nothing else?"""
    if rnn_kind(program, call.func):
        states = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg in ("hx", "hidden"))]
        is_input = any(_mentions(argument, name) for argument in call.args[:1])
        return not is_input and all(map(_is_unchanged_state, states))
    callee = program.callee(call)
    given = program.arguments(call, callee).given.items() if callee is not None else ()
    taken = [(parameter, argument) for parameter, argument in given if _mentions(argument, name)]
    if callee is None or not taken or not all(_is_unchanged_state(argument) for _, argument in taken):
        return False
    return all(_only_feeds_state(program, callee, parameter) for parameter, _ in taken)


def _only_feeds_state(program: Program, function: Function, parameter: str) -> bool:
    """Does `function` hand its parameter to an RNN as the state, test it and return it, and nothing else?"""
    loads = [node for node in own_nodes(function) if isinstance(node, ast.Name) and node.id == parameter]
    uses = [_use(program, node) for node in loads if isinstance(node.ctx, ast.Load)]
    return "state" in uses and "" not in uses


def _use(program: Program, node: ast.expr) -> str:
    """What `node` is used for: as the "state" of an RNN, for a "test" of it or its size, "returned"; "" for others."""
    child: ast.AST = node
    for parent in program.ancestors(node):
        if isinstance(parent, ast.Call) and rnn_kind(program, parent.func) and child in parent.args[1:]:
            return "state"
        if isinstance(parent, ast.Return):
            return "returned" if program.value(node).kind is not Kind.NUMBER else ""
        if isinstance(parent, ast.If | ast.Assert) or (isinstance(parent, ast.expr) and is_metadata(parent)):
            return "test"
        if not isinstance(parent, ast.Tuple | ast.List | ast.Subscript | ast.Compare | ast.UnaryOp | ast.BoolOp):
            return ""
        child = parent
    return ""


def _mentions(node: ast.AST, path: str) -> bool:
    return any(path_of(part) == path for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))


def _is_unchanged_state(node: ast.expr) -> bool:
    """Is it a state as it is, rather than one computed from another?"""
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(_is_unchanged_state, node.elts))
    return _is_unchanged_state(node.value) if isinstance(node, ast.Subscript) else bool(path_of(node))
