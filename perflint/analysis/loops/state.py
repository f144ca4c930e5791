"""Decides whether a loop-carried state is one that a torch RNN carries through a sequence itself."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.loops.calls import is_metadata, rnn_kind
from perflint.analysis.loops.flow import LoopFlow
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import Function, own_nodes, path_of


def is_carried_by_rnn(program: Program, flow: LoopFlow, name: str) -> bool:
    """Is `name` read as the state of an RNN or a Cell and nothing else, and what that returns handed on unchanged?"""
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
    if rnn_kind(program, call.func):
        states = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg in ("hx", "hidden"))]
        return not any(_mentions(argument, name) for argument in call.args[:1]) and all(
            _is_plain(state) for state in states
        )
    callee = program.callee(call)
    if callee is None:
        return False
    parameter = _parameter_for(program, call, callee, name)
    return bool(parameter) and _only_feeds_state(program, callee, parameter)


def _mentions(node: ast.AST, path: str) -> bool:
    return any(path_of(part) == path for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))


def _is_plain(node: ast.expr) -> bool:
    """Is it a state as it is, rather than one computed from another?"""
    if isinstance(node, ast.Tuple | ast.List):
        return all(_is_plain(part) for part in node.elts)
    if isinstance(node, ast.Subscript):
        return _is_plain(node.value)
    return bool(path_of(node))


def _parameter_for(program: Program, call: ast.Call, callee: Function, name: str) -> str:
    """The parameter of `callee` that gets the state called `name` in `call`, as it is."""
    for parameter, argument in program.arguments(call, callee).given.items():
        if _mentions(argument, name):
            return parameter if _is_plain(argument) else ""
    return ""


def _only_feeds_state(program: Program, function: Function, parameter: str) -> bool:
    """Does `function` hand its parameter to an RNN as the state, and use it for nothing else before?"""
    fed = False
    states: set[int] = set()
    for node in own_nodes(function):
        if (
            isinstance(node, ast.Call)
            and rnn_kind(program, node.func)
            and any(_mentions(argument, parameter) for argument in node.args[1:])
        ):
            if not all(_is_plain(argument) for argument in node.args[1:]):
                return False
            fed = True
            states |= {id(part) for argument in node.args[1:] for part in ast.walk(argument)}
        elif isinstance(node, ast.If | ast.Assert) or (isinstance(node, ast.expr) and is_metadata(node)):
            states |= {id(part) for part in ast.walk(node.test if isinstance(node, ast.If | ast.Assert) else node)}
    loads = [
        node
        for node in own_nodes(function)
        if isinstance(node, ast.Name) and node.id == parameter and isinstance(node.ctx, ast.Load)
    ]
    return fed and all(id(load) in states or _is_returned(program, load) for load in loads)


def _is_returned(program: Program, node: ast.expr) -> bool:
    return (
        isinstance(program.statement_of(node), ast.Return)
        and program.value(node).kind is not Kind.NUMBER
        and _is_plain_return(program, node)
    )


def _is_plain_return(program: Program, node: ast.expr) -> bool:
    parent = program.parent(node)
    return isinstance(parent, ast.Return) or (
        isinstance(parent, ast.Tuple) and isinstance(program.parent(parent), ast.Return)
    )
