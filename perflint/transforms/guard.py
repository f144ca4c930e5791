"""Moves what a script runs, from a given statement on, under a main guard; definitions stay at module level."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from perflint.analysis.program import Program
from perflint.analysis.values.values import Kind
from perflint.syntax.scopes import arguments_of, bound_names, definition_names, used_names
from perflint.syntax.source import is_main_guard
from perflint.syntax.walk import FUNCTIONS, bindings_of, own_nodes, path_of, reachable, root_of
from perflint.transforms.operations import Operation, ReplaceStatements, statements

NOTEBOOK = "# %% perflint cell "  # how the program text of a notebook begins

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_CLASS_MAKERS = (  # what is of such a class, workers look up by its name
    *("collections.namedtuple", "typing.NamedTuple", "dataclasses.make_dataclass"),
    *("enum.Enum", "enum.IntEnum", "builtins.type"),
)


@dataclass(frozen=True)
class Guarding:
    operations: tuple[Operation, ...] = ()
    blocked: str = ""


def is_notebook(program: Program) -> bool:
    """Is it a notebook, whose workers don't start by importing it?"""
    return program.text.startswith(NOTEBOOK)


def add_guard(program: Program, first: ast.stmt) -> Guarding:
    """Put what runs from `first`, a statement of the module, under main guards; definitions stay.

    What is made above it for it, and models, go with it if they can: each spawned worker would make them again, on the
    device too.
    """
    starts = {_with_makers(program, first), _with_models(program, first), first}
    plans = [_Plan(program, each) for each in sorted(starts, key=lambda each: each.lineno)]
    plan = next((each for each in plans if not each.blocked()), None)
    if plan is None:
        return Guarding(blocked=plans[-1].blocked())
    guard = 'if __name__ == "__main__":\n    {*body}'
    return Guarding(tuple(ReplaceStatements(tuple(run), tuple(statements(guard, body=run))) for run in plan.runs()))


def _above(program: Program, first: ast.stmt) -> list[ast.stmt]:
    """What runs right above, in source order; nothing if a model is made earlier: rather none than some of them."""
    body = program.tree.body
    before = body[: body.index(first)]
    above = [*itertools.takewhile(lambda each: not _divides(each), reversed(before))][::-1]
    rest = (each for each in before[: len(before) - len(above)] if not isinstance(each, _DEFINITIONS))
    return [] if any(_makes_model(program, each) for each in rest) else above


def _divides(statement: ast.stmt) -> bool:
    return isinstance(statement, _DEFINITIONS + _IMPORTS) or is_main_guard(statement)


def _with_models(program: Program, first: ast.stmt) -> ast.stmt:
    return next((each for each in _above(program, first) if _makes_model(program, each)), first)


def _with_makers(program: Program, first: ast.stmt) -> ast.stmt:
    """The first of the statements above that only make what no definition uses, below constants and arguments."""
    imported = bound_names(*(each for each in program.tree.body if isinstance(each, _IMPORTS)))
    read = used_names([each for each in program.tree.body if isinstance(each, _DEFINITIONS)]) | imported

    def only_makes(each: ast.stmt) -> bool:
        nodes = [*own_nodes(each)] if not isinstance(each, ast.Expr) else [each]
        calls = (node.value for node in nodes if isinstance(node, ast.Expr))
        is_free = read.isdisjoint((*bound_names(each), *_changed_objects(each)))
        is_free &= not any(program.call_of(node, *_CLASS_MAKERS) for node in own_nodes(each))
        return is_free and not any(_may_set_up(program, call, imported) for call in calls)

    makers = [*itertools.takewhile(only_makes, reversed(_above(program, first)))][::-1]
    return next((each for each in makers if not _is_setting(program, each)), first)


def _may_set_up(program: Program, call: ast.expr, imported: Collection[str]) -> bool:
    """May it be the call of a library that settles how that works, for workers too?"""
    if not isinstance(call, ast.Call) or program.qualified(call.func) in ("", "builtins.print"):
        return False
    names = (each.id for given in arguments_of(call) for each in ast.walk(given) if isinstance(each, ast.Name))
    return all(name in imported for name in names)


def _is_setting(program: Program, statement: ast.stmt) -> bool:
    made = getattr(statement, "value", None)
    if isinstance(made, ast.Call):
        return program.qualified(made.func).startswith("argparse.") or "parse" in path_of(made.func)
    return made is not None and (_is_constant(made) or isinstance(made, ast.Attribute))


def _makes_model(program: Program, statement: ast.stmt) -> bool:
    calls = (each for each in own_nodes(statement) if isinstance(each, ast.Call))
    return any(program.value(each).kind is Kind.MODULE for each in calls)


