"""Finds state that objects carry from call to call."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import TypeGuard

from perflint.analysis.facts import Program
from perflint.analysis.loops.header import called
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import Function, Loop, own_nodes, path_of

# what any module can do: none of it begins a sequence
_MODULE_METHODS = frozenset(
    "train eval to cuda cpu float half double bfloat16 type zero_grad requires_grad_ load_state_dict apply share_memory"
    " register_buffer register_parameter register_forward_hook add_module compile freeze unfreeze load save".split()
)

_NO_STATE = frozenset({Kind.NUMBER, Kind.MODULE, Kind.STRING})


def prepared_objects(program: Program, loop: Loop) -> frozenset[str]:
    """What has an attribute set, or a method called for its effect, in the function before `loop`."""
    found = set()
    for node in own_nodes(program.function_of(loop) or program.tree):
        if not isinstance(node, ast.Assign | ast.Expr) or node.lineno > loop.lineno:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [_effect(node)]:
            if isinstance(target, ast.Attribute):
                found.add(path_of(target.value))
    return frozenset(found - {"", "self"})


def _effect(node: ast.Expr) -> ast.expr | None:
    """The method that is called, if it is one that only what is called has."""
    function = node.value.func if isinstance(node.value, ast.Call) else None
    return function if isinstance(function, ast.Attribute) and function.attr not in _MODULE_METHODS else None


def object_state(program: Program, function: Function, depth: int = 2) -> set[str]:
    """The attributes of self that `function` reads before it certainly writes them: they carry state between calls."""
    found = {f"self.{name}" for name in _stored_after_read(program, function)}
    for node in own_nodes(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        inner = program.callee(node) if depth and path_of(node.func.value) == "self" else None
        if inner is not None and inner is not function and program.value(node.func).kind is not Kind.MODULE:
            found |= object_state(program, inner, depth - 1)
    return found


def _stored_after_read(program: Program, function: Function) -> set[str]:
    attributes = [node for node in own_nodes(function) if isinstance(node, ast.Attribute)]
    own = [node for node in attributes if path_of(node.value) == "self"]
    fit = _kept_while_fit(function)
    stores = [node for node in own if isinstance(node.ctx, ast.Store) and node.attr not in fit]
    loads = [node for node in own if isinstance(node.ctx, ast.Load)]
    found = set()
    for name in {node.attr for node in stores}:
        reads = [node.lineno for node in loads if node.attr == name and program.value(node).kind not in _NO_STATE]
        certain = [node.lineno for node in stores if node.attr == name and not _is_optional(program, node, function)]
        last = max(node.lineno for node in stores if node.attr == name)
        if reads and min(reads) <= min([*certain, last]):
            found.add(name)
    return found


def _is_optional(program: Program, node: ast.AST, function: Function) -> bool:
    """Does a test decide whether `node` runs?"""
    around = itertools.takewhile(lambda each: each is not function, program.ancestors(node))
    return any(isinstance(each, ast.If) for each in around)


def _kept_while_fit(function: Function) -> set[str]:
    """The attributes of self that `function` only sets where a test of them says so, as it does with a cache."""
    found = set()
    for node in own_nodes(function):
        if isinstance(node, ast.If):
            tested = {path_of(part) for part in ast.walk(node.test) if isinstance(part, ast.Attribute)}
            inside = [part for statement in node.body for part in own_nodes(statement)]
            found |= tested & {path_of(part) for part in inside if _is_store(part)}
    stores = [path_of(node) for node in own_nodes(function) if _is_store(node)]
    return {path.removeprefix("self.") for path in found if stores.count(path) == 1}


def _is_store(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def is_parameter(program: Program, node: ast.expr) -> bool:
    """Is it an attribute that the class sets to a torch.nn.Parameter, or a part of one?"""
    function = program.function_of(node)
    while isinstance(node, ast.Subscript):
        node = node.value
    owner = program.class_of(function) if function is not None else None
    path = path_of(node)
    if owner is None or not path.startswith("self."):
        return False
    assigned = (
        each
        for each in own_nodes_of_class(owner.node)
        if isinstance(each, ast.Assign) and any(path_of(target) == path for target in each.targets)
    )
    return any(
        called(part).endswith("Parameter")
        for each in assigned
        for part in ast.walk(each.value)
        if isinstance(part, ast.Call)
    )


def own_nodes_of_class(node: ast.ClassDef) -> Iterator[ast.AST]:
    """The nodes of a class's methods."""
    for statement in node.body:
        yield from own_nodes(statement)
