"""What a program calls the things that it imports, and which names are still free in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.analysis.program import Program
from perflint.syntax.scopes import bound_names, local_names
from perflint.syntax.walk import FUNCTIONS, PlainLoop
from perflint.transforms.blocked import Blocked
from perflint.transforms.template import reference


@dataclass(frozen=True)
class Taken:
    """The names that stand for something already."""

    names: set[str]

    def fresh(self, name: str) -> str:
        """A name like `name` that stands for nothing; from now on it does."""
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


def taken_around(program: Program, node: ast.AST) -> Taken:
    """All names in the function around `node`, and those that the functions it calls may read from around them."""
    around = program.function_of(node) or program.tree
    return Taken({*names_in(around), *(name for each in program.tree.body for name in bound_names(each))})


def name_of_torch(program: Program) -> str:
    """How the program calls torch; empty where it does not import it as a whole."""
    imports = (alias for node in program.tree.body if isinstance(node, ast.Import) for alias in node.names)
    return next((alias.asname or "torch" for alias in imports if alias.name == "torch"), "")


def of_torch(program: Program, dotted: str, node: ast.AST) -> ast.expr:
    """What torch calls `dotted`, as the code at `node` may write it.

    Raises Blocked where torch isn't imported as a whole, or its name is also something else's.
    """
    name = name_of_torch(program)
    functions = (each for each in program.ancestors(node) if isinstance(each, FUNCTIONS))
    rebound = [each for each in program.of_type(ast.Name) if each.id == name and not isinstance(each.ctx, ast.Load)]
    if not name or rebound or any(name in local_names(each) for each in functions):
        raise Blocked("torch isn't imported there by a name of its own")
    return reference(f"{name}.{dotted}")


def names_in(root: ast.AST) -> Iterator[str]:
    """The names that the code of `root` gives a value, or reads."""
    for node in ast.walk(root):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif not isinstance(node, ast.keyword):
            fields = (getattr(node, field, None) for field in ("id", "arg", "name", "rest"))
            yield from (name for name in fields if isinstance(name, str))


def check_layout(program: Program, loop: PlainLoop) -> None:
    """Raise Blocked where the loop shares lines with something else."""
    before = program.text[program.source.line_start(loop.lineno) : program.span(loop)[0]]
    if before.strip() or loop.body[0].lineno == loop.lineno:
        raise Blocked("the loop shares a line with something else: put its body on lines of its own", loop)


def check_alone(program: Program, statement: ast.stmt) -> None:
    """Raise Blocked where a statement that is to go shares its lines with something else."""
    source, (start, end) = program.source, program.span(statement)
    before = program.text[source.line_start(statement.lineno) : start]
    behind = program.text[end : source.line_end(statement.end_lineno or statement.lineno)]
    if before.strip() or behind.lstrip()[:1] == ";":
        raise Blocked("it shares a line with something else", statement)
