"""A change of a program as data, or why there is none, and its names: imported ones, and free ones."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from perflint.analysis.program import Program
from perflint.syntax.scopes import bound_names, local_names
from perflint.syntax.source import Edit, Source
from perflint.syntax.walk import FUNCTIONS
from perflint.transforms.operations import AddName, InsertAfter, InsertBefore, Operation, reference, statement

if TYPE_CHECKING:
    import libcst  # which checks do without


@dataclass(frozen=True)
class Rewrite:
    source: Source
    operations: tuple[Operation, ...]

    def __call__(self) -> tuple[Edit, ...]:
        from perflint.transforms.render import render  # here: only who needs the text of fixes needs libcst

        return render(self.source, self.operations)


@dataclass(frozen=True)
class Codemod:
    source: Source
    change: Callable[[libcst.Module], libcst.Module]

    def __call__(self) -> tuple[Edit, ...]:
        from perflint.transforms.render import changed

        return changed(self.source, self.change)


def rewrite(program: Program, *operations: Operation) -> Rewrite:
    """The change of `program` that consists of `operations`."""
    return Rewrite(program.source, operations)


class Blocked(Exception):
    """No fix: `reason` stands in the way, at `node` if that is one place."""

    def __init__(self, reason: str, node: ast.AST | None = None) -> None:
        super().__init__(reason)
        self.reason, self.node = reason, node

    def __str__(self) -> str:
        line = getattr(self.node, "lineno", None)
        return self.reason if line is None else f"line {line}: {self.reason}"


Made = TypeVar("Made")


def first_of(attempts: Iterable[Callable[[], Made]]) -> Made:
    """Raises the first Blocked if all are."""
    first: Blocked | None = None
    for attempt in attempts:
        try:
            made = attempt()
            break
        except Blocked as reason:
            first = first or reason
    else:
        assert first is not None
        raise first
    return made


_LONG = 48


def shown(program: Program, node: ast.expr | ast.stmt) -> str:
    """The text of `node` on one line, in backquotes; of a long call, what is called."""
    text = " ".join(program.segment(node).split())
    if len(text) > _LONG and isinstance(node, ast.Call):
        called = " ".join(program.segment(node.func).split())
        if len(called) > _LONG and isinstance(node.func, ast.Attribute):
            called = f"(...).{node.func.attr}"
        text = f"{called}(...)"
    return f"`{text if len(text) <= _LONG + 5 else text[:_LONG] + '...'}`"


@dataclass(frozen=True)
class Taken:
    names: set[str]

    def fresh(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


def taken_around(program: Program, node: ast.AST) -> Taken:
    around = program.function_of(node) or program.tree
    return Taken({*names_in(around), *(name for each in program.tree.body for name in bound_names(each))})


def name_of_torch(program: Program) -> str:
    imports = (alias for node in program.tree.body if isinstance(node, ast.Import) for alias in node.names)
    whole = (each for each in imports if each.name == "torch" or (each.name.startswith("torch.") and not each.asname))
    return next((each.asname or "torch" for each in whole), "")


def of_torch(program: Program, dotted: str, node: ast.AST) -> ast.expr:
    """What torch calls `dotted`, as written at `node`.

    Raises Blocked where torch isn't imported as a whole, or its name is ambiguous.
    """
    name = name_of_torch(program)
    functions = (each for each in program.ancestors(node) if isinstance(each, FUNCTIONS))
    rebound = [each for each in program.of_type(ast.Name) if each.id == name and not isinstance(each.ctx, ast.Load)]
    if not name or rebound or any(name in local_names(each) for each in functions):
        raise Blocked("torch isn't imported there by a name of its own")
    return reference(f"{name}.{dotted}")


def names_in(root: ast.AST) -> Iterator[str]:
    for node in ast.walk(root):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif not isinstance(node, ast.keyword):
            fields = (getattr(node, field, None) for field in ("id", "arg", "name", "rest"))
            yield from (name for name in fields if isinstance(name, str))


def check_alone(program: Program, statement: ast.stmt, *beside: ast.stmt) -> None:
    """Raise Blocked where a statement that goes, or the block of one, shares lines with something else.

    Those `beside` it go as well, each as a whole.
    """
    source, together = program.source, (statement, *beside)
    start = min(program.span(each)[0] for each in together if each.lineno == statement.lineno)
    end = max(program.span(each)[1] for each in together if each.end_lineno == statement.end_lineno)
    before = program.text[source.line_start(statement.lineno) : start]
    behind = program.text[end : source.line_end(statement.end_lineno or statement.lineno)]
    block: list[ast.stmt] = getattr(statement, "body", []) if not beside else []
    if before.strip() or behind.lstrip()[:1] == ";" or any(each.lineno == statement.lineno for each in block):
        raise Blocked("it shares a line with something else: put it on lines of its own", statement)


def check_written(program: Program, node: ast.expr) -> None:
    """Raise Blocked where a string shows the code that changes, `f"{loss=}"`, or its place is not what it says."""
    for inner, around in itertools.pairwise((node, *program.ancestors(node))):
        if isinstance(around, ast.FormattedValue) and inner is around.value:
            is_shown = program.text[program.span(around.value)[1] :].lstrip()[:1] == "="
            if is_shown or not (_is_there(program, node) and _is_there(program, around.value)):
                raise Blocked(f"`{ast.unparse(node)}` is read inside a string", node)


def _is_there(program: Program, node: ast.expr) -> bool:
    try:
        return ast.dump(ast.parse(f"({program.segment(node)})", mode="eval").body) == ast.dump(node)
    except SyntaxError:
        return False


_IMPORTS = (ast.Import, ast.ImportFrom)


def importing(program: Program, module: str, name: str) -> tuple[str, tuple[Operation, ...]]:
    """Raises Blocked."""
    imports = [each for each in program.tree.body if isinstance(each, ast.ImportFrom)]
    found = [each for each in imports if each.module == module and not each.level]
    for alias in (alias for node in found for alias in node.names):
        if alias.name in (name, "*"):
            return alias.asname or name, ()
    if name in program.get(_all_names):
        raise Blocked(f"`{name}` is something else in this file")
    if found:
        return name, (AddName(found[-1], name),)
    return name, (_placed(program, statement(f"from {module} import {name}")),)


def _all_names(program: Program) -> frozenset[str]:
    return frozenset(names_in(program.tree))


def _placed(program: Program, new: ast.stmt) -> Operation:
    body = program.tree.body
    head = list(itertools.takewhile(_is_of_head, body))
    of_torch = [each for each in head if _module(each).startswith(("perflint", "torch"))]
    if first := next((each for each in of_torch if isinstance(each, ast.ImportFrom)), None):
        return InsertBefore(first, (new,))
    last = of_torch or head
    return InsertAfter(last[-1], (new,)) if last else InsertBefore(body[0], (new,))


def _is_of_head(statement: ast.stmt) -> bool:
    """Is it an import, a docstring, or a constant, as which a notebook's magics are read?"""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, _IMPORTS) or is_constant


def _module(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ImportFrom):
        return "" if statement.level else statement.module or ""
    return statement.names[0].name if isinstance(statement, ast.Import) else ""
