"""Finds the modules that an expression may be: the expressions that build them, alone or as items of lists."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Container, Iterator, Sequence
from functools import cached_property

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Step
from perflint.analysis.values.values import UNKNOWN, Kind
from perflint.syntax.walk import FUNCTIONS, method_of, path_of, receiver_of, text_of

_DEPTH = 8
_FIELD = "*"
_LIST, _DICT = "torch.nn.ModuleList", "torch.nn.ModuleDict"
_RETURN_IT = frozenset({"train", "eval", "requires_grad_", "share_memory"})
_HARMLESS = frozenset({"parameters", "named_parameters", "state_dict", "zero_grad"})
_ADD_ONE = {"append": 0, "insert": 1}
_WALKS = frozenset("len enumerate zip reversed range list tuple".split())

Expressions = list[ast.expr | None]  # None stands for one that is not known


class Modules:
    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._found: dict[ast.expr, Expressions] = {}

    def forwards(self, call: ast.Call) -> tuple[ast.FunctionDef, ...]:
        """Each `forward` of this file that `layer(...)`, `self.layers[i](...)` or `getattr(self, name)(...)` may run.

        Empty where one of them is not analysed.
        """
        found = [self._body(built, "forward") for built in self.builders(call.func)]
        known = [each for each in found if isinstance(each, ast.FunctionDef)]
        return tuple(dict.fromkeys(known)) if len(known) == len(found) else ()

    def bodies(self, call: ast.Call) -> tuple[ast.FunctionDef | str, ...]:
        """What a call of a module, or of a method of one, may run: functions of this file, or their names elsewhere.

        Empty where one of them is not known.
        """
        func, found = call.func, [self._body(built, "forward") for built in self.builders(call.func)]
        if isinstance(func, ast.Attribute) and self.builders(func) == [None]:
            found = [self._body(built, func.attr) for built in self.builders(func.value)]
        return tuple(dict.fromkeys(found)) if all(found) else ()

    def _body(self, built: ast.expr | None, method: str) -> ast.FunctionDef | str:
        value = self._program.value(built) if built is not None else UNKNOWN
        if value.sure and isinstance(value.node, ast.ClassDef):
            found = method_of(value.node, method)
            is_plain = found is not None and not found.decorator_list and method_of(value.node, "__call__") is None
            return found if found is not None and is_plain else ""
        return f"{value.name}.{method}" if "." in value.name else ""

    def builders(self, node: ast.expr) -> Expressions:
        """What builds the modules that `node` may be: calls, or else what is known to be an instance of one class."""
        if node not in self._found:
            self._found[node] = self._builders(node, _DEPTH) or [None]
        return self._found[node]

    def _builders(self, node: ast.expr | None, depth: int) -> Expressions:
        node, program = as_built(node), self._program
        if node is None or depth == 0:
            return [None]
        value = program.value(node)
        is_instance = value.sure and isinstance(value.node, ast.ClassDef)
        is_unknown = value.kind is Kind.UNKNOWN or (value.kind is Kind.MODULE and not value.name.startswith("torch."))
        is_elsewhere = is_unknown and "." in value.name  # of a class in another file, say
        if isinstance(node, ast.Call) and (value.kind is Kind.MODULE or is_elsewhere):
            return [node]
        if value.kind is Kind.MODULE and is_instance:
            return [node]
        if isinstance(node, ast.Constant) and node.value is None:
            return []  # which nobody calls
        if isinstance(node, ast.IfExp):
            return [each for part in (node.body, node.orelse) for each in self._builders(part, depth - 1)]
        if isinstance(node, ast.Name):
            bound = self._definitions(node)
            if is_elsewhere and bound and all(isinstance(each.node, ast.arg) for each in bound):
                return [node]  # as other files hand it over
            return [each for value in bound for each in self._bound_to(value, depth)] or [None]
        if isinstance(node, ast.Attribute):
            return [each for given in self.values_of(node) for each in self._builders(given, depth - 1)] or [None]
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            is_registry = path_of(node.value) == "self._modules"
            return self._registered(node, node.slice) if is_registry else self._items(node.value, depth - 1)
        if isinstance(node, ast.Call) and path_of(node.func) == "getattr" and len(node.args) == 2:
            return self._registered(node, node.args[1]) if path_of(node.args[0]) == "self" else [None]
        return [None]

    def _definitions(self, name: ast.Name) -> list[Definition]:
        if found := [each for each in self._flow.graph(name).definitions(name) if isinstance(each, Definition)]:
            return found
        around = [each for each in self._program.ancestors(name) if isinstance(each, FUNCTIONS)]
        for scope in (*around[1:], self._program.tree):
            graph = self._flow.graph_of(scope)
            if name.id in graph.bindings or scope is self._program.tree:
                return [] if name.id in graph.shared else graph.bindings.get(name.id, [])
        return []

    def _bound_to(self, value: Definition, depth: int) -> Expressions:
        if value.source is None or value.updates is not None:
            return [None]
        if value.steps[:1] == ("each",):
            return self._walked(value.source, value.steps[1:], depth - 1)
        parts = value.source.elts if isinstance(value.source, ast.Tuple | ast.List) else []
        at = value.steps[0] if len(value.steps) == 1 else None
        part = parts[at] if isinstance(at, int) and at < len(parts) else None
        return self._builders(part if value.steps else value.source, depth - 1)

    def _walked(self, source: ast.expr, steps: tuple[Step, ...], depth: int) -> Expressions:
        if not steps:
            return self._items(source, depth)
        name = self._program.qualified(source.func) if isinstance(source, ast.Call) else ""
        if not isinstance(source, ast.Call) or name not in ("builtins.enumerate", "builtins.zip"):
            return [None]
        walked = source.args if name == "builtins.zip" else [None, *source.args]
        item = walked[steps[0]] if isinstance(steps[0], int) and steps[0] < len(walked) else None
        return self._walked(item, steps[1:], depth) if item is not None else [None]

    # -- lists

    def _items(self, node: ast.expr | None, depth: int) -> Expressions:
        """The modules that a list of them ever holds."""
        if node is None or depth == 0:
            return [None]
        if isinstance(node, ast.List | ast.Tuple):
            return [each for part in node.elts for each in self._builders(part, depth - 1)]
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._builders(node.elt, depth - 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self._items(node.left, depth - 1), *self._items(node.right, depth - 1)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self._items(node.left, depth - 1)
        if isinstance(node, ast.Name | ast.Attribute):
            bound = self._definitions(node) if isinstance(node, ast.Name) else []
            made = [each.source if not (each.steps or each.updates) else None for each in bound]
            made = self.values_of(node) if isinstance(node, ast.Attribute) else made
            items = [each for given in made or [None] for each in self._items(given, depth - 1)]
            return items + [each for given in self.added(node, depth - 1) for each in self._builders(given, depth - 1)]
        if not isinstance(node, ast.Call):
            return [] if isinstance(node, ast.Constant) and node.value is None else [None]
        if self._program.qualified(node.func) == _LIST:
            known = len(node.args) < 2 and not node.keywords
            return [each for part in node.args for each in self._items(part, depth - 1)] if known else [None]
        given = [each for each in node.args if self._program.value(each).kind is Kind.MODULE]
        is_list = self._program.value(node).name == _LIST
        return self._builders(given[0], depth - 1) if is_list and len(given) == 1 and not node.keywords else [None]

    def added(self, whole: ast.expr, depth: int = _DEPTH, reads: Container[str] = ()) -> Iterator[ast.expr | None]:
        """What is added to the list `whole` after it was made, other than by reading an attribute of `reads`."""
        owner, _, name = path_of(whole).rpartition(".")
        for node in self._mentions(name):
            is_its_own = path_of(node) != f"self.{name}" or self._are_kin(whole, node)
            if isinstance(node, ast.Name) and isinstance(whole, ast.Name):
                is_its_own = any(each in self._definitions(whole) for each in self._definitions(node))
            around = self._program.parent(node)
            is_read = isinstance(around, ast.Attribute) and around.attr in reads and isinstance(around.ctx, ast.Load)
            if isinstance(node, ast.Attribute) is bool(owner) and isinstance(node.ctx, ast.Load) and is_its_own:
                yield from self._grown(node, depth) if not is_read else ()

    def _grown(self, node: ast.expr, depth: int) -> Iterator[ast.expr | None]:
        parent = self._program.parent(node)
        call = self._program.parent(parent) if isinstance(parent, ast.Attribute) else parent
        if isinstance(parent, ast.Attribute) and not _is_harmless(parent.attr):
            position = _ADD_ONE.get(parent.attr)
            if isinstance(call, ast.Call) and position is not None and len(call.args) == position + 1:
                yield call.args[position]
            elif isinstance(call, ast.Call) and parent.attr == "extend" and len(call.args) == 1:
                yield from self._items(call.args[0], depth)
            else:
                yield None
        elif isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
            yield None
        elif isinstance(parent, ast.Call) and node in parent.args:
            is_walked = getattr(parent.func, "id", "") in _WALKS
            if not is_walked and self._program.qualified(parent.func) != _LIST:  # which only takes the items over
                yield None

    # -- what the program gives an attribute

    def values_of(self, node: ast.Attribute) -> Expressions:
        """What the class around assigns to an attribute of self, or a class related to it; or a nn.ModuleDict holds."""
        if self._program.value(node.value).name == _DICT:
            return [each for built in self._builders(node.value, _DEPTH) for each in self._entries(built, node)] or [
                None
            ]
        stores = [e for e in self._program.attributes.get(node.attr, ()) if isinstance(e.ctx, ast.Store)]
        path = f"self.{node.attr}"
        others = any(path_of(target) != path for target in stores)  # of an object that may be this one
        if others or path_of(node) != path or self._home(node) is None or self._is_set_by_name(node.attr):
            return [None]
        given = (self._given(target) for target in stores if self._are_kin(node, target))
        return [value for value in given if value is None or path_of(as_built(value) or value) != path]

    def _entries(self, built: ast.expr | None, node: ast.Attribute) -> Iterator[ast.expr | None]:
        given = built.args[0] if isinstance(built, ast.Call) and len(built.args) == 1 and not built.keywords else None
        entries: dict[str, ast.expr] = {}
        if isinstance(given, ast.Dict):
            pairs = zip(given.keys, given.values, strict=True)
            entries = {str(getattr(key, "value", "")): each for key, each in pairs}
        elif (call := self._program.call_of(given, "builtins.dict")) is not None and not call.args:
            entries = {each.arg or "": each.value for each in call.keywords}
        is_changed = "" in entries or any(True for _ in self.added(node.value, reads=entries))
        yield entries.get(node.attr) if not is_changed else None

    def _is_set_by_name(self, attribute: str) -> bool:
        return any(fnmatch.fnmatchcase(attribute, each) for each in self._set_names)

    @cached_property
    def _set_names(self) -> set[str]:
        calls = (each for each, path in self._program.called.items() if path.endswith("setattr"))
        return {_pattern(each.args[1]) if len(each.args) > 1 else _FIELD for each in calls}

    def is_changed(self, function: ast.expr) -> bool:
        """Does the program do more with the module that `function` is than build, call, move and save it?"""
        name = path_of(function).rpartition(".")[2]
        mentions = ((each, self._program.parent(each)) for each in self._mentions(name))
        return self._is_set_by_name(name) or any(self._may_change(each, around) for each, around in mentions)

    def _may_change(self, mention: ast.Name | ast.Attribute, around: ast.AST | None) -> bool:
        """Is a part of a module asked for, or the module given another name, by which it may change?"""
        if isinstance(around, ast.Attribute):
            return not _is_harmless(around.attr)
        if isinstance(around, ast.Call) and mention is not around.func:
            return self._program.callee(around) is not None
        return isinstance(mention.ctx, ast.Load) and isinstance(around, _NAMING)

    def _given(self, target: ast.Attribute) -> ast.expr | None:
        around = self._program.parent(target)
        if isinstance(around, ast.Assign | ast.AnnAssign):
            return around.value
        statement = self._program.parent(around) if isinstance(around, ast.Tuple | ast.List) else None
        parts = statement.value if isinstance(statement, ast.Assign) else None
        if not isinstance(around, ast.Tuple | ast.List) or not isinstance(parts, ast.Tuple | ast.List):
            return None
        return parts.elts[around.elts.index(target)] if len(parts.elts) == len(around.elts) else None

    def _mentions(self, name: str) -> Sequence[ast.Name | ast.Attribute]:
        return [*self._program.attributes.get(name, ()), *self._program.names.get(name, ())]

    def _registered(self, node: ast.expr, name: ast.expr) -> Expressions:
        """The modules which the class around it registers under names that are spelled like this one."""
        pattern, found, home = _pattern(name), Expressions(), self._home(node)
        for each in ast.walk(home) if home is not None and pattern.strip(_FIELD) else ():
            path = path_of(each.func) if isinstance(each, ast.Call) else ""
            if isinstance(each, ast.Call) and path in ("self.add_module", "self.register_module", "setattr"):
                arguments = each.args[path == "setattr" :]
                if len(arguments) == 2 and _pattern(arguments[0]) == pattern:
                    found += self._builders(arguments[1], 2)
        return found or [None]

    def _home(self, node: ast.AST) -> ast.ClassDef | None:
        return self._program.class_around(node)

    def _are_kin(self, one: ast.AST, other: ast.AST) -> bool:
        home, lineage = self._home(one), self._program.lineage
        around = (each for each in self._program.ancestors(other) if isinstance(each, ast.ClassDef))
        return home is not None and any(home in lineage(each) or each in lineage(home) for each in around)


def as_built(node: ast.expr | None) -> ast.expr | None:
    """What makes the module, without what moves it to its place or type."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _returns_it(node.func.attr):
        node = node.func.value
    return node


