"""Tells what a function made itself, and may change without anybody else seeing it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.graphing.table import entry_of
from perflint.program.values import Kind
from perflint.program.walk import own_nodes, root_of

if TYPE_CHECKING:
    from perflint.program import Program

_DISPLAYS = (
    *(ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant),
)
_MAKERS = frozenset({"builtins.list", "builtins.dict", "builtins.set", "collections.deque", "collections.defaultdict"})


def argument_names(region: ast.AST) -> set[str]:
    """The names of the arguments of `region`, if it is a function."""
    if not isinstance(region, ast.FunctionDef):
        return set()
    return {node.arg for node in ast.walk(region.args) if isinstance(node, ast.arg)}


def is_own(program: Program, region: ast.AST, node: ast.AST) -> bool:
    """Is `node` a name, or part of one, that the function or loop `region` only ever binds to what it made itself?"""
    root = root_of(node)
    if not isinstance(root, ast.Name):
        return False
    if root.id in argument_names(region):
        return False
    bindings = [
        _bound(program, each)
        for each in own_nodes(region)
        if isinstance(each, ast.Name) and each.id == root.id and isinstance(each.ctx, ast.Store)
    ]
    given = [each for each in bindings if not isinstance(each, ast.AugAssign)]
    return bool(given) and all(isinstance(each, ast.expr) and is_new(program, each) for each in given)


def _bound(program: Program, name: ast.Name) -> ast.AST | None:
    """The expression whose value a name is given, or else the statement that gives it one."""
    target: ast.AST = name
    statement = program.statement_of(name)
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    around = program.parent(name)
    if isinstance(around, ast.Tuple):
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(around.elts) or isinstance(name, ast.Starred):
            return None
        target, value = around, value.elts[around.elts.index(name)]
    return value if program.parent(target) is statement and value is not None else statement


def is_new(program: Program, value: ast.expr | None) -> bool:
    """Does the expression give an object, or a tensor, whose memory nobody else knows?"""
    if isinstance(value, ast.Tuple):
        return all(is_new(program, each) for each in value.elts)
    if isinstance(value, ast.IfExp):
        return is_new(program, value.body) and is_new(program, value.orelse)
    if not isinstance(value, ast.Call):
        return isinstance(value, _DISPLAYS)
    function = program.value(value.func)
    if function.kind is Kind.LIBRARY and function.name in _MAKERS:
        return True
    if function.kind is Kind.LIBRARY and function.name == "torch.autograd.Variable" and value.args:
        return is_new(program, value.args[0])
    if function.kind is Kind.METHOD and function.owner is not None and function.owner.kind is Kind.MODULE:
        return False
    entry = entry_of(program, value)
    if entry is None or entry.result != "tensor":
        return False
    return entry.traits.isdisjoint({"view", "inplace"}) or is_new(program, _viewed(function.kind, value))


def _viewed(kind: Kind, call: ast.Call) -> ast.expr | None:
    """What a call gives a view of, or gives back changed."""
    if kind is Kind.LIBRARY:
        return call.args[0] if call.args else None
    return call.func.value if isinstance(call.func, ast.Attribute) else None
