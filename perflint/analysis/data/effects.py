"""Effect summaries of functions: the objects of others that they write to, and that they return."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from perflint.analysis.data.callables import callables
from perflint.analysis.data.origins import argument_for
from perflint.analysis.data.sharing import appended, parts_of, shared_in, sources_of
from perflint.analysis.data.writes import is_first_use, read_on_by, written
from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import Flow
from perflint.analysis.values.values import Kind
from perflint.syntax.arguments import is_static, parameters_of
from perflint.syntax.walk import Function, own_nodes, stores

_Wanted = str | tuple[ast.expr, str]  # a path, or an expression with the attribute of its value that is meant, or ""
Paths = frozenset[str]
_Doing = Callable[["Program", ast.AST], Iterator[ast.expr]]


class Effects:
    """The effect summaries of one program's functions.

    Effects are access paths that are valid at the callers of a function, cut after the first attribute: `self.rows` or
    `batch.x` of a parameter, `COUNTS` of the module.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._flow = program.get(Flow)
        self._known: dict[tuple[str, Function], Paths] = {}

    def left_behind(self, function: Function) -> list[str]:
        """What `function` writes to that is no argument, in alphabetical order."""
        return self._own(function, self.changed(function))

    def hands_out(self, function: Function) -> list[str]:
        """What `function` returns, or puts into what it returns, that is no argument."""
        return self._own(function, self.given(function))

    def passes_on(self, function: Function) -> bool:
        """Does `function` return an argument or a part of one, or put that into what it returns?"""
        return len(self.given(function)) > len(self.hands_out(function))

    def changed(self, function: Function) -> Paths:
        """What `function` writes to."""
        return self._once(
            "changed", function, lambda each: (*self._done(each, written, self.changed), *self._set(each))
        )

    def read_on(self, function: Function) -> list[str]:
        """What running `function` reads on in, such as an open file, and its caller does not hand to it."""
        return self._own(function, self._read_on(function))

    def _read_on(self, function: Function) -> Paths:
        return self._once("read on", function, lambda each: self._done(each, read_on_by, self._read_on))

    def given(self, function: Function) -> Paths:
        """What `function` returns, or puts into what it returns, that is not its own."""
        return self._once("given", function, lambda each: self._returned(each, parts=True))

    def _own(self, function: Function, paths: Paths) -> list[str]:
        is_method = self._program.class_of(function) is not None and not is_static(function)
        parameters = {each.arg for each in parameters_of(function)[is_method:]}
        return sorted(path for path in paths if path.partition(".")[0] not in parameters)

    def _once(self, what: str, function: Function, search: Callable[[Function], Iterable[str]]) -> Paths:
        key = what, function
        if key not in self._known:
            self._known[key] = frozenset()  # for a function that calls itself
            self._known[key] = frozenset(search(function))
        return self._known[key]

    def _done(self, function: Function, by: _Doing, to: Callable[[Function], Paths]) -> Iterator[str]:
        """What `function` does something to: `by` tells it of a node, and `to` of a function that is called."""
        declared = _declared(function)
        for node in own_nodes(function):
            if is_first_use(self._program, node):
                continue
            for target in by(self._program, node):
                if not isinstance(target, ast.Name) or target.id not in declared:
                    yield from self._outside_of([(target, "")])
            if isinstance(node, ast.Call):
                for callee in self.callees(node):
                    for path in to(callee):
                        yield from self._outside_of(self._in_caller(path, callee, node))

    def _set(self, function: Function) -> Iterator[str]:
        """The module's variables that `function` assigns."""
        for name in _declared(function):
            statements = map(self._program.statement_of, stores(function, name))
            if not all(is_first_use(self._program, each) for each in statements):
                yield name

    def _returned(self, function: Function, *, parts: bool) -> Iterator[str]:
        if isinstance(function, ast.Lambda):
            yield from self._outside_of([(function.body, "")], parts=parts)
        for node in own_nodes(function):
            if isinstance(node, ast.Return) and node.value is not None:
                yield from self._outside_of([(node.value, "")], parts=parts)

    def callees(self, call: ast.Call) -> list[Function]:
        """The functions of this file that `call` may run."""
        callee = self._program.callee(call)
        return [callee] if callee is not None else list(callables(self._program, call.func))

    def _in_caller(self, path: str, callee: Function, call: ast.Call) -> Iterator[_Wanted]:
        """What the function that calls `callee` knows its `path` as."""
        root, _, attribute = path.partition(".")
        parameters = [each.arg for each in parameters_of(callee)]
        if root not in parameters:
            yield path
        elif root == parameters[0] and self._program.class_of(callee) is not None and not is_static(callee):
            if self._program.value(call.func).kind is not Kind.CLASS:  # which makes an object of its own
                is_named = isinstance(call.func, ast.Attribute) and call.func.attr == getattr(callee, "name", "")
                receiver = call.func.value if is_named and isinstance(call.func, ast.Attribute) else call.func
                yield receiver, attribute
        elif (argument := argument_for(self._program, callee, root, call)) is not None:
            yield argument, attribute

    def _outside_of(self, wanted: Iterable[_Wanted], *, parts: bool = False) -> Iterator[str]:
        """The paths outside the function that it may be, or a view of one; with `parts`, also what it holds."""
        stack, seen = list(wanted), set[_Wanted]()
        while stack:
            each = stack.pop()
            if isinstance(each, str):
                yield each
            elif each not in seen:
                seen.add(each)
                stack += self._behind(*each, parts=parts)

    def same(self, node: ast.expr, *, parts: bool = False) -> Iterator[tuple[ast.expr, str]]:
        """The expressions whose values `node` may be, or be a view or an element of, each with the attribute meant.

        With `parts`, also those whose values it may hold.
        """
        stack: list[_Wanted] = [(node, "")]
        seen = set[_Wanted]()
        while stack:
            each = stack.pop()
            if not isinstance(each, str) and each not in seen:
                seen.add(each)
                yield each
                stack += self._behind(*each, parts=parts)

    def _behind(self, node: ast.expr, attribute: str, *, parts: bool) -> Iterator[_Wanted]:
        """Where the object at `node` comes from."""
        if isinstance(node, ast.Name):
            for source in self._sources(node, attribute, parts):
                if isinstance(source, str):
                    yield f"{source}.{attribute}" if attribute else source
                else:
                    yield source, attribute
        elif isinstance(node, ast.Attribute):
            yield node.value, node.attr
        else:
            yield from ((each, attribute) for each in shared_in(self._program, node))
            yield from ((each, "") for each in parts_of(self._program, node)) if parts else ()
        if isinstance(node, ast.Call):
            for callee in self.callees(node):
                for path in self._once("returned", callee, lambda each: self._returned(each, parts=False)):
                    yield from self._in_caller(path, callee, node)

    def _sources(self, name: ast.Name, attribute: str, parts: bool) -> Iterator[ast.expr | str]:
        """The expressions whose value a variable may have, or the name by which callers know it."""
        definitions = self._flow.definitions(name)
        if not definitions:
            yield from self._outside(name, attribute)
        for definition in definitions:
            if isinstance(definition, ast.arg):
                yield definition.arg
            elif isinstance(definition, ast.Name):
                yield from sources_of(self._program, definition)
                yield from appended(self._program, definition) if parts else ()

    def _outside(self, name: ast.Name, attribute: str) -> Iterator[str]:
        """A variable or class of the module, or what it imports; the settings of another module are not meant."""
        kind = self._program.value(name).kind
        is_import = kind is Kind.LIBRARY and not attribute
        if kind in (Kind.CLASS, Kind.FUNCTION) or is_import or stores(self._program.tree, name.id):
            yield name.id


def _declared(function: Function) -> set[str]:
    return {name for node in own_nodes(function) if isinstance(node, ast.Global) for name in node.names}
