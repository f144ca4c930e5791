"""The statements that take the place of those of a loop's body."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from perflint.transforms.operations import standing_for


@dataclass(frozen=True)
class Line:
    """The `new` statements that take the place of an old one; of its head, where `last` is the last line of that."""

    statement: ast.stmt
    new: tuple[ast.stmt, ...]
    last: int = 0


def placed(lines: Iterable[Line]) -> list[ast.stmt]:
    """The new statements, which have the comments of those they stand for."""
    found: list[ast.stmt] = []
    for line in lines:
        for number, each in enumerate(line.new):
            if not number:
                standing_for(each, line.statement, last=line.last, alone=len(line.new) == 1)
            found.append(each)
    return found
