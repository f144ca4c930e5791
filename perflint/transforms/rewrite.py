"""A change of a program as data, or why there is none, and its names: imported ones, and free ones."""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from perflint import torch_ops
from perflint.analysis.program import Program
from perflint.syntax.scopes import bound_names, local_names
from perflint.syntax.source import Edit, Source, Unrenderable
from perflint.syntax.walk import COMPREHENSIONS, FUNCTIONS, own_nodes
from perflint.transforms.operations import AddName, InsertAfter, InsertBefore, Operation, is_new, reference, statement

if TYPE_CHECKING:
    import libcst  # which checks do without

_BUILTINS = frozenset(dir(builtins))
_LIBRARIES = frozenset({"torch", "numpy", "math", "perflint"})


@dataclass(frozen=True)
class Rewrite:
    program: Program
    operations: tuple[Operation, ...]

    def __call__(self) -> tuple[Edit, ...]:
        """The edits; raises Unrenderable, also where a name in the new code means something else at its place."""
        from perflint.transforms.render import render  # here: only who needs the text of fixes needs libcst

        for each in self.operations:
            if shadowed := next((name for name, at in _meant(each) if is_shadowed(self.program, name, at)), ""):
                raise Unrenderable(f"`{shadowed}` is something else there")
        return render(self.program.source, self.operations)


@dataclass(frozen=True)
class Codemod:
    source: Source
    change: Callable[[libcst.Module], libcst.Module]

    def __call__(self) -> tuple[Edit, ...]:
        from perflint.transforms.render import changed

        return changed(self.source, self.change)


def rewrite(program: Program, *operations: Operation) -> Rewrite:
    """The change of `program` that consists of `operations`."""
    return Rewrite(program, operations)


def _meant(operation: Operation) -> Iterator[tuple[str, ast.AST]]:
    """The names by which an operation's new code calls builtins, or reads what may be a library, and its place."""
    at = next(iter(vars(operation).values()))
    at = at[0] if isinstance(at, tuple) else at
    for part in (part for each in [*vars(operation).values()][1:] for part in _nodes(each)):
        for node in ast.walk(part):
            named = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Attribute) else None
            if (
                isinstance(named, ast.Name)
                and is_new(named)
                and (isinstance(node, ast.Attribute) or named.id in _BUILTINS)
            ):
                yield named.id, at


def _nodes(part: object) -> Iterator[ast.AST]:
    if isinstance(part, ast.AST):
        yield part
    elif isinstance(part, tuple):
        yield from (node for each in part for node in _nodes(each))


def is_shadowed(program: Program, name: str, at: ast.AST) -> bool:
    """May `name`, of a builtin or a library that is imported, mean something else at this place?"""
    imports = [each for each in program.tree.body if isinstance(each, _IMPORTS) and name in bound_names(each)]
    is_library = any((_module(each) or "").partition(".")[0] in _LIBRARIES for each in imports)
    if not is_library and name not in _BUILTINS:
        return False
    for each in program.ancestors(at):
        if isinstance(each, FUNCTIONS) and name in local_names(each):
            inside = (node for node in own_nodes(each) if isinstance(node, _IMPORTS))
            if not is_library or not any(name in bound_names(node) for node in inside):
                return True
        targets = [part.target for part in each.generators] if isinstance(each, COMPREHENSIONS) else []
        if any(isinstance(node, ast.Name) and node.id == name for target in targets for node in ast.walk(target)):
            return True
    others = [each for each in program.tree.body if not is_library or each not in imports]
    is_starred = any(
        alias.name == "*" and _module(each) == "torch" and torch_ops.of_function(f"torch.{name}")
        for each in program.tree.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    )
    is_global = any(name in each.names for each in program.of_type(ast.Global))
    return is_starred or is_global or name in bound_names(*others)


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
    if not name or is_shadowed(program, name, node):
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
