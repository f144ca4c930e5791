"""Which expressions may alias the value of another, or an element of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.syntax.walk import own_nodes, path_of

_PASSING = frozenset(
    "builtins.enumerate builtins.zip builtins.reversed builtins.iter builtins.next builtins.getattr builtins.type"
    " builtins.vars torch.from_numpy torch.as_tensor numpy.asarray".split()
)
_KEEPING = frozenset({"builtins.list", "builtins.tuple", "builtins.sorted", "builtins.dict", "builtins.map"})
_PART_METHODS = frozenset({"get", "items", "values", "setdefault", "pop", "numpy", "state_dict", "parameters"})


def shared_in(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """The expressions that `node`, neither a variable nor an attribute, may be, view or hold an element of."""
    if isinstance(node, ast.Subscript | ast.Starred | ast.NamedExpr):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.Call):
        name = program.qualified(node.func)
        entry = torch_ops.of_function(name)
        if name in _PASSING or (entry is not None and entry.shares):
            yield from node.args
        elif isinstance(node.func, ast.Attribute) and _gives_part(node.func.attr):
            yield node.func.value


def parts_of(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose values a container holds that is made at `node`."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        yield from node.elts
    elif isinstance(node, ast.Dict):
        yield from node.values
    elif isinstance(node, ast.DictComp):
        yield node.value
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        yield node.elt
    elif isinstance(node, ast.Call) and program.qualified(node.func) in _KEEPING:
        yield from node.args
        yield from (keyword.value for keyword in node.keywords)


def sources_of(program: Program, definition: ast.Name) -> Iterator[ast.expr]:
    """The expressions whose value, or an element of it, a variable gets where it is assigned."""
    target: ast.AST = definition
    parent = program.parent(target)
    while isinstance(parent, ast.Tuple | ast.List | ast.Starred):
        target, parent = parent, program.parent(parent)
    if isinstance(parent, ast.AugAssign):
        yield definition  # it may be the same object behind it
    elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr) and parent.value is not None:
        yield _counterpart(target, definition, parent.value)
    elif isinstance(parent, ast.For | ast.AsyncFor | ast.comprehension):
        yield parent.iter
    elif isinstance(parent, ast.withitem):
        yield parent.context_expr


def appended(program: Program, definition: ast.Name) -> Iterator[ast.expr]:
    """What is appended to the new list that a variable is assigned."""
    made = next(sources_of(program, definition), None)
    is_list = isinstance(made, ast.List) or (
        isinstance(made, ast.Call) and program.qualified(made.func) == "builtins.list"
    )
    function = program.function_of(definition)
    for node in own_nodes(function) if is_list and function is not None else ():
        func = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(func, ast.Attribute) and func.attr == "append":
            yield from node.args if path_of(func.value) == definition.id else ()


def _gives_part(method: str) -> bool:
    entry = torch_ops.of_method(method)
    return method in _PART_METHODS or (entry is not None and entry.shares)


def _counterpart(target: ast.AST, definition: ast.Name, value: ast.expr) -> ast.expr:
    """The element of the value that unpacking binds to the name, as d in `a, b = c, d`; else the whole value."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for one, other in zip(target.elts, value.elts, strict=False):
            if one is definition:
                return other
    return value
