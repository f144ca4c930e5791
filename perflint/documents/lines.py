"""Tells lines of programs as users know them: in a notebook, as those of its cells."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from perflint.documents import NOTEBOOK

if TYPE_CHECKING:
    from perflint.documents.document import Document


def at_line(path: str, line: int, shown: str = "") -> str:
    """`path:line`, with the path `shown` or relative to the working folder; in a notebook `path:cell 3:line`.

    There `line` is one of the program that all cells make.
    """
    name = shown or os.path.relpath(path)
    if not path.lower().endswith(NOTEBOOK):
        return f"{name}:{line}"
    place = _notebook(path).at_line(line)
    return f"{name}:{line}" if place.cell is None else f"{name}:cell {place.cell}:{place.line}"


@cache
def _notebook(path: str) -> Document:
    from pathlib import Path

    from perflint.documents.document import decode, read  # here: few programs are notebooks, and a run has to start

    try:
        return read(Path(path))
    except Exception:  # it is gone, or no notebook any more
        return decode(path, b"")