class _Plan:
    def __init__(self, program: Program, first: ast.stmt) -> None:
        self._program = program
        self._body = program.tree.body
        start = self._body.index(first)
        while start and (
            _begin_line(self._body[start]) == self._body[start - 1].end_lineno
            or _only_prints(program, self._body[start - 1])
        ):
            start -= 1
        self._before, self._after = self._body[:start], self._body[start:]
        self._workers_read = used_names(_worker_definitions(program))
        self._any_reads = used_names([each for each in self._body if isinstance(each, _DEFINITIONS)])
        self._staying = {each for each in self._after if isinstance(each, _DEFINITIONS) or is_main_guard(each)}
        self._keep_needed()

    def moved(self) -> list[ast.stmt]:
        return [each for each in self._after if each not in self._staying]

    def runs(self) -> Iterator[list[ast.stmt]]:
        run: list[ast.stmt] = []
        for each in self._after:
            if each not in self._staying:
                run.append(each)
            elif run:
                yield run
                run = []
        if run:
            yield run

    def blocked(self) -> str:
        if not self._program.is_script:
            return "it is no script: who imports it would miss what moves under the guard"
        lost = self._bound_by_moving_only()
        for each in self._staying:
            missing = sorted(definition_names(self._program, each) & lost) if isinstance(each, _DEFINITIONS) else []
            if missing:
                name = getattr(each, "name", "")
                return f"{name} must stay at module level and needs {missing[0]}, which would move under the guard"
        for each in self._staying:
            if isinstance(each, ast.Assign | ast.AnnAssign) and (
                missing := sorted(definition_names(self._program, each) & lost)
            ):
                return f"what workers use is made from {missing[0]}, which would move under the guard"
        if missing := sorted(self._workers_read & lost):
            return f"code that runs in workers uses {missing[0]}, which would move under the guard"
        shared = self._workers_read | {getattr(each, "name", "") for each in _worker_definitions(self._program)}
        for each in self.moved():
            changed = next((name for name in _changed_objects(each) if name in shared), None)
            if changed is not None:
                return f"what workers use of {changed} is set by a statement that would move under the guard"
            hidden = next(self._own_classes(each), None)
            if hidden is not None:
                return f"the class {hidden.name} is defined under a condition, and workers may need it"
        return ""

    def _own_classes(self, statement: ast.stmt) -> Iterator[ast.ClassDef]:
        for node in own_nodes(statement):
            if isinstance(node, ast.ClassDef):
                yield node

    def _keep_needed(self) -> None:
        changed = True
        while changed:
            definitions = [each for each in self._staying if isinstance(each, _DEFINITIONS)]
            needed = {name for each in definitions for name in definition_names(self._program, each)}
            kept = {each for each in self.moved() if self._must_stay(each, needed)}
            changed = bool(kept)
            self._staying |= kept

    def _must_stay(self, statement: ast.stmt, needed: set[str]) -> bool:
        names = bound_names(statement)
        if isinstance(statement, _IMPORTS):
            return bool(names & (self._any_reads | needed))
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not names & (self._workers_read | needed):
            return False
        once = all(sum(name in bound_names(each) for each in self._body) == 1 for name in names)
        return (
            once
            and statement.value is not None
            and all(isinstance(target, ast.Name) for target, _ in bindings_of(statement))
            and _is_constant(statement.value)
        )

    def _bound_by_moving_only(self) -> set[str]:
        stays = {name for each in (*self._before, *self._staying) for name in bound_names(each)}
        return {name for each in self.moved() for name in bound_names(each)} - stays


def _worker_definitions(program: Program) -> list[ast.stmt]:
    handed = {
        node.id
        for node in program.of_type(ast.Name)
        if isinstance(node.ctx, ast.Load) and not _is_callee(program, node)
    }
    definitions = [each for each in program.tree.body if isinstance(each, _DEFINITIONS)]
    roots = [
        each for each in definitions if (each.name in handed if isinstance(each, FUNCTIONS) else _is_data_class(each))
    ]

    def used(definition: ast.stmt) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        names = used_names([definition])
        return [each for each in definitions if each.name in names]

    return list(reachable(roots, used))


def _changed_objects(statement: ast.stmt) -> Iterator[str]:
    for node in own_nodes(statement):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            root = root_of(node)
            if isinstance(root, ast.Name):
                yield root.id


def _is_callee(program: Program, node: ast.Name) -> bool:
    parent = program.parent(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _is_data_class(node: ast.ClassDef) -> bool:
    methods = {each.name for each in node.body if isinstance(each, FUNCTIONS)}
    return bool(methods & {"__getitem__", "__iter__", "__call__"}) or not methods & {"forward"}


def _is_constant(node: ast.expr) -> bool:
    allowed = (ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp)
    leaves = (ast.expr_context, ast.operator, ast.unaryop)
    return all(isinstance(each, allowed + leaves) for each in ast.walk(node))


def _only_prints(program: Program, statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    is_print = program.call_of(call, "builtins.print") is not None
    return is_print and sum(isinstance(each, ast.Call) for each in ast.walk(statement)) == 1


def _begin_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])
