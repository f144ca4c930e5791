"""Whether a part of a program is captured as a CUDA graph already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.program import Program
from perflint.analysis.values.classes import ClassInfo
from perflint.analysis.values.values import Value
from perflint.syntax.walk import Function, own_nodes
from perflint.transforms.capture.calls import called

RUNTIME = "perflint.runtime.graphs"
DISTRIBUTION = "perflint-torch"
COMPILERS = frozenset({"torch.compile", "torch._dynamo.optimize"})
_CAPTURES = frozenset(
    {f"{RUNTIME}.cuda_graph", f"{RUNTIME}.graphed_step", "torch.cuda.graph", "torch.cuda.make_graphed_callables"}
)


def is_captured(program: Program, node: ast.AST) -> bool:
    """Is `node` part of what a CUDA graph is captured of: by a decorator, a wrapper, or code around it?"""
    return "graph" in program.text and _is_captured(program, node, set())


def handed_over(program: Program, function: Function, takers: frozenset[str]) -> ast.Call | None:
    """The call of one of `takers` that is given the function, or a module which runs it as its forward."""
    calls = (call for call in program.of_type(ast.Call) if call.args and program.qualified(call.func) in takers)
    for call in calls:
        if any(_runs(program, value, function) for value in _items_of(program.value(call.args[0]))):
            return call
    return None


def _is_captured(program: Program, node: ast.AST, seen: set[ast.AST]) -> bool:
    function = program.function_of(node)
    if _is_captured_here(program, node, function):
        return True
    if function is None or function in seen:
        return False
    seen.add(function)
    decorators = getattr(function, "decorator_list", ())
    if any(program.qualified(called(each)) in _CAPTURES for each in decorators):
        return True
    return handed_over(program, function, _CAPTURES) is not None or _is_called_captured(program, function, seen)


def _is_captured_here(program: Program, node: ast.AST, function: Function | None) -> bool:
    """Does the function around `node` capture it by itself: in a `with`, or between the begin and the end of one?"""
    for parent in program.ancestors(node):
        if parent is function:
            break
        if isinstance(parent, ast.With):
            names = {program.qualified(called(item.context_expr)) for item in parent.items}
            if names & _CAPTURES:
                return True
    return function is not None and "capture_begin" in program.text and _begins_a_capture(function)


def _begins_a_capture(function: Function) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "capture_begin" for node in own_nodes(function))


def _is_called_captured(program: Program, function: Function, seen: set[ast.AST]) -> bool:
    """Is each call of the function captured, but for those that warm it up beside the capture?"""
    sites = program.call_sites(function)
    captured = [site for site in sites if _is_captured(program, site, seen)]
    beside = {program.function_of(site) for site in captured}
    return bool(captured) and all(site in captured or program.function_of(site) in beside for site in sites)


def _items_of(value: Value) -> Iterator[Value]:
    """A value, or each of several that are given as a tuple."""
    if value.items is None:
        yield value
    for item in value.items or ():
        yield from _items_of(item)


def _runs(program: Program, value: Value, function: Function) -> bool:
    """Is the value the function, or an instance of a class whose forward it is?"""
    if value.node is function:
        return True
    owner = program.class_of(function)
    if owner is None or getattr(function, "name", "") != "forward":
        return False
    return any(value.node is node for node in _inheriting(owner, "forward"))


def _inheriting(owner: ClassInfo, method: str) -> Iterator[ast.ClassDef]:
    """The class, and those that inherit this method of it."""
    yield owner.node
    for heir in owner.subclasses:
        if method not in heir.methods:
            yield from _inheriting(heir, method)
