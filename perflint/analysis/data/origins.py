"""Traces a value to its definitions: through names, attributes of self, branches, parameters and calls."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import NamedTuple

from perflint.analysis.facts import Program
from perflint.syntax.arguments import defaults_of, parameters_of
from perflint.syntax.walk import FUNCTIONS, Function, own_nodes

_DEPTH = 8
_LEFT_OUT = -1  # the index of a parameter that stands for itself
_Part = tuple[ast.AST, int | None]  # a node, or what stands at an index of its value
Scope = ast.AST | None  # a function, a class (for what its methods assign to self), or None for the module


class _Binding(NamedTuple):
    """What a name is bound to: a node, or the part of its value at `part`."""

    node: ast.AST
    part: int | None = None


class Origins:
    """Where the values of one program come from."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._bindings: defaultdict[tuple[Scope, str], list[_Binding]] = defaultdict(list)
        self._known: dict[ast.AST, list[ast.AST]] = {}
        self._bind_assignments(program)
        self._bind_definitions(program)

    def _bind_assignments(self, program: Program) -> None:
        for assignment in program.of_type(ast.Assign):
            for target in assignment.targets:
                self._bind(target, assignment.value)
        for annotated in program.of_type(ast.AnnAssign):
            if annotated.value is not None:
                self._bind(annotated.target, annotated.value)
        for named in program.of_type(ast.NamedExpr):
            self._bind(named.target, named.value)
        for update in program.of_type(ast.AugAssign):
            self._bind(update.target, update, opaque=True)
        loops: list[ast.For | ast.AsyncFor] = [*program.of_type(ast.For), *program.of_type(ast.AsyncFor)]
        for loop in loops:
            self._bind(loop.target, loop, opaque=True)
        blocks: list[ast.With | ast.AsyncWith] = [*program.of_type(ast.With), *program.of_type(ast.AsyncWith)]
        for block in blocks:
            for item in block.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, item.context_expr)

    def _bind_definitions(self, program: Program) -> None:
        functions: list[Function] = [*program.of_type(ast.FunctionDef), *program.of_type(ast.AsyncFunctionDef)]
        for definition in (*functions, *program.of_type(ast.ClassDef)):
            around = program.parent(definition)
            if not (isinstance(around, ast.ClassDef) and isinstance(definition, FUNCTIONS)):  # no method
                name = getattr(definition, "name", "")
                self._bindings[program.function_of(definition), name].append(_Binding(definition))
        for function in (*functions, *program.of_type(ast.Lambda)):
            for parameter in parameters_of(function):
                self._bindings[function, parameter.arg].append(_Binding(parameter))

    def of(self, node: ast.AST) -> list[ast.AST]:
        """The nodes that the value of `node` may come from: expressions but plain names, definitions, parameters.

        A name of which nothing is known stands for itself.
        """
        if node not in self._known:
            self._known[node] = self._search(node)
        return self._known[node]

    def _search(self, node: ast.AST) -> list[ast.AST]:
        found: dict[ast.AST, None] = {}
        level: list[_Part] = [(node, None)]
        seen = set(level)
        for _ in range(_DEPTH):
            behind: list[_Part] = []
            for part in level:
                sources = self._sources(*part)
                if sources is None:
                    found.setdefault(part[0])
                behind += [each for each in sources or () if each not in seen]
                seen.update(behind)
            level = behind
        return list(found | dict.fromkeys(part for part, _ in level))

    def _bind(self, target: ast.expr, value: ast.AST, index: int | None = None, *, opaque: bool = False) -> None:
        binding = _Binding(value, index)
        if isinstance(target, ast.Name):
            self._bindings[self._program.function_of(target), target.id].append(binding)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            owner = self._class_around(target)
            if owner is not None:
                self._bindings[owner, target.attr].append(binding)
        elif isinstance(target, ast.Tuple | ast.List):
            for position, part in enumerate(target.elts):
                self._bind(part, value, None if opaque else position, opaque=opaque)

    def _class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((parent for parent in self._program.ancestors(node) if isinstance(parent, ast.ClassDef)), None)

    def _sources(self, node: ast.AST, index: int | None) -> list[_Part] | None:
        """Where `node`, or the part of it at `index`, comes from directly; None where it is an origin itself."""
        if index == _LEFT_OUT:
            return None
        if isinstance(node, ast.IfExp):
            return [(node.body, index), (node.orelse, index)]
        if isinstance(node, ast.BoolOp):
            return [(part, index) for part in node.values]
        if isinstance(node, ast.Tuple | ast.List) and index is not None and index < len(node.elts):
            return [(node.elts[index], None)]
        if isinstance(node, ast.Name):
            return _bound_parts(self._bindings_of_name(node), index)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            owner = self._class_around(node)
            return _bound_parts(self._bindings.get((owner, node.attr), []), index) if owner is not None else None
        if isinstance(node, ast.arg):
            return self._given_for(node, index)
        return self._returned_by(node, index) if isinstance(node, ast.Call) else None

    def _bindings_of_name(self, node: ast.Name) -> list[_Binding]:
        scope: Scope = self._program.function_of(node)
        while True:
            if found := self._bindings.get((scope, node.id)):
                return found
            if scope is None:
                return []
            scope = self._program.function_of(scope)

    def _returned_by(self, node: ast.Call, index: int | None) -> list[_Part] | None:
        """What a function of this file returns; any other call is an origin itself."""
        callee = self._program.callee(node)
        if not isinstance(callee, ast.FunctionDef) or callee.name in ("__init__", "__call__", "forward"):
            return None
        returns = [each for each in own_nodes(callee) if isinstance(each, ast.Return)]
        return [(each.value, index) for each in returns if each.value is not None] or None

    def _given_for(self, parameter: ast.arg, index: int | None) -> list[_Part] | None:
        """What the calls of this file give for a parameter, which is an origin where a call leaves it out."""
        function = self._program.function_of(parameter)
        if function is None:
            return None
        sites = [site for site in self._program.call_sites(function) if isinstance(site, ast.Call)]
        sites = [site for site in sites if self._program.callee(site) is function]
        given = [argument_for(self._program, function, parameter.arg, site) for site in sites]
        return [(each, index) if each is not None else (parameter, _LEFT_OUT) for each in given] or None


def _bound_parts(bindings: list[_Binding], index: int | None) -> list[_Part] | None:
    return [(each.node, each.part if each.part is not None else index) for each in bindings] or None


def argument_for(program: Program, function: Function, name: str, site: ast.Call) -> ast.expr | None:
    """The expression that the call `site` passes for the parameter `name` of `function`, or its default."""
    given = program.arguments(site, function).get(name)
    return given if given is not None else defaults_of(function).get(name)
