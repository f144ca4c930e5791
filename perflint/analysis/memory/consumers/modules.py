"""Finds the modules of the file that a call may run although only its running tells which of them it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of

if TYPE_CHECKING:
    from perflint.analysis.ir.flow import Flow

_DEPTH = 6
_FIELD = "*"
_PAIRING = frozenset({"builtins.enumerate", "builtins.zip"})


def forwards(flow: Flow, call: ast.Call) -> tuple[ast.FunctionDef, ...]:
    """Each `forward` that `layer(...)`, `self.layers[i](...)` or `getattr(self, name)(...)` may run.

    Empty where one of them is out of sight.
    """
    found = []
    for module in _modules(flow, call.func, _DEPTH):
        forward = None
        if isinstance(module, ast.ClassDef):
            forward = next((each for each in module.body if getattr(each, "name", "") == "forward"), None)
        if not isinstance(forward, ast.FunctionDef) or forward.decorator_list:
            return ()
        if forward not in found:
            found.append(forward)
    return tuple(found)


def _modules(flow: Flow, node: ast.expr, depth: int) -> list[ast.ClassDef | None]:
    """The classes that `node` may be an instance of; None stands for one that is not known."""
    value = flow.program.value(node)
    if value.kind is Kind.MODULE and value.sure and isinstance(value.node, ast.ClassDef):
        return [value.node]
    if depth == 0:
        return [None]
    if isinstance(node, ast.Name):
        return [
            module for definition in flow.definitions(node) for module in _bound_to(flow, definition, depth - 1)
        ] or [None]
    if isinstance(node, ast.Subscript):
        if path_of(node.value) == "self._modules":
            return _registered(flow, node, node.slice)
        return _items(flow, node.value, depth - 1)
    if isinstance(node, ast.Call) and path_of(node.func) == "getattr" and len(node.args) == 2:
        return _registered(flow, node, node.args[1]) if path_of(node.args[0]) == "self" else [None]
    return [None]


def _bound_to(flow: Flow, definition: ast.AST, depth: int) -> list[ast.ClassDef | None]:
    """What an assignment or a loop gives to a name."""
    parent = flow.program.parent(definition)
    if isinstance(parent, ast.Assign) and parent.targets == [definition]:
        return _modules(flow, parent.value, depth)
    position = None
    if isinstance(parent, ast.Tuple) and isinstance(definition, ast.expr):
        position, parent = parent.elts.index(definition), flow.program.parent(parent)
    if not isinstance(parent, ast.For):
        return [None]
    items = parent.iter
    if position is not None:
        if not isinstance(items, ast.Call) or flow.program.qualified(items.func) not in _PAIRING:
            return [None]
        arguments = items.args if path_of(items.func) == "zip" else [None, *items.args]
        item = arguments[position] if position < len(arguments) else None
        return _items(flow, item, depth) if item is not None else [None]
    return _items(flow, items, depth)


def _items(flow: Flow, node: ast.expr, depth: int) -> list[ast.ClassDef | None]:
    """The modules within a list of them, be it `self.layers`, a display or what a function makes of one module."""
    if depth == 0:
        return [None]
    if isinstance(node, ast.List | ast.Tuple):
        return [module for each in node.elts for module in _modules(flow, each, depth - 1)] or [None]
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return _modules(flow, node.elt, depth - 1)
    if isinstance(node, ast.Attribute):
        values = [*_kept(flow, node)]
        return [module for value in values for module in _items(flow, value, depth - 1)] or [None]
    if not isinstance(node, ast.Call):
        return [None]
    if flow.program.qualified(node.func) == "torch.nn.ModuleList":
        return _items(flow, node.args[0], depth - 1) if len(node.args) == 1 else [None]
    given = [each for each in node.args if flow.program.value(each).kind is Kind.MODULE]
    is_list = flow.program.value(node).name == "torch.nn.ModuleList"
    return _modules(flow, given[0], depth - 1) if is_list and len(given) == 1 and not node.keywords else [None]


def _kept(flow: Flow, node: ast.Attribute) -> Iterator[ast.expr]:
    """What the class around it assigns to `self.name`."""
    owner = _class_around(flow, node)
    for each in ast.walk(owner) if owner is not None and path_of(node) == f"self.{node.attr}" else ():
        if isinstance(each, ast.Assign) and any(path_of(target) == path_of(node) for target in each.targets):
            yield each.value


def _registered(flow: Flow, node: ast.expr, name: ast.expr) -> list[ast.ClassDef | None]:
    """The modules which the class around it registers under names that are spelled like this one."""
    owner, pattern = _class_around(flow, node), _pattern(name)
    found = []
    for each in ast.walk(owner) if owner is not None and pattern.strip(_FIELD) else ():
        if isinstance(each, ast.Call) and path_of(each.func) in ("self.add_module", "self.register_module", "setattr"):
            arguments = each.args[1:] if path_of(each.func) == "setattr" else each.args
            if len(arguments) == 2 and _pattern(arguments[0]) == pattern:
                found += _modules(flow, arguments[1], 1)
    return found or [None]


def _pattern(name: ast.expr) -> str:
    """The text of a name with a star for each number in it; a star alone for what is not spelled out."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return name.value
    if isinstance(name, ast.JoinedStr):
        return "".join(_pattern(each) for each in name.values)
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        return _pattern(name.left) + _pattern(name.right)
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Mod):
        return _pattern(name.left).replace("%d", _FIELD).replace("%s", _FIELD).replace("%i", _FIELD)
    if isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute) and name.func.attr == "format":
        return _pattern(name.func.value).replace("{}", _FIELD)
    return _FIELD


def _class_around(flow: Flow, node: ast.AST) -> ast.ClassDef | None:
    return next((each for each in flow.program.ancestors(node) if isinstance(each, ast.ClassDef)), None)
