"""Tells what a function made itself, and may change without anybody else seeing it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perflint.analysis.values.values import Kind
from perflint.syntax.walk import own_nodes, path_of, root_of
from perflint.transforms.capture.table import entry_of

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_DISPLAYS = (
    *(ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant),
)
_PERHAPS_THE_SAME = frozenset(
    "float double half bfloat16 long int short char byte bool cfloat cdouble type type_as cpu cuda to_dense sum_to_size"
    " dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout einsum"
    " broadcast_tensors broadcast_to meshgrid as_tensor asarray from_numpy atleast_1d atleast_2d atleast_3d".split()
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
        bound_to(program, each)
        for each in own_nodes(region)
        if isinstance(each, ast.Name) and each.id == root.id and isinstance(each.ctx, ast.Store)
    ]
    given = [each for each in bindings if not isinstance(each, ast.AugAssign)]
    return bool(given) and all(isinstance(each, ast.expr) and is_new(program, each) for each in given)


def bound_to(program: Program, name: ast.Name) -> ast.AST | None:
    """The expression whose value a name is given, or one that gives it as a part; else the statement, or nothing."""
    target: ast.AST = name
    statement = program.statement_of(name)
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    around = program.parent(name)
    if isinstance(around, ast.Tuple) and isinstance(value, ast.Call):
        return value if program.parent(around) is statement else None
    if isinstance(around, ast.Tuple):
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(around.elts):
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
    if entry is None or (entry.result not in ("tensor", "tuple") and not _gives_its_own(value)):
        return False
    shares = entry.shares or _gives_its_own(value)
    return not shares or is_new(program, _viewed(function.kind, value))


def memory_of(program: Program, node: ast.AST) -> ast.AST:
    """Whose memory an expression gives, as far as it tells: x of `x[0].view(-1)` and of `x.add_(1)`."""
    while True:
        node = root_of(node)
        entry = entry_of(program, node) if isinstance(node, ast.Call) else None
        if entry is None or not isinstance(node, ast.Call) or not entry.shares:
            return node
        viewed = _viewed(program.value(node.func).kind, node)
        if viewed is None:
            return node
        node = viewed


def _gives_its_own(call: ast.Call) -> bool:
    """May the call give its own tensor back, though the table calls it no view: a cast to the type that it has?"""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else path_of(call.func)
    changes = (keyword.arg in ("inplace", "out") for keyword in call.keywords)
    return name in _PERHAPS_THE_SAME or name.startswith("unsafe_") or any(changes)


def _viewed(kind: Kind, call: ast.Call) -> ast.expr | None:
    """What a call gives a view of, or gives back changed."""
    if kind is Kind.LIBRARY:
        return call.args[0] if call.args and not isinstance(call.args[0], ast.Constant) else None
    return call.func.value if isinstance(call.func, ast.Attribute) else None
