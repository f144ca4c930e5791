"""Finds names of different functions for one storage: parameters, attributes and variables of the module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, product

from perflint import torch_ops
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, Outer, Step, Value, updated_by
from perflint.analysis.memory.locations import ANY, ELEMENTS, Location, Locations, Origin
from perflint.analysis.memory.roles import FILLS, NAMESPACES, VIEWS
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, parameters_of
from perflint.syntax.walk import (
    FUNCTIONS,
    LOOPS,
    Function,
    bindings_of,
    last_name,
    method_of,
    path_of,
    receiver_of,
    returned_values,
    text_of,
)

_ANY = "?"  # some part
_EACH = "[each]"  # some item
_MOST = 100  # nodes on the way to where a value comes from
_LONGEST = 4
_PLAIN = frozenset({Kind.NUMBER, Kind.STRING, Kind.NONE, Kind.DEVICE, Kind.LIBRARY, Kind.FUNCTION, Kind.CLASS})
_NAMED = frozenset({"register_buffer", "register_parameter", "setattr", "__setattr__"})
_NAME_AND_VALUE = ("name", "tensor", "param")

Path = tuple[str, ...]  # ".name" for an attribute, "[0]" for an item
Part = tuple[ast.AST | str, Path]  # a part of what a node gives, or of a variable of a scope around


class Sharing:
    """The storage that names of one program share, as its own calls and assignments give it to them.

    It is told by definitions alone, and not by effects, so that every points-to analysis may start from it. Nothing is
    known of the calls of other files.
    """

    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.get(Flow)
        self._parameters: dict[Function, Mapping[ast.AST | str, set[Location]]] = {}

    def of_parameter(self, node: ast.arg, function: Function) -> Locations:
        if function not in self._parameters:
            self._parameters[function] = self._given(function)
        return frozenset(self._parameters[function].get(node, ()))

    def has_all_callers(self, function: Function) -> bool:
        """Are all calls of `function` known, so that they tell what its parameters share?"""
        sites = self._program.call_sites(function)
        is_private = getattr(function, "name", "_").startswith("_") or self._program.function_of(function) is not None
        is_called = bool(sites) and all(self._program.calls(each, function) for each in sites)
        return is_called and (is_private or self._program.is_script)

    def of_attribute(self, name: str) -> frozenset[str]:
        """The other attributes under which objects may hold what they hold as `name`; ANY for those not known."""
        return self._attributes.get(name, frozenset()) | self._attributes.get(ANY, frozenset())

    def of_variable(self, name: str) -> frozenset[str]:
        return self._variables.get(name, frozenset())

    @cached_property
    def _attributes(self) -> Mapping[str, frozenset[str]]:
        holders: defaultdict[Part, set[str]] = defaultdict(set)
        for attribute, stored in self._stores():
            for root, path in self._roots([stored], through_calls=True):
                if _ANY not in path:  # objects that are made of the same seldom share a tensor
                    holders[root, path].add(attribute)
                    if path and path[-1].startswith("."):
                        holders[root, path].add(path[-1][1:])
        return _grouped(holders.values())

    def _stores(self) -> Iterator[tuple[str, Part]]:
        for node in self._program.of_type(ast.Assign, ast.AnnAssign, ast.For, ast.AsyncFor):
            for target, value in bindings_of(node):
                yield from _bound_attributes(target, (value, (_EACH,) if isinstance(node, LOOPS) else ()))
        blocks: Sequence[ast.With | ast.AsyncWith] = self._program.of_type(ast.With, ast.AsyncWith)
        for entered in (each for block in blocks for each in block.items):
            manager = entered.context_expr  # which gives what it was given, or any part of that
            for given in arguments_of(manager) if isinstance(manager, ast.Call) else [manager]:
                if entered.optional_vars is not None:
                    yield from _bound_attributes(entered.optional_vars, (given, ()))
        for call in self._program.of_type(ast.Call):
            yield from self._stored_by(call)

    def _stored_by(self, call: ast.Call) -> Iterator[tuple[str, Part]]:
        """What a call stores by the names of attributes: `setattr`, a buffer, or a class that has no constructor."""
        keywords = {each.arg: each.value for each in call.keywords if each.arg is not None}
        if last_name(call) in _NAMED:
            given = [*call.args, *(keywords[each] for each in _NAME_AND_VALUE if each in keywords)]
            yield from ((text_of(name) or ANY, (value, ())) for name, value in pairwise(given))
        if (filled := receiver_of(call, *FILLS)) is not None and _is_namespace(filled):
            yield from ((name, (value, ())) for name, value in keywords.items())
            for entries in call.args:
                pairs = zip(entries.keys, entries.values, strict=True) if isinstance(entries, ast.Dict) else ()
                yield from ((text_of(key) or ANY, (value, ())) for key, value in pairs)
                yield ANY, (entries, (_EACH,))
        made = self._program.value(call.func)
        if made.kind is Kind.CLASS and isinstance(made.node, ast.ClassDef):
            fields = (path_of(each.target) for each in made.node.body if isinstance(each, ast.AnnAssign))
            if method_of(made.node, "__init__") is None:
                yield from ((name, (value, ())) for name, value in zip(fields, call.args, strict=False))
                yield from ((name, (value, ())) for name, value in keywords.items())

    @cached_property
    def _variables(self) -> Mapping[str, frozenset[str]]:
        holders: defaultdict[Part, set[str]] = defaultdict(set)
        for name, bindings in self._flow.graph_of(self._program.tree).bindings.items():
            for root, path in self._roots(part for each in bindings for part in self._bound(each, ())):
                holders[root, path] |= {name, root} if isinstance(root, str) else {name}
        return _grouped(holders.values())

    def _given(self, function: Function) -> Mapping[ast.AST | str, set[Location]]:
        """What each parameter may be besides itself: part of another, or of a variable of a scope around."""
        found: defaultdict[ast.AST | str, set[Location]] = defaultdict(set)
        for site in self._program.call_sites(function):
            if not self._program.calls(site, function):
                continue
            given = {
                Location(Origin.PARAMETER, each): set(self._roots([(value, ())]))
                for each, value in self._arguments(site, function)
            }
            around = {each: set(self._roots(parts)) for each, parts in self._around(site, function)} if given else {}
            for one, (other, others) in product(given, (given | around).items()):
                for (root, path), (base, prefix) in product(given[one], others if one is not other else ()):
                    if root == base and len(prefix) <= len(path) and all(map(_may_be_one, path, prefix)):
                        found[one.root].add(_part(other, path[len(prefix) :]))
            for one, parts in given.items():
                outer = [(Location(Origin.OUTER, root), path) for root, path in parts if isinstance(root, str)]
                found[one.root].update(_part(place, path) for place, path in outer)
        return found

    def _arguments(self, site: ast.Call, function: Function) -> Iterator[tuple[ast.arg, ast.expr]]:
        by_name = {each.arg: each for each in parameters_of(function)}
        for name, value in self._program.arguments(site, function).given.items():
            if self._program.value(value).kind not in _PLAIN:
                yield by_name[name], value
        is_new = self._program.value(site.func).kind is Kind.CLASS
        if by_name and not is_new and self._program.is_bound(site, function):
            yield next(iter(by_name.values())), self._program.object_of(site, function)

    def _around(self, site: ast.Call, function: Function) -> Iterator[tuple[Location, list[Part]]]:
        """The variables of the function around `site` that `function`, inside of it, may read."""
        graph = self._flow.graph(site)
        if function in graph.inner and isinstance(graph.scope, FUNCTIONS):
            for name in graph.captured.keys() & graph.bindings.keys():
                yield Location(Origin.OUTER, name), [p for each in graph.bindings[name] for p in self._bound(each, ())]

    # -- where values come from

    def _roots(self, parts: Iterable[Part], *, through_calls: bool = False) -> Iterator[Part]:
        """The parameters, variables of scopes around and new values that hold the storage of `parts`.

        With `through_calls`, also what callers in sight give for the parameters, and what functions return.
        """
        pending = [*parts]
        seen = set(pending)
        while pending:
            root, path = pending.pop()
            sources = None if isinstance(root, str) else self._sources(root, path)
            if sources is None:
                yield root, path
            beyond = self._through_calls(root, path) if through_calls and isinstance(root, ast.AST) else []
            for source, steps in (*(sources or ()), *beyond):
                each = source, (*steps[:_LONGEST], _ANY) if len(steps) > _LONGEST else steps
                if each not in seen and len(seen) < _MOST:
                    seen.add(each)
                    pending.append(each)

    def _through_calls(self, node: ast.AST, path: Path) -> list[Part]:
        if isinstance(node, ast.Call):
            return [(each, path) for each in returned_values(self._program.callee(node))]
        function = self._program.function_of(node) if isinstance(node, ast.arg) else None
        calls = [each for each in self._program.call_sites(function) if self._program.calls(each, function)]
        given = (pair for each in calls if function is not None for pair in self._arguments(each, function))
        return [(value, path) for parameter, value in given if parameter is node]

    def _sources(self, node: ast.AST, path: Path) -> list[Part] | None:
        match node:
            case ast.Name():
                value = self._flow.graph(node).read(node)
                return [*self._of_value(value, path)] if value is not None and isinstance(node.ctx, ast.Load) else None
            case ast.Attribute():
                attribute = torch_ops.of_attribute(node.attr)
                return [(node.value, path if attribute is not None and attribute.shares else (f".{node.attr}", *path))]
            case ast.Subscript():
                return [(node.value, path if isinstance(node.slice, ast.Slice) else (_item(node.slice), *path))]
            case ast.IfExp():
                return [(node.body, path), (node.orelse, path)]
            case ast.BoolOp():
                return [(each, path) for each in node.values]
            case ast.NamedExpr() | ast.Starred():
                return [(node.value, path)]
            case ast.Tuple() | ast.List():
                elements = enumerate(node.elts)
                return [(each, path[1:]) for at, each in elements if not path or _may_be_one(f"[{at}]", path[0])]
            case ast.Call():
                return self._of_call(node, path)
        return None

    def _of_value(self, value: Value, path: Path) -> Iterator[Part]:
        for each in updated_by(value):
            if isinstance(each, Outer) or (isinstance(each, Definition) and self._is_of_module(each)):
                yield each.name, path
            elif isinstance(each, Definition) and each.updates is None:
                yield from self._bound(each, path)

    def _is_of_module(self, definition: Definition) -> bool:
        return not isinstance(definition.node, ast.arg) and self._program.function_of(definition.node) is None

    def _bound(self, definition: Definition, path: Path) -> Iterator[Part]:
        if definition.source is None or definition.updates is not None:
            yield definition.node, path
        else:
            yield definition.source, (*map(_step, definition.steps), *path)

    def _of_call(self, call: ast.Call, path: Path) -> list[Part] | None:
        name = self._program.qualified(call.func)
        if self._program.value(call.func).kind is Kind.CLASS:  # an object may keep what it is made of
            return [(each, (_ANY,)) for each in arguments_of(call) if self._program.value(each).kind not in _PLAIN]
        if name == "builtins.getattr" and (word := text_of(call.args[1] if call.args[1:] else None)):
            return [(call.args[0], (f".{word}", *path))]
        if name.rpartition(".")[2] in VIEWS and not name.startswith("torch."):
            return [(each, path) for each in call.args[:1]]
        method = call.func.attr if isinstance(call.func, ast.Attribute) and not name else ""
        operation = torch_ops.of_method(method) if method else torch_ops.of_function(name)
        if operation is None or self._program.callee(call) is not None:
            return None
        shared = (*operation.views, *operation.may_return)
        return [(each, path) for argument in shared for each in argument.of(call)] or None


def _is_namespace(node: ast.expr) -> bool:
    return getattr(node, "attr", "") in NAMESPACES or (isinstance(node, ast.Call) and path_of(node.func) == "vars")


def _bound_attributes(target: ast.expr, part: Part) -> Iterator[tuple[str, Part]]:
    source, path = part
    if isinstance(target, ast.Attribute):
        yield target.attr, part
    elif isinstance(target, ast.Subscript) and _is_namespace(target.value):
        yield text_of(target.slice) or ANY, part
    elif isinstance(target, ast.Tuple | ast.List):
        is_starred = False
        for index, each in enumerate(target.elts):
            is_starred = is_starred or isinstance(each, ast.Starred)
            yield from _bound_attributes(each, (source, (*path, _EACH if is_starred else f"[{index}]")))
    elif isinstance(target, ast.Starred):
        yield from _bound_attributes(target.value, (source, (*path[:-1], _ANY)))


def _step(step: Step) -> str:
    return f"[{step}]" if isinstance(step, int) else _EACH if step == "each" else _ANY


def _item(index: ast.expr) -> str:
    is_one = isinstance(index, ast.Constant) and isinstance(index.value, str | int)
    return f"[{index.value!r}]" if is_one and isinstance(index, ast.Constant) else _EACH


def _may_be_one(one: str, other: str) -> bool:
    if one.startswith("[") and other.startswith("["):
        return one == other or _EACH in (one, other)
    return one == other or _ANY in (one, other)


def _part(place: Location, path: Path) -> Location:
    for step in path:
        place = place.part(step[1:] if step.startswith(".") else ELEMENTS)
    return place


def _grouped(groups: Iterable[set[str]]) -> Mapping[str, frozenset[str]]:
    """For each name the others of its groups, and of the groups of these."""
    whole: dict[str, set[str]] = {}
    for group in groups:
        merged = group.union(*(whole.get(name, ()) for name in group))
        whole.update(dict.fromkeys(merged, merged))
    return {name: frozenset(merged - {name}) for name, merged in whole.items() if len(merged) > 1}
