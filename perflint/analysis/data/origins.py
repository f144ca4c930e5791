"""Traces a value to its definitions throughout a program: SSA values, attributes of self, branches, calls."""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from collections.abc import Iterator

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.ir.graph import Definition, sources_of
from perflint.syntax.walk import COMPREHENSIONS, bindings_of, returned_values

_DEPTH = 8
_LEFT_OUT = -1  # the index of what stands for itself
_Part = tuple[ast.AST, int | None]  # a node, or what stands at an index of its value


class Origins:
    """Where the values of one program come from."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = program.get(Flow)
        self._known: dict[ast.AST, list[ast.AST]] = {}
        self._classes = program.of_type(ast.ClassDef)
        self._site: ast.Call | None = None
        self._attributes: defaultdict[tuple[ast.AST, str], list[_Part]] = defaultdict(list)
        for node in program.of_type(ast.Assign, ast.AnnAssign, ast.AugAssign):
            for target, value in bindings_of(node):
                self._bind(target, node if isinstance(node, ast.AugAssign) else value, None)

    def _bind(self, target: ast.expr, value: ast.AST, index: int | None) -> None:
        """Note what the methods of a class assign to the attributes of its objects."""
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.expr):
            for position, part in enumerate(target.elts):
                self._bind(part, value, position)
        elif isinstance(target, ast.Attribute) and (owner := self._owner(target)) is not None:
            self._attributes[owner, target.attr].append((value, index))

    def of(self, node: ast.AST) -> list[ast.AST]:
        """The nodes that the value of `node` may come from: expressions but plain names, definitions, parameters.

        The loop stands for a variable of a loop; a name of which nothing is known stands for itself.
        """
        if node not in self._known:
            self._known[node] = self._search(node)
        return self._known[node]

    def calls(self, node: ast.AST) -> list[ast.Call]:
        """The calls that the value of `node` may come from."""
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
        """Where `node`, or the part of it at `index`, comes from directly; nothing where it is an origin itself."""
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
        """What the methods of a class, and of its bases in the file, assign to the attribute."""
        bases = self._program.base_names(owner)
        kin = [each for each in self._classes if each is owner or f"@{each.name}" in bases]
        return [part for each in kin for part in self._attributes.get((each, name), ())]

    def _owner(self, node: ast.Attribute) -> ast.ClassDef | None:
        """The class around, if it is an attribute of self."""
        if not isinstance(node.value, ast.Name) or node.value.id != "self":
            return None
        return self._program.class_around(node)

    def _definitions(self, name: ast.Name) -> list[Definition]:
        """The definitions that reach a name; of a variable of a scope around, all that this one has."""
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
        """What a function of this file returns; any other call is an origin itself."""
        callee = self._program.callee(node)
        if not isinstance(callee, ast.FunctionDef) or callee.name in ("__init__", "__call__", "forward"):
            return []
        return [(each, index) for each in returned_values(callee)]

    def _given_for(self, parameter: ast.arg, index: int | None) -> Iterator[_Part]:
        """What the calls of this file give for a parameter, which is an origin where a call leaves it out."""
        function = self._program.function_of(parameter)
        is_at_site = self._site is not None and self._program.callee(self._site) is function
        for site, given in self._program.given(parameter):
            if self._program.calls(site, function) and (site is self._site or not is_at_site):
                source = given if given is not None else self._program.default(parameter)
                yield (source, index) if source is not None else (parameter, _LEFT_OUT)


def parts_of(node: ast.AST) -> list[ast.expr]:
    """What a container is given that is written out, or made, at `node`."""
    if isinstance(node, ast.Dict):
        return node.values
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return node.elts
    if isinstance(node, COMPREHENSIONS):
        return [node.value if isinstance(node, ast.DictComp) else node.elt]
    return []
