"""What reports share: colours, escaping, and what they say of a finding besides its message, as its place."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from perflint.documents.disk import Position, Problem
from perflint.engine.results import Diagnostic, FileResult, PlacedFix, RunResult
from perflint.engine.rule import Safety, Severity

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
_NAMES = re.compile(r"`[^`]*`|'[^']*'|\d+")  # of the user's code, and numbers
_UNSAFE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
UNREADABLE = "unreadable-file"  # stands where a rule's name would, for a file that could not be checked
INTERNAL = "internal-error"  # likewise, where that is our fault
_PROMISE = {
    Safety.EXACT: "exact: the same results",
    Safety.ROUNDING: "rounding: the same mathematics, floats in another order",
    Safety.PRECISION: "precision: other number formats; needs --unsafe",
    Safety.BEHAVIOUR: "behaviour: results may differ; needs --unsafe",
}


@dataclass(frozen=True)
class Style:
    """What the caller wants: `width` in terminal cells (None: lines are never cropped), `notes` end the summary."""

    color: bool = False
    width: int | None = None
    quiet: bool = False
    verbose: bool = False
    notes: tuple[str, ...] = ()

    def paint(self, look: str, text: str) -> str:
        """`text` in a look such as "bold red", or as it is where color is off."""
        if not self.color or not text:
            return text
        codes = ";".join(_CODES[word] for word in look.split())
        return f"\x1b[{codes}m{text}\x1b[0m"


def printable(text: str) -> str:
    """`text` on one line, with every character that could move the cursor, reorder or fail to encode escaped."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def outline(text: str) -> str:
    """`text` less its names and numbers: what sentences about several places have in common."""
    return _NAMES.sub("", text)


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) not in _UNSAFE_CATEGORIES:
        return character
    return character.encode("unicode_escape").decode("ascii")


def code_of(problem: Problem) -> str:
    return UNREADABLE if problem.traceback is None else INTERNAL


def entries(result: RunResult) -> Iterator[Diagnostic]:
    """The findings by path and place, with an error before those of a file that could not be checked."""
    for file in result.files:
        if file.problem:
            start = Position(None, 0, file.problem.line or 1, 1)
            said = (code_of(file.problem), "problem", Severity.ERROR, file.problem.message)
            yield Diagnostic(file.path, *said, start, start, (), "", (), start.line, "")
        yield from file.diagnostics


def posix(path: str) -> str:
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
    cell = "" if position.cell is None else f"cell {position.cell}:"
    return f"{cell}{position.line}:{position.column}"


def problem_place(file: FileResult) -> str:
    line = file.problem.line if file.problem else None
    return printable(file.path) if line is None else f"{printable(file.path)}:{line}"


def in_cell(diagnostic: Diagnostic) -> str:
    """What to put before a message where a format knows lines of files only: lines of a cell would mislead there."""
    start = diagnostic.start
    return "" if start.cell is None else f"cell {start.cell}, line {start.line}: "


def is_fixable(diagnostic: Diagnostic) -> bool:
    return any(fix.is_safe for fix in diagnostic.fixes)


def notes(diagnostic: Diagnostic) -> Iterator[tuple[str, str]]:
    """Labels and texts: each fix, what blocks one, and what was measured of its cost and gain."""
    for number, fix in enumerate(diagnostic.fixes):
        yield ("or" if number else "fix"), _fix(fix)
    if diagnostic.blocked:
        yield "not fixed", diagnostic.blocked
    elif not diagnostic.fixes:
        yield "not fixed", "perflint has no fix for this one"
    if diagnostic.cost:
        yield "costs", str(diagnostic.cost)
    if diagnostic.measured:
        yield "measured", diagnostic.measured


def with_notes(diagnostic: Diagnostic) -> str:
    return "\n".join([diagnostic.message, *(f"{label}: {text}" for label, text in notes(diagnostic))])


def _fix(fix: PlacedFix) -> str:
    needs = f"; adds a dependency, {fix.requires}: needs --unsafe" if fix.requires else ""
    needs = needs or ("; assumes what a run has shown: needs --unsafe" if fix.assumes else "")
    return f"{fix.title} ({_PROMISE[fix.safety]}{needs})"
