"""Finds writes to a dataset while it is read, which are lost in workers, as each has a copy."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from perflint import torch_ops
from perflint.analysis.data.writes import written
from perflint.analysis.facts import Program
from perflint.analysis.heat.scale import Heat
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import Function, own_nodes, path_of, stores

if TYPE_CHECKING:
    from perflint.analysis.data.effects import Effects


def write_while_read(program: Program, effects: Effects, functions: Collection[Function]) -> str:
    """The write because of which workers would read something else than one process does; empty if there is none.

    The first of `functions` returns an item, and the others are its callees.
    """
    inside = (private_write(effects, function, "it", "is read") for function in list(functions)[:1])
    reasons = (*inside, _changed_outside(program, functions), _changed_by_methods(program, effects, functions))
    return next(filter(None, reasons), "")


def private_write(effects: Effects, function: Function, what: str, when: str) -> str:
    """What running `function` in a worker changes in the worker's copy alone; empty if nothing."""
    changed = next(iter(effects.left_behind(function)), "")
    return f"{what} changes {changed} as it {when}, and every worker would have its own" if changed else ""


def tensor_write_while_read(program: Program, name: ast.expr) -> str:
    """Where a loop writes in place to the tensor called `name` while batches are read from it; empty if nowhere."""
    path = path_of(name)
    for call in program.of_type(ast.Call):
        func = call.func
        if not path or not isinstance(func, ast.Attribute) or path_of(func.value) != path:
            continue
        if torch_ops.writes_in_place(func.attr) and program.heat(call) is not Heat.ONCE:
            return f"line {call.lineno} changes `{path}` while batches are read"
    return ""


def _changed_by_methods(program: Program, effects: Effects, functions: Collection[Function]) -> str:
    """A method by which a loop changes what an item is made of."""
    nodes = [node for function in functions for node in own_nodes(function)]
    read = {f"self.{each.attr}" for each in nodes if isinstance(each, ast.Attribute) and _is_self(each.value)}
    owners = [program.class_of(function) for function in functions]
    for info in (info for owner in owners[:1] if owner is not None for info in owner.methods.values()):
        hot = [site for site in program.call_sites(info.node) if program.heat(site) is not Heat.ONCE]
        if hot and info.node not in functions and info.name != "__init__" and effects.changed(info.node) & read:
            return f"line {getattr(hot[0], 'lineno', 0)} changes it while batches are read"
    return ""


def _changed_outside(program: Program, functions: Collection[Function]) -> str:
    """What the loop over batches assigns to, and an item is made of."""
    nodes = [node for function in functions for node in own_nodes(function)]
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute) and _is_self(each.value)}
    names = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    names -= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    names -= {each.arg for function in functions for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    for target in (*_assigned(program), *_changed_in_place(program, names)):
        if isinstance(target, ast.Attribute):
            hit = target.attr in attributes and not _is_self(target.value)
        else:
            hit = isinstance(target, ast.Name) and target.id in names
        if hit and program.heat(target) is not Heat.ONCE:
            return f"line {target.lineno} changes {program.segment(target)} while batches are read"
    return ""


def _assigned(program: Program) -> Iterator[ast.expr]:
    """The attributes and the module's variables that are assigned."""
    targets = (
        *(target for node in program.of_type(ast.Assign) for target in node.targets),
        *(node.target for node in program.of_type(ast.AugAssign)),
    )
    yield from (each for each in targets if isinstance(each, ast.Attribute) or _is_global(program, each))


def _changed_in_place(program: Program, names: Collection[str]) -> Iterator[ast.expr]:
    """The module's variables among `names`, and attributes of datasets, whose elements or contents are changed."""
    for node in (*program.of_type(ast.Subscript), *program.of_type(ast.Call)):
        for target in written(program, node):
            if isinstance(target, ast.Attribute):
                if program.value(target.value).kind in (Kind.DATASET, Kind.INSTANCE):
                    yield target
            elif isinstance(target, ast.Name) and target.id in names and _is_of_module(program, target):
                yield target


def _is_of_module(program: Program, name: ast.Name) -> bool:
    function = program.function_of(name)
    parameters = ast.walk(function.args) if function is not None else ()
    return function is None or not (
        stores(function, name.id) or any(isinstance(each, ast.arg) and each.arg == name.id for each in parameters)
    )


def _is_global(program: Program, name: ast.expr) -> bool:
    if not isinstance(name, ast.Name):
        return False
    function = program.function_of(name)
    return function is None or any(
        isinstance(node, ast.Global) and name.id in node.names for node in own_nodes(function)
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
