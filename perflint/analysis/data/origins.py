"""Traces a value to its definitions throughout a program, and tells who binds the attributes of an object."""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, sources_of
from perflint.syntax.walk import COMPREHENSIONS, bindings_of, path_of, returned_values, text_of

_DEPTH = 8
_LEFT_OUT = -1  # the index of what stands for itself
_Part = tuple[ast.AST, int | None]  # a node, or what stands at an index of its value


def _attributes_of(target: ast.expr, part: _Part) -> Iterator[tuple[ast.Attribute, _Part]]:
    if isinstance(target, ast.Attribute):
        yield target, part
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(part[0], ast.expr):
        for position, each in enumerate(target.elts):
            yield from _attributes_of(each, (part[0], position))


class Origins:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = program.get(Flow)
        self._known: dict[ast.AST, list[ast.AST]] = {}
        self._classes = program.of_type(ast.ClassDef)
        self._site: ast.Call | None = None

    @cached_property
    def _attributes(self) -> Mapping[tuple[ast.AST, str], list[_Part]]:
        found: defaultdict[tuple[ast.AST, str], list[_Part]] = defaultdict(list)
        for node in self._program.of_type(ast.Assign, ast.AnnAssign, ast.AugAssign):
            for target, value in bindings_of(node):
                made = node if isinstance(node, ast.AugAssign) else value
                for attribute, part in _attributes_of(target, (made, None)):
                    if (owner := self._owner(attribute)) is not None:
                        found[owner, attribute.attr].append(part)
        return found

    def of(self, node: ast.AST) -> list[ast.AST]:
        """The nodes that the value of `node` may come from: expressions but plain names, definitions, parameters.

        A loop stands for its variable; a name of which nothing is known stands for itself.
        """
        if node not in self._known:
            self._known[node] = self._search(node)
        return self._known[node]

    def calls(self, node: ast.AST) -> list[ast.Call]:
        return [origin for origin in self.of(node) if isinstance(origin, ast.Call)]

    def given_at(self, site: ast.Call) -> Origins:
        """The same, as if what `site` calls were called there alone."""
        found = copy.copy(self)
        found._known, found._site = {}, site
        return found

    def _search(self, node: ast.AST) -> list[ast.AST]:
        found: dict[ast.AST, None] = {}
        level: list[_Part] = [(node, None)]
        seen = set(level)
        for _ in range(_DEPTH):
            behind: list[_Part] = []
            for part in level:
                sources = self._sources(*part)
                if not sources:
                    found.setdefault(part[0])
                behind += [each for each in sources if each not in seen]
                seen.update(behind)
            level = behind
        return list(found | dict.fromkeys(part for part, _ in level))

    def _sources(self, node: ast.AST, index: int | None) -> list[_Part]:
        if index == _LEFT_OUT:
            return []
        if isinstance(node, ast.IfExp):
            return [(node.body, index), (node.orelse, index)]
        if isinstance(node, ast.BoolOp):
            return [(part, index) for part in node.values]
        if isinstance(node, ast.NamedExpr):
            return [(node.value, index)]
        if isinstance(node, ast.Tuple | ast.List) and index is not None and index < len(node.elts):
            return [(node.elts[index], None)]
        if isinstance(node, ast.Name):
            return [part for each in self._definitions(node) for part in self._bound(each, index)]
        if isinstance(node, ast.Attribute):
            owner = self._owner(node)
            found = self._assigned(owner, node.attr) if owner is not None else ()
            return [(value, index if part is None else part) for value, part in found]
        if isinstance(node, ast.arg):
            return list(self._given_for(node, index))
        return self._returned_by(node, index) if isinstance(node, ast.Call) else []

    def _assigned(self, owner: ast.ClassDef, name: str) -> list[_Part]:
        bases = self._program.base_names(owner)
        kin = [each for each in self._classes if each is owner or f"@{each.name}" in bases]
        return [part for each in kin for part in self._attributes.get((each, name), ())]

    def _owner(self, node: ast.Attribute) -> ast.ClassDef | None:
        if not isinstance(node.value, ast.Name) or node.value.id != "self":
            return None
        return self._program.class_around(node)

    def _definitions(self, name: ast.Name) -> list[Definition]:
        value = self._flow.graph(name).value(name)
        found = [each for each in sources_of(value) if isinstance(each, Definition)] if value is not None else []
        scope = self._program.function_of(name)
        while not found and scope is not None:
            scope = self._program.function_of(scope)
            found = self._flow.graph_of(scope or self._program.tree).bindings.get(name.id, [])
        return found

    def _bound(self, definition: Definition, index: int | None) -> Iterator[_Part]:
        node, source, steps = definition.node, definition.source, definition.steps
        if definition.updates is not None:
            yield self._program.parent(node) or node, _LEFT_OUT
        elif source is None:
            if isinstance(node, ast.arg | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node, index
        elif not steps or steps == ("enter",):
            yield source, index
        elif steps[0] == "each":
            yield self._program.parent(source) or source, _LEFT_OUT
        elif len(steps) == 1 and isinstance(steps[0], int):
            yield source, steps[0]
        else:
            yield node, _LEFT_OUT

    def _returned_by(self, node: ast.Call, index: int | None) -> list[_Part]:
        callee = self._program.callee(node)
        if not isinstance(callee, ast.FunctionDef) or callee.name in ("__init__", "__call__", "forward"):
            return []
        return [(each, index) for each in returned_values(callee)]

    def _given_for(self, parameter: ast.arg, index: int | None) -> Iterator[_Part]:
        """What the calls of this file give for a parameter, which is an origin where one leaves it out."""
        function = self._program.function_of(parameter)
        is_at_site = self._site is not None and self._program.callee(self._site) is function
        for site, given in self._program.given(parameter):
            if self._program.calls(site, function) and (site is self._site or not is_at_site):
                source = given if given is not None else self._program.default(parameter)
                yield (source, index) if source is not None else (parameter, _LEFT_OUT)


def parts_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Dict):
        return node.values
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return node.elts
    if isinstance(node, COMPREHENSIONS):
        return [node.value if isinstance(node, ast.DictComp) else node.elt]
    return []


