"""The call graph of one program, and the effects of functions: what they do themselves, or through what they call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from perflint.analysis.facts import Program
from perflint.syntax.walk import LOOPS, Function, Loop, body_of, own_nodes, path_of, reachable

Effect = Callable[..., bool]  # of a program and a call: what this does by itself, or by summaries of other files


def callers(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """`node`, and the calls of the file that lead to it: those of its function, and of the functions around these."""
    return reachable([node], lambda each: program.call_sites(program.function_of(each)))


def loops_around(program: Program, node: ast.AST) -> list[Loop]:
    """The loops that run `node` again and again: those around it, and around the calls of its function in the file."""
    found = dict[Loop, None]()
    for each in callers(program, node):
        own = (around for around in program.ancestors(each) if isinstance(around, LOOPS))
        found |= dict.fromkeys(loop for loop in own if program.function_of(loop) is program.function_of(each))
    return list(found)


def is_abstract(function: Function) -> bool:
    """Does it leave to subclasses what it does, by its decorator or by raising NotImplementedError?"""
    if any(path_of(each).rpartition(".")[2] == "abstractmethod" for each in getattr(function, "decorator_list", ())):
        return True
    last = function.body[-1] if isinstance(function.body, list) else None
    raised = last.exc if isinstance(last, ast.Raise) else None
    name = path_of(raised.func if isinstance(raised, ast.Call) else raised) if raised is not None else ""
    return name == "NotImplementedError" and not any(isinstance(node, ast.If) for node in own_nodes(function))


def overridden(program: Program, node: ast.Call) -> Iterator[str]:
    """The method that is called on an object of this file's own class, which subclasses elsewhere may override."""
    owner = program.value(node.func).owner
    if owner is not None and isinstance(owner.node, ast.ClassDef) and isinstance(node.func, ast.Attribute):
        yield f"@{owner.node.name}.{node.func.attr}"


class CallGraph:
    """Which functions of the file its functions reach, those that they define included, and what effects that has."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._calls: dict[Function, list[ast.Call]] = {}
        self._known: dict[tuple[Function, Effect], bool] = {}

    def has(self, call: ast.AST, effect: Effect) -> bool:
        """Has a call the effect, itself or through the function of this file that it runs?"""
        if not isinstance(call, ast.Call):
            return False
        callee = self.program.callee(call)
        return effect(self.program, call) or (callee is not None and self.reaches(callee, effect))

    def reaches(self, function: Function, effect: Effect) -> bool:
        """Does calling `function` have the effect?"""
        key = function, effect
        if key not in self._known:
            calls = (call for each in self.reached([function]) for call in self.calls(each))
            self._known[key] = any(effect(self.program, call) for call in calls)
        return self._known[key]

    def reached(self, functions: Iterable[Function]) -> list[Function]:
        """The functions of this file that calling `functions` may run, themselves among them."""
        return list(reachable(functions, lambda each: [one for call in self.calls(each) for one in self.callees(call)]))

    def calls(self, function: Function) -> Sequence[ast.Call]:
        """The calls that running the body of `function` may make."""
        if function not in self._calls:
            nodes = (node for statement in body_of(function) for node in ast.walk(statement))
            self._calls[function] = [node for node in nodes if isinstance(node, ast.Call)]
        return self._calls[function]

    def callees(self, call: ast.Call) -> Sequence[Function]:
        """The functions of this file that a call may run."""
        callee = self.program.callee(call)
        return () if callee is None else (callee,)
