"""Text of a program, the arithmetic between its positions, its edits, and what a fix made of these promises."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

_NEWLINE = re.compile(r"\r\n|\r|\n")


class Source:
    """A program's text; offsets count characters from 0, lines and columns from 1."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ascii = text.isascii()

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    @cached_property
    def width(self) -> int:
        """How wide new lines may be: 88 to 120 characters, as those of the text are, but for one in a hundred."""
        lengths = sorted(map(len, self.text.splitlines()))
        return min(max([88, *lengths[-1 - len(lengths) // 100 :][:1]]), 120)

    @property
    def line_count(self) -> int:
        """How many lines the text has; a final line break starts one more."""
        return len(self._starts)

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def line_text(self, line: int) -> str:
        return self.text[self._starts[line - 1] : self.line_end(line)]

    def offset(self, line: int, utf8_column: int) -> int:
        """The offset of a position as `ast` gives it: columns there count UTF-8 bytes from 0."""
        start = self._starts[line - 1]
        if self._ascii:
            return start + utf8_column
        return start + len(
            self.line_text(line).encode("utf-8", "surrogatepass")[:utf8_column].decode("utf-8", "surrogatepass")
        )

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(
        self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.excepthandler
    ) -> tuple[int, int]:
        """The offsets [start, end) of `node`; of a decorated definition, without its decorators."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.excepthandler) -> str:
        start, end = self.span(node)
        return self.text[start:end]


class Safety(str, Enum):
    """What a fix promises about results; `perflint verify` holds it to that."""

    EXACT = "exact"  # bitwise the same results
    ROUNDING = "rounding"  # the same mathematics in another order of floats
    PRECISION = "precision"  # other number formats: TF32, bfloat16
    BEHAVIOUR = "behaviour"  # random streams, types or memory change

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters [start, end) of the checked text by `text`."""

    start: int
    end: int
    text: str


class Unrenderable(Exception):
    """A fix that cannot be written, and why."""


Change = tuple[Edit, ...] | Callable[[], tuple[Edit, ...]]


@dataclass(frozen=True)
class Fix:
    """A patch: all of its edits are applied, or none.

    `change` gives the edits when they are asked for, or is them (see `perflint.transforms.rewrite`). `requires`
    names the distribution that the fixed program imports and the original one doesn't, if there is one. `assumes` says
    what a run has shown and nothing proves: the fixed program asks, and does what the original one does elsewhere.
    """

    title: str
    safety: Safety
    change: Change = field(compare=False)
    requires: str = ""
    assumes: str = ""

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """What the change does to the text; raises Unrenderable."""
        return self.change() if callable(self.change) else self.change

    @property
    def is_safe(self) -> bool:
        """Is it applied without being asked for?"""
        return is_safe(self.safety, self.requires, self.assumes)

    def __reduce__(self) -> tuple[type[Fix], tuple[object, ...]]:
        """What goes to other processes: the edits, if they are written, and not the program that they are made of."""
        return Fix, (self.title, self.safety, self.__dict__.get("edits", ()), self.requires, self.assumes)


def is_safe(safety: Safety, requires: str, assumes: str) -> bool:
    """Is a fix applied without being asked for: the same results, nothing new to install, and nothing assumed?"""
    return safety in (Safety.EXACT, Safety.ROUNDING) and not requires and not assumes
