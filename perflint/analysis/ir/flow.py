"""Which assignments reach which names, throughout a program."""

from __future__ import annotations

import ast

from perflint.analysis.facts import Program
from perflint.analysis.ir.bindings import Bindings
from perflint.syntax.walk import Function


class Flow:
    """Where names come from, in one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._bindings: dict[ast.AST, Bindings] = {}

    def bindings(self, node: ast.AST) -> Bindings:
        """The reaching definitions of the scope around `node`."""
        return self.bindings_of(self.program.function_of(node) or self.program.tree)

    def bindings_of(self, scope: Function | ast.Module) -> Bindings:
        """The reaching definitions in `scope`."""
        if scope not in self._bindings:
            self._bindings[scope] = Bindings(scope)
        return self._bindings[scope]

    def definitions(self, name: ast.Name) -> frozenset[ast.AST]:
        """The ast.Name or ast.arg nodes whose values `name` may have here; empty for names from further out."""
        return self.bindings(name).definitions.get(name, frozenset())


def bound(program: Program, callee: Function, call: ast.Call) -> list[tuple[ast.arg, ast.expr]]:
    """The parameters of `callee` with the arguments that `call` gives them in plain sight."""
    parameters = [*callee.args.posonlyargs, *callee.args.args]
    static = any(getattr(each, "id", "") == "staticmethod" for each in getattr(callee, "decorator_list", ()))
    if program.class_of(callee) is not None and not static:
        parameters = parameters[1:]
    pairs = list(zip(parameters, call.args, strict=False))
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    return pairs + [
        (each, keywords[each.arg]) for each in (*parameters, *callee.args.kwonlyargs) if each.arg in keywords
    ]
