"""Where blanks go when lines of a program are indented: never into a string, and behind a form feed."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator

from perflint.syntax.source import Source

_NEWLINE = re.compile(r"\r\n|\r|\n")
_STRING_STARTS = frozenset(
    getattr(tokenize, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(tokenize, name)
)
_STRING_ENDS = frozenset(getattr(tokenize, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(tokenize, name))


def code_lines(source: Source, first: int, last: int) -> list[int]:
    """The lines from `first` to `last` which may be indented: no blank ones, none that begins inside a string."""
    inside = _string_lines(source)
    return [line for line in range(first, last + 1) if line not in inside and source.line_text(line).strip()]


def insertion_point(source: Source, line: int) -> int:
    """Where blanks that indent `line` go: at its start, or behind a leading form feed, which resets the column."""
    text = source.line_text(line)
    blanks = text[: len(text) - len(text.lstrip(" \t\f"))]
    return source.line_start(line) + blanks.rfind("\f") + 1


def file_unit(source: Source, tree: ast.Module) -> str:
    """What the program indents a block by: the first indented block tells; four blanks where there is none."""
    for node in tree.body:
        body = getattr(node, "body", None)
        if not isinstance(body, list) or body[0].lineno == node.lineno:
            continue
        if blanks := source.indentation(body[0].lineno).replace("\f", ""):
            return blanks
    return "    "


def _string_lines(source: Source) -> set[int]:
    """The lines that begin inside a string."""
    lines = (_NEWLINE.sub("\n", source.line_text(line)) for line in range(1, source.line_count + 1))
    inside: set[int] = set()
    starts: list[int] = []
    for token in _tokens(lines):
        if token.type == tokenize.STRING:
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
        elif token.type in _STRING_STARTS:
            starts.append(token.start[0])
        elif token.type in _STRING_ENDS:
            inside.update(range(starts.pop() + 1, token.end[0] + 1))
    return inside


def _tokens(lines: Iterator[str]) -> Iterator[tokenize.TokenInfo]:
    yield from tokenize.generate_tokens(lambda: next(lines, ""))
