"""Places in the user's files, edits there, and why a file can't be read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Position:
    """A place in a file, or in one cell of a notebook.

    `line` and `column` count from 1, in characters; `offset` counts characters from 0; both from the start of the
    file, or of the source of cell number `cell` (from 0) where the file is a notebook. `program_line` is the line of
    the program that the cells make together.
    """

    cell: int | None
    offset: int
    line: int
    column: int
    program_line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class PlacedEdit:
    """An edit of the user's file: replace what stands between `start` and `end` by `text`."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True)
class Problem:
    """Why a file could not be checked: one line for the user, with the line in the file where there is one."""

    message: str
    line: int | None = None