def _returns_it(method: str) -> bool:
    return method in _RETURN_IT or torch_ops.does(method, "cast") or torch_ops.does(method, "move")


_NAMING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return, ast.List, ast.Tuple, ast.Dict, ast.Subscript)


def _is_harmless(method: str) -> bool:
    return method in _HARMLESS or _returns_it(method)


def _pattern(name: ast.AST) -> str:
    """The text of a name with a star for each number in it; a star alone for what is not spelled out."""
    if text := text_of(name):
        return text
    if isinstance(name, ast.JoinedStr):
        return "".join(map(_pattern, name.values))
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        return _pattern(name.left) + _pattern(name.right)
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Mod):
        return _pattern(name.left).replace("%d", _FIELD).replace("%s", _FIELD).replace("%i", _FIELD)
    if (template := receiver_of(name, "format")) is not None:
        return _pattern(template).replace("{}", _FIELD)
    return _FIELD


_HOOK = re.compile(r"register_\w*hook")
_HOOKS = re.compile(
    r"register_(forward|backward|module|full)_\w*hook|register_parametrization|parametri(ze|zations)"
    r"|spectral_norm|weight_norm|prune|quantization|quantize_dynamic"
)
_WRAPPERS = frozenset(
    "DataParallel DistributedDataParallel FullyShardedDataParallel compile jit checkpoint checkpoint_sequential".split()
)
_COMMON = frozenset({"checkpoint", "compile", "jit", "prune"})  # names of much else, too: only torch's are meant


