"""Whether a part of a program is captured as a CUDA graph already."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.graphing.modes import referred
from perflint.program.walk import FUNCTIONS

if TYPE_CHECKING:
    from perflint.program import Program

RUNTIME = "perflint.runtime.graphs"
_CAPTURES = frozenset({f"{RUNTIME}.cuda_graph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"})


def is_captured(program: Program, node: ast.AST) -> bool:
    """Is `node` part of what a CUDA graph is captured of: by a decorator, a wrapper, or a `with` around it?"""
    return _is_captured(program, node, set())


def _is_captured(program: Program, node: ast.AST, seen: set[ast.AST]) -> bool:
    if "graph" not in program.text:
        return False
    for parent in program.ancestors(node):
        if isinstance(parent, ast.With):
            names = {program.qualified(referred(item.context_expr)) for item in parent.items}
            if names & _CAPTURES:
                return True
        if isinstance(parent, FUNCTIONS):
            if parent in seen:
                return False
            seen.add(parent)
            return _is_captured_function(program, parent, seen)
    return False


def _is_captured_function(program: Program, function: ast.AST, seen: set[ast.AST]) -> bool:
    if any(program.qualified(referred(each)) in _CAPTURES for each in getattr(function, "decorator_list", ())):
        return True
    wrapped = {
        program.value(argument).node
        for call in program.of_type(ast.Call)
        if call.args and program.qualified(call.func) in _CAPTURES
        for argument in call.args[:1]
    }
    if function in wrapped:
        return True
    assert isinstance(function, FUNCTIONS)
    sites = program.call_sites(function)
    return bool(sites) and all(_is_captured(program, site, seen) for site in sites)
