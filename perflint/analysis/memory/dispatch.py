"""Finds the modules of the file that a call may run although only its running tells which of them it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, sources_of
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import path_of

_DEPTH = 6
_FIELD = "*"
_Modules = list[ast.ClassDef | None]  # None stands for one that is not known


def forwards(flow: Flow, call: ast.Call) -> tuple[ast.FunctionDef, ...]:
    """Each `forward` that `layer(...)`, `self.layers[i](...)` or `getattr(self, name)(...)` may run.

    Empty where one of them is out of sight.
    """
    found = []
    for module in _modules(flow, call.func, _DEPTH):
        body = module.body if module is not None else []
        forward = next((each for each in body if getattr(each, "name", "") == "forward"), None)
        if not isinstance(forward, ast.FunctionDef) or forward.decorator_list:
            return ()
        if forward not in found:
            found.append(forward)
    return tuple(found)


def _modules(flow: Flow, node: ast.expr, depth: int) -> _Modules:
    """The classes that `node` may be an instance of."""
    value = flow.program.value(node)
    if value.kind is Kind.MODULE and value.sure and isinstance(value.node, ast.ClassDef):
        return [value.node]
    if depth == 0:
        return [None]
    if isinstance(node, ast.Name):
        read = flow.graph(node).value(node)
        bound = [each for each in sources_of(read) if isinstance(each, Definition)] if read is not None else []
        return [module for each in bound for module in _bound_to(flow, each, depth - 1)] or [None]
    if isinstance(node, ast.Subscript):
        is_registry = path_of(node.value) == "self._modules"
        return _registered(flow, node, node.slice) if is_registry else _items(flow, node.value, depth - 1)
    if isinstance(node, ast.Call) and path_of(node.func) == "getattr" and len(node.args) == 2:
        return _registered(flow, node, node.args[1]) if path_of(node.args[0]) == "self" else [None]
    return [None]


def _bound_to(flow: Flow, value: Definition, depth: int) -> _Modules:
    """What an assignment or a loop gives to a name."""
    source = value.source
    if source is None or value.updates is not None:
        return [None]
    if not value.steps:
        return _modules(flow, source, depth)
    if value.steps == ("each",):
        return _items(flow, source, depth)
    name = flow.program.qualified(source.func) if isinstance(source, ast.Call) else ""
    if len(value.steps) != 2 or value.steps[0] != "each" or name not in ("builtins.enumerate", "builtins.zip"):
        return [None]
    assert isinstance(source, ast.Call)
    arguments = source.args if name == "builtins.zip" else [None, *source.args]
    item = arguments[value.steps[1]] if isinstance(value.steps[1], int) and value.steps[1] < len(arguments) else None
    return _items(flow, item, depth) if item is not None else [None]


def _items(flow: Flow, node: ast.expr, depth: int) -> _Modules:
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
    path = path_of(node)
    for each in _own_code(flow, node) if path == f"self.{node.attr}" else ():
        if isinstance(each, ast.Assign) and any(path_of(target) == path for target in each.targets):
            yield each.value


def _registered(flow: Flow, node: ast.expr, name: ast.expr) -> _Modules:
    """The modules which the class around it registers under names that are spelled like this one."""
    pattern, found = _pattern(name), _Modules()
    for each in _own_code(flow, node) if pattern.strip(_FIELD) else ():
        path = path_of(each.func) if isinstance(each, ast.Call) else ""
        if isinstance(each, ast.Call) and path in ("self.add_module", "self.register_module", "setattr"):
            arguments = each.args[path == "setattr" :]
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


def _own_code(flow: Flow, node: ast.AST) -> Iterator[ast.AST]:
    """The code of the class around `node`."""
    owner = next((each for each in flow.program.ancestors(node) if isinstance(each, ast.ClassDef)), None)
    return ast.walk(owner) if owner is not None else iter(())
