"""Under which names a function reaches the memory of a tensor, and what writes to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import api
from perflint.api import Function, Program

_DEPTH = 2


def names_of(function: ast.AST, path: str) -> frozenset[str]:
    """`path`, and each variable or attribute that is assigned a view of it, or of which it is assigned one."""
    pairs = [
        {api.path_of(target), api.path_of(viewed(value))}
        for each in api.own_nodes(function)
        if isinstance(each, ast.Assign)
        for target, value in _assignments(each)
    ]
    names, before = {path}, 0
    while len(names) > before:
        before = len(names)
        for pair in pairs:
            if "" not in pair and not names.isdisjoint(pair):
                names |= pair
    return frozenset(names)


def _assignments(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if not isinstance(target, ast.Tuple | ast.List):
            yield target, node.value
        elif isinstance(node.value, ast.Tuple | ast.List) and len(node.value.elts) == len(target.elts):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:  # `first, rest = x.split(1)`
            yield from ((each, node.value) for each in target.elts)


def viewed(node: ast.expr) -> ast.expr:
    """The tensor whose memory `node` may show; `node` itself where it is no view."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_view(node.func.attr):
            is_function = api.path_of(node.func.value) == "torch"
            if is_function and not node.args:
                return node
            node = node.args[0] if is_function else node.func.value
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "data")):
            node = node.value
        else:
            return node


def _is_view(method: str) -> bool:
    entry = api.torch_method(method)
    return entry is not None and entry.shares


def writes(program: Program, node: ast.AST, name: str, depth: int = _DEPTH) -> bool:
    """Does `node` itself write to the tensor `name`, or hand it to a function of the file that does?"""
    if isinstance(node, ast.AugAssign):
        return api.path_of(viewed(node.target)) == name
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Subscript) and api.path_of(viewed(each)) == name for each in node.targets)
    if not isinstance(node, ast.Call):
        return False
    callee = program.callee(node)
    if callee is not None:
        return depth > 0 and any(
            writes(program, inner, each, depth - 1)
            for each in _names_within(program, callee, node, name)
            for inner in api.own_nodes(callee)
        )
    return any(api.path_of(viewed(each)) == name for each in _written(program, node))


def _names_within(program: Program, callee: Function, call: ast.Call, name: str) -> Iterator[str]:
    """The names in `callee` of the tensor that is `name` where it is called: parameters, and what its object has."""
    given = [
        parameter
        for parameter, value in program.arguments(call, callee).given.items()
        if api.path_of(viewed(value)) == name
    ]
    method = getattr(callee, "name", "")
    if program.class_of(callee) is not None and callee.args.args:
        called = api.path_of(call.func).removesuffix(f".{method}")  # of a module, forward is called by its own name
        if called and name.startswith(f"{called}."):
            given.append(callee.args.args[0].arg + name.removeprefix(called))
    for each in given:
        yield from names_of(callee, each)


def _written(program: Program, call: ast.Call) -> Iterator[ast.expr]:
    """What a call of a library's function writes to: by the underscore at its end, `out=` or `inplace=True`."""
    func = call.func
    word = func.attr if isinstance(func, ast.Attribute) else api.path_of(func)
    is_inplace = word.endswith("_") and not word.endswith("__")
    if isinstance(func, ast.Attribute) and is_inplace:
        yield func.value
    for keyword in call.keywords:
        if keyword.arg == "out":
            yield from keyword.value.elts if isinstance(keyword.value, ast.Tuple) else [keyword.value]
        is_inplace |= keyword.arg == "inplace" and getattr(keyword.value, "value", False) is True
    if is_inplace and call.args and program.qualified(func):
        yield call.args[0]
