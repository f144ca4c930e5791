"""The call graph of one program: who calls what, what effects that has, and who handles the errors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from perflint.analysis.facts import Program
from perflint.analysis.ir.flow import may_swallow
from perflint.analysis.links import Manner
from perflint.analysis.values.values import Kind
from perflint.syntax.walk import (
    FUNCTIONS,
    LOOPS,
    TRIES,
    Function,
    Loop,
    body_of,
    nodes_below,
    own_nodes,
    path_of,
    reachable,
)

HasEffect = Callable[..., bool]  # of a program and a call: what this does by itself, or by summaries of other files


def callers(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """`node`, and the calls of the file that lead to it, through its function and those around them."""
    return reachable([node], lambda each: program.call_sites(program.function_of(each)))


def loops_around(program: Program, node: ast.AST) -> list[Loop]:
    """The loops around `node`, and around the calls of its function in the file."""
    found = dict[Loop, None]()
    for each in callers(program, node):
        own = (around for around in program.ancestors(each) if isinstance(around, LOOPS))
        found |= dict.fromkeys(loop for loop in own if program.function_of(loop) is program.function_of(each))
    return list(found)


def is_abstract(function: Function) -> bool:
    """Does it leave what it does to subclasses, by its decorator or by raising NotImplementedError?"""
    if any(path_of(each).rpartition(".")[2] == "abstractmethod" for each in getattr(function, "decorator_list", ())):
        return True
    last = function.body[-1] if isinstance(function.body, list) else None
    raised = last.exc if isinstance(last, ast.Raise) else None
    name = path_of(raised.func if isinstance(raised, ast.Call) else raised) if raised is not None else ""
    return name == "NotImplementedError" and not any(isinstance(node, ast.If) for node in own_nodes(function))


def says_nothing(function: Function) -> bool:
    """Is its body `pass` and texts, or does it leave what it does to subclasses?"""
    body = function.body if isinstance(function.body, list) else [function.body]
    said = (each.value if isinstance(each, ast.Expr) else each for each in body)
    return is_abstract(function) or all(isinstance(each, ast.Pass | ast.Constant) for each in said)


def overridden(program: Program, node: ast.Call) -> Iterator[str]:
    """The called method of an object of this file's own class, which subclasses elsewhere may override."""
    owner = program.value(node.func).owner
    if owner is not None and isinstance(owner.node, ast.ClassDef) and isinstance(node.func, ast.Attribute):
        yield f"@{owner.node.name}.{node.func.attr}"


class CallGraph:
    """Which functions of the file its functions reach, those that they define included, and with what effects."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._calls: dict[Function, list[ast.Call]] = {}
        self._known: dict[tuple[Function, HasEffect], bool] = {}

    def has(self, call: ast.AST, effect: HasEffect) -> bool:
        if not isinstance(call, ast.Call):
            return False
        callee = self.program.callee(call)
        return effect(self.program, call) or (callee is not None and self.reaches(callee, effect))

    def reaches(self, function: Function, effect: HasEffect) -> bool:
        key = function, effect
        if key not in self._known:
            calls = (call for each in self.reached([function]) for call in self.calls(each))
            self._known[key] = any(effect(self.program, call) for call in calls)
        return self._known[key]

    def reached(self, functions: Iterable[Function]) -> list[Function]:
        return list(reachable(functions, lambda each: [one for call in self.calls(each) for one in self.callees(call)]))

    def calls(self, function: Function) -> Sequence[ast.Call]:
        if function not in self._calls:
            nodes = (node for statement in body_of(function) for node in nodes_below(statement))
            self._calls[function] = [node for node in nodes if isinstance(node, ast.Call)]
        return self._calls[function]

    def callees(self, call: ast.Call) -> Sequence[Function]:
        callee = self.program.callee(call)
        return () if callee is None else (callee,)


_OTHERS = frozenset(
    f"builtins.{each}" for each in "KeyboardInterrupt SystemExit GeneratorExit ImportError ModuleNotFoundError".split()
)  # than errors of the code that computes


def handlers_in_file(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    blocks = program.get(_handling)
    for site in callers(program, node) if blocks else ():
        yield from _around(program, site, blocks)


def handlers(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    """What may handle an error of `node`: handlers, managers, and functions that other files call where they do."""
    blocks = program.get(_handling)
    for site in callers(program, node):
        yield from _around(program, site, blocks)
        function = program.function_of(site)
        if function is not None and program.is_called(function, Manner.HANDLED):
            yield function


def is_handled(program: Program, node: ast.AST) -> bool:
    """May any code run when `node` has raised an error: a handler, a `finally`, a manager's own?"""
    blocks = program.get(_finishing)
    sites = callers(program, node) if blocks else ()
    return any(handlers(program, node)) or any(True for site in sites for _ in _around(program, site, blocks))


def _around(program: Program, node: ast.AST, blocks: Mapping[ast.AST, Sequence[ast.AST]]) -> Iterator[ast.AST]:
    child = node
    for parent in program.ancestors(node) if blocks else ():
        if isinstance(parent, FUNCTIONS):
            return
        if parent in blocks and child in parent.body:  # type: ignore[attr-defined]
            yield from blocks[parent]
        child = parent


def _finishing(program: Program) -> Mapping[ast.AST, Sequence[ast.AST]]:
    """The statements after whose bodies something runs in any case, each with that: managers of this file."""
    found: dict[ast.AST, list[ast.AST]] = {each: [*getattr(each, "finalbody", ())] for each in program.of_type(*TRIES)}
    for entered, managers in _entered(program):
        found[entered] = [e for e in managers if program.value(getattr(e, "func", e)).kind is not Kind.LIBRARY]
    return {block: each for block, each in found.items() if each}


def _handling(program: Program) -> Mapping[ast.AST, Sequence[ast.AST]]:
    found: dict[ast.AST, list[ast.AST]] = {}
    for block in program.of_type(*TRIES):
        found[block] = [each for each in getattr(block, "handlers", ()) if not _lets_through(program, each)]
    for entered, managers in _entered(program):
        found[entered] = [each for each in managers if may_swallow(program, each)]
    return {block: each for block, each in found.items() if each}


def _entered(program: Program) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    entries: Sequence[ast.With | ast.AsyncWith] = program.of_type(ast.With, ast.AsyncWith)
    return ((entered, [item.context_expr for item in entered.items]) for entered in entries)


def _lets_through(program: Program, handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return False
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(program.qualified(each) in _OTHERS for each in kinds)