_BINDING = frozenset({"setattr", "delattr"})
_REGISTERING = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})


class Attributes:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._bound: defaultdict[str, list[ast.expr]] = defaultdict(list)  # the objects, by what is bound of them
        for call, path in program.called.items():
            last = path.rpartition(".")[2]
            if last in _BINDING and len(call.args) > 1:
                self._bound[text_of(call.args[1])].append(call.args[0])
            elif last in _REGISTERING and isinstance(call.func, ast.Attribute) and call.args:
                self._bound[text_of(call.args[0])].append(call.func.value)

    def is_own(self, node: ast.Attribute) -> bool:
        """Do only methods of the class around bind it, no subclass, base or other code?

        Computed names (`setattr(model, name, value)`) may be any.
        """
        owner = self._program.class_around(node)
        if owner is None or path_of(node.value) != "self" or self._program.is_edited_elsewhere(node.attr):
            return False
        named = self._program.attributes.get(node.attr, ())
        objects = [each.value for each in named if not isinstance(each.ctx, ast.Load)]
        objects += [*self._bound[node.attr], *self._bound[""]]
        return all(self._is_within(each, owner) or not self._may_be(each, owner) for each in objects)

    def edits(self) -> set[str]:
        """The attributes that are bound, or whose values are written, of objects that may be of a foreign class."""
        found = {name for name in self._bound if any(map(self._may_be_foreign, self._bound[name]))}
        named = self._program.attributes.items()
        return found | {name for name, nodes in named if any(map(self._is_foreign_edit, nodes))}

    def _is_foreign_edit(self, node: ast.Attribute) -> bool:
        return self._is_edited(node) and self._may_be_foreign(node.value)

    def _is_edited(self, node: ast.Attribute) -> bool:
        if not isinstance(node.ctx, ast.Load):
            return True
        around = self._program.parent(node)
        while isinstance(around, ast.Subscript):
            if not isinstance(around.ctx, ast.Load):
                return True
            around = self._program.parent(around)
        if isinstance(around, ast.Attribute):
            return around.attr == "data" or (around.attr.endswith("_") and not around.attr.endswith("__"))
        return isinstance(around, ast.Call) and node in around.args and path_of(around.func).endswith("_")

    def _may_be_foreign(self, node: ast.expr) -> bool:
        found = self._class_of(node)
        if found is not None:
            bases = (base for each in self._program.lineage(found) for base in self._program.base_names(each))
            return any(not base.startswith(("@", "torch.", "builtins.")) for base in bases)
        return not self._is_of_torch(node)

    def readers(self, node: ast.Attribute) -> list[ast.Attribute]:
        owner = self._program.class_around(node)
        found = (e for e in self._program.attributes.get(node.attr, ()) if isinstance(e.ctx, ast.Load))
        return [each for each in found if owner is None or self._may_be(each.value, owner)]

    def _is_within(self, node: ast.expr, owner: ast.ClassDef) -> bool:
        return path_of(node) == "self" and self._program.class_around(node) is owner

    def _may_be(self, node: ast.expr, owner: ast.ClassDef) -> bool:
        found = self._class_of(node)
        if found is not None:
            return found in self._program.lineage(owner) or owner in self._program.lineage(found)
        return not self._is_of_torch(node)

    def _class_of(self, node: ast.expr) -> ast.ClassDef | None:
        found = self._program.class_around(node) if path_of(node) == "self" else self._program.value(node).node
        return found if isinstance(found, ast.ClassDef) else None

    def _is_of_torch(self, node: ast.expr) -> bool:
        value = self._program.value(node)
        if _names_layer(value.name) and value.sure:
            return True
        child: ast.AST = node
        for parent in self._program.ancestors(node):
            test = parent.test if isinstance(parent, ast.If) and child in parent.body else None
            if isinstance(test, ast.Call) and path_of(test.func) == "isinstance" and len(test.args) == 2:
                one, classes = test.args
                kinds = classes.elts if isinstance(classes, ast.Tuple) else [classes]
                if path_of(one) == path_of(node) and all(_names_layer(self._program.qualified(each)) for each in kinds):
                    return True
            child = parent
        return False


def edits_of(program: Program) -> tuple[str, ...]:
    return tuple(sorted(program.get(Attributes).edits() - {""}))


def _names_layer(name: str) -> bool:
    return name.startswith("torch.nn.") and name != "torch.nn.Module"
