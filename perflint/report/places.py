"""Paths and positions as the formats write them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from perflint.documents.places import Position, Problem
from perflint.engine.problems import InternalProblem
from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.engine.rule import Severity
from perflint.report.style import printable

UNREADABLE = "unreadable-file"  # stands where a rule's name would, for a file that could not be checked
INTERNAL = "internal-error"  # likewise, where that is our fault


def code_of(problem: Problem) -> str:
    """What stands where a rule's name would, for a file that has `problem`."""
    return INTERNAL if isinstance(problem, InternalProblem) else UNREADABLE


def entries(result: RunResult) -> Iterator[Diagnostic]:
    """The findings by path and place, with an error before those of a file that could not be checked."""
    for file in result.files:
        if file.problem:
            start = Position(None, 0, file.problem.line or 1, 1)
            said = (code_of(file.problem), "problem", Severity.ERROR, file.problem.message)
            yield Diagnostic(file.path, *said, start, start, (), "", (), start.line, "")
        yield from file.diagnostics


def posix(path: str) -> str:
    """`path` with forward slashes."""
    return path.replace(os.sep, "/")


def uri(path: str) -> str:
    """`path` as a URI reference: relative where it is, its own bytes percent-encoded."""
    try:
        quoted = quote(posix(path), errors="surrogateescape")
    except UnicodeEncodeError:  # a name that only Windows allows
        quoted = quote(posix(path), errors="surrogatepass")
    if Path(path).is_absolute():
        return f"file://{'' if quoted.startswith('/') else '/'}{quoted}"
    return quoted


def place(path: str, position: Position) -> str:
    """`path:line:column` for humans and editors; in a notebook `path:cell 3:line:column`, cells counted from 0."""
    return f"{printable(path)}:{within(position)}"


def within(position: Position) -> str:
    """`line:column`, after the cell where there is one."""
    cell = "" if position.cell is None else f"cell {position.cell}:"
    return f"{cell}{position.line}:{position.column}"


def problem_place(file: FileResult) -> str:
    """Where the problem of `file` is, as far as that is known."""
    line = file.problem.line if file.problem else None
    return printable(file.path) if line is None else f"{printable(file.path)}:{line}"


def in_cell(diagnostic: Diagnostic) -> str:
    """What to put before a message where a format knows lines of files only: lines of a cell would mislead there."""
    start = diagnostic.start
    return "" if start.cell is None else f"cell {start.cell}, line {start.line}: "


def is_fixable(diagnostic: Diagnostic) -> bool:
    """Whether `fix --apply` fixes it without being told to accept other results or a new dependency."""
    return any(fix.is_safe for fix in diagnostic.fixes)
