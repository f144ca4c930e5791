"""The objects that a statement or a call writes to directly."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of

_CHANGING = frozenset(  # which give None, as the same names give something else of tensors and data frames
    "append appendleft extend extendleft add insert update remove discard clear sort reverse fill put".split()
)
_TAKING = frozenset({"pop", "popleft", "popitem", "setdefault"})
_READING_ON = frozenset("read read1 readinto readline readlines recv seek send fetchone fetchmany __next__".split())
_CHANGES_FIRST = frozenset({"next", "setattr", "delattr", "shuffle", "heappush", "heappop", "copyto"})
_PLAIN = (Kind.NUMBER, Kind.STRING, Kind.NONE)


def written(program: Program, node: ast.AST) -> Iterator[ast.expr]:
    """The expressions whose objects `node` changes; an attribute that is assigned stands for itself."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        if program.value(node.target).kind not in _PLAIN and program.value(node.value).kind is not Kind.STRING:
            yield node.target
    elif isinstance(node, ast.Call):
        yield from _written_by_call(program, node)


def _written_by_call(program: Program, call: ast.Call) -> Iterator[ast.expr]:
    func = call.func
    of_library = bool(program.qualified(func))
    if isinstance(func, ast.Attribute) and torch_ops.writes_in_place(func.attr):
        yield from call.args[:1] if of_library else [func.value]
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if name in _CHANGES_FIRST:
        yield from call.args[:1]
    elif isinstance(func, ast.Attribute):
        for_effect = isinstance(program.parent(call), ast.Expr)
        if name in _TAKING or (for_effect and name in _CHANGING):
            yield func.value
    for keyword in call.keywords:
        if keyword.arg == "out":
            yield keyword.value
        elif keyword.arg == "inplace" and getattr(keyword.value, "value", False) is True:
            yield from call.args[:1] if of_library else [func.value] if isinstance(func, ast.Attribute) else []


def read_on_by(program: Program, node: ast.AST) -> Iterator[ast.expr]:
    """The expressions of the files, or the like, that `node` reads on in."""
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr in _READING_ON and not program.qualified(func):
        yield func.value


def is_first_use(program: Program, node: ast.AST) -> bool:
    """Is `node` the target of an assignment, or one, for where nothing is there yet, as a file opened at first use?"""
    statement = node if isinstance(node, ast.Assign) else program.parent(node)
    if not isinstance(statement, ast.Assign) or isinstance(statement.targets[0], ast.Subscript):
        return False
    path = path_of(statement.targets[0]).rpartition(".")[2]
    tests = [parent.test for parent in program.ancestors(statement) if isinstance(parent, ast.If)]
    return bool(path) and any(_asks_whether_missing(part, path) for test in tests for part in ast.walk(test))


def _asks_whether_missing(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _mentions(node.operand, name)
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.Eq):
        return False
    return getattr(node.comparators[0], "value", 0) is None and _mentions(node.left, name)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(
        name in (getattr(each, "id", ""), getattr(each, "attr", ""), getattr(each, "value", ""))
        for each in ast.walk(node)
    )