def registers_hooks(program: Program) -> bool:
    return any(map(_HOOK.fullmatch, program.get(_words)))


def may_be_hooked(program: Program) -> bool:
    """Does the program use what adds to the calls of torch's modules, or replaces their weights, or them?"""
    return any(map(_HOOKS.fullmatch, program.get(_words))) or program.get(_replaces_modules)


def may_be_wrapped(program: Program) -> bool:
    return may_be_hooked(program) or not program.get(_words).isdisjoint(_WRAPPERS)


def is_scripted(program: Program) -> bool:
    """Does the program use torch.jit, which does not know torch.vmap?"""
    return "jit" in program.get(_words)


def _replaces_modules(program: Program) -> bool:
    stored = (node for node in program.of_type(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return any(program.qualified(node.value).startswith("torch.nn") for node in stored)


def _words(program: Program) -> frozenset[str]:
    words = {node.func.id for node in program.of_type(ast.Call) if isinstance(node.func, ast.Name)} - _COMMON
    for node in program.of_type(ast.Attribute):
        name = program.qualified(node)
        if node.attr not in _COMMON or name.startswith("torch.") or (node.attr == "compile" and not name):
            words.add(node.attr)
    for statement in program.of_type(ast.ImportFrom):
        words.update((statement.module or "").split("."), _imported(statement.names))
    for imported in program.of_type(ast.Import):
        words.update(_imported(imported.names))
    return frozenset(words)


def _imported(names: list[ast.alias]) -> set[str]:
    return {word for alias in names for word in alias.name.split(".")}
