"""What changes in a dataset while it is read: every worker has a copy of its own, and would not see it."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TYPE_CHECKING

from perflint.program.heat import Heat
from perflint.program.walk import Function, own_nodes, path_of

if TYPE_CHECKING:
    from perflint.program import Program

_GROWS = frozenset({"append", "extend", "add", "insert", "setdefault", "pop", "popitem", "remove", "clear"})


def change_while_read(program: Program, functions: Collection[Function]) -> str:
    """Why workers would read something else than one process does; `functions` give an item. Empty if they wouldn't."""
    inside = (_changed_inside(program, function) for function in functions)
    reasons = (*inside, _changed_outside(program, functions), _changed_by_methods(program, functions))
    return next(filter(None, reasons), "")


def written_while_read(program: Program, name: ast.expr) -> str:
    """Where a loop writes to the tensor called `name` in place, while batches are read from it. Empty if none does."""
    path = path_of(name)
    for call in program.of_type(ast.Call):
        func = call.func
        if not path or not isinstance(func, ast.Attribute) or path_of(func.value) != path:
            continue
        if func.attr.endswith("_") and not func.attr.endswith("__") and program.heat(call) is not Heat.ONCE:
            return f"line {call.lineno} changes `{path}` while batches are read"
    return ""


def _changed_by_methods(program: Program, functions: Collection[Function]) -> str:
    """A method by which a loop changes what an item is made of."""
    nodes = [node for function in functions for node in own_nodes(function)]
    read = {each.attr for each in nodes if isinstance(each, ast.Attribute) and _is_self(each.value)}
    owners = [program.class_of(function) for function in functions]
    for info in (info for owner in owners[:1] if owner is not None for info in owner.methods.values()):
        changed = {_changed(node) or _written(node) for node in own_nodes(info.node)} & read
        hot = [site for site in program.call_sites(info.node) if program.heat(site) is not Heat.ONCE]
        if changed and hot and info.node not in functions and info.name != "__init__":
            return f"line {getattr(hot[0], 'lineno', 0)} changes it while batches are read"
    return ""


def _written(node: ast.AST) -> str:
    """The attribute of self that `node` writes to in place, as in `self.rows.fill_(0)`."""
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr.endswith("_") and isinstance(func.value, ast.Attribute):
        return func.value.attr if _is_self(func.value.value) else ""
    return ""


def _changed_inside(program: Program, function: Function) -> str:
    for node in own_nodes(function):
        if isinstance(node, ast.Global):
            return f"it changes {node.names[0]} as it is read, and every worker would have its own"
        attribute = _changed(node)
        if attribute and not _is_lazy(program, node, attribute):
            return f"it changes self.{attribute} as it is read, and every worker would have its own"
    return ""


def _changed_outside(program: Program, functions: Collection[Function]) -> str:
    """What the loop over batches assigns to, and an item is made of."""
    nodes = [node for function in functions for node in own_nodes(function)]
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute) and _is_self(each.value)}
    names = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    names -= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    names -= {each.arg for function in functions for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    targets = [
        *(target for node in program.of_type(ast.Assign) for target in node.targets),
        *(node.target for node in program.of_type(ast.AugAssign)),
    ]
    for target in targets:
        if isinstance(target, ast.Attribute):
            hit = target.attr in attributes and not _is_self(target.value)
        else:
            hit = isinstance(target, ast.Name) and target.id in names and _is_global(program, target)
        if hit and program.heat(target) is not Heat.ONCE:
            return f"line {target.lineno} changes {program.segment(target)} while batches are read"
    return ""


def _is_global(program: Program, name: ast.Name) -> bool:
    function = program.function_of(name)
    return function is None or any(
        isinstance(node, ast.Global) and name.id in node.names for node in own_nodes(function)
    )


def _is_lazy(program: Program, node: ast.AST, attribute: str) -> bool:
    """Is `node` guarded by a test of the same attribute, as when a file is opened at its first use?"""
    tests = [parent.test for parent in program.ancestors(node) if isinstance(parent, ast.If)]
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and any(attribute in ast.dump(test) for test in tests)
    )


def _changed(node: ast.AST) -> str:
    """The attribute of self that `node` assigns to, makes grow or takes an item from."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
        targets = [node.func.value]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "next":
        targets = node.args[:1]
    for target in targets:
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Attribute) and (_is_self(target.value) or _is_own_class(node, target.value)):
            return target.attr
    return ""


def _is_own_class(node: ast.AST, owner: ast.expr) -> bool:
    """Is a class, by its name or as `self.__class__`, given the attribute?"""
    by_name = isinstance(owner, ast.Name) and owner.id[:1].isupper()
    return isinstance(node, ast.Assign | ast.AugAssign) and (by_name or getattr(owner, "attr", "") == "__class__")


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
