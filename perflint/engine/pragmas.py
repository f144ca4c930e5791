"""Parses `# perflint: ignore` comments, and finds the lines that each of them covers."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from perflint.syntax.source import Source

MARK = "perflint:"

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_NEXT_PART = re.compile(r"(?<=\s)#(?=\s|[\w-]+:|noqa\b)")
_ADDRESSED = re.compile(r"#+\s*perflint:")
_READABLE = re.compile(r"#+\s*perflint:\s*(?P<word>ignore-file|ignore)(?:\s*\[(?P<names>[^\]]*)\]|(?=\s*$|\s+[^\s\[]))")
_LAYOUT = {*(tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)}


@dataclass(frozen=True)
class Name:
    """One name in a pragma's brackets, at the characters [start, end) of the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Pragma:
    """A comment addressed to perflint, at the characters [start, end), reason and all.

    It speaks for the lines `first` to `last`. `names` is None where it ignores every rule; `inner` is what stands
    between its brackets. `cut` is the span to delete so that nothing remains of it. `statement` is the index of the
    logical line that it ends, if it ends one.
    """

    start: int
    end: int
    cut: tuple[int, int]
    names: tuple[Name, ...] | None
    inner: tuple[int, int] | None
    first: int
    last: int
    statement: int | None
    readable: bool


@dataclass(frozen=True)
class LogicalLine:
    """A simple statement or the header of a compound one: its lines `first` to `last`, and the `end` of its code.

    `block_last` is the last line of the function or class that it opens or decorates, else `last`.
    """

    first: int
    last: int
    end: int
    block_last: int


@dataclass(frozen=True)
class Comments:
    """The logical lines and the pragmas of a text, in order."""

    lines: tuple[LogicalLine, ...] = ()
    pragmas: tuple[Pragma, ...] = ()


@dataclass
class _Reader:
    source: Source
    blocks: Mapping[int, int]  # the last line of what a line opens or decorates
    lines: list[LogicalLine] = field(default_factory=list)
    comments: list[tuple[tokenize.TokenInfo, bool]] = field(default_factory=list)  # and whether it is within a line
    first: int = 0  # of the logical line that is being read
    ahead: tokenize.TokenInfo | None = None  # its last token so far

    def take(self, token: tokenize.TokenInfo) -> None:
        if token.type == tokenize.COMMENT:
            self.comments.append((token, self.ahead is not None))
        elif token.type == tokenize.NEWLINE and self.ahead:
            last, column = self.ahead.end
            block_last = max(last, self.blocks.get(self.first, last))
            self.lines.append(LogicalLine(self.first, last, self.source.line_start(last) + column, block_last))
            self.ahead = None
        elif token.type not in _LAYOUT:
            self.first = self.first if self.ahead else token.start[0]
            self.ahead = token


def read(text: str) -> Comments:
    """The logical lines and pragmas of `text`; raises ValueError where it is no Python."""
    try:
        reader = _Reader(Source(text), dict(_blocks(ast.parse(text))))
        # One kind of line break keeps rows equal to Source's lines in every version of tokenize.
        for token in tokenize.generate_tokens(io.StringIO(_LINE_BREAK.sub("\n", text), newline="\n").readline):
            reader.take(token)
    except (tokenize.TokenError, SyntaxError) as error:
        raise ValueError("not Python that can be split into tokens") from error
    pragmas = (pragma for comment, inside in reader.comments for pragma in _pragmas_of(comment, inside, reader))
    return Comments(tuple(reader.lines), tuple(pragmas))


def _blocks(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """The lines that open or decorate functions and classes, with the last lines of these."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for opening in (node, *node.decorator_list):
                yield opening.lineno, node.end_lineno or node.lineno


def _pragmas_of(comment: tokenize.TokenInfo, inside: bool, reader: _Reader) -> Iterator[Pragma]:
    if MARK not in comment.string:
        return
    source, row = reader.source, comment.start[0]
    base = source.line_start(row) + comment.start[1]
    starts = [0, *(match.start() for match in _NEXT_PART.finditer(comment.string)), len(comment.string)]
    for start, end in itertools.pairwise(starts):
        part, place = comment.string[start:end], base + start
        if _ADDRESSED.match(part):
            cut = (place, base + end) if end < len(comment.string) else _tail(source, row, place)
            match = _READABLE.match(part)
            names: tuple[Name, ...] | None = ()
            inner = None
            if match:
                listed = place + match.start("names")
                inner = (listed, place + match.end("names")) if match["names"] is not None else None
                names = tuple(_listed_names(match["names"], listed)) if inner else None
            lines = _covered(match["word"] if match else "", row, inside, reader)
            yield Pragma(place, place + len(part.rstrip()), cut, names, inner, *lines, readable=bool(match))


def _listed_names(listed: str, start: int) -> Iterator[Name]:
    """The names in brackets, whose text begins at `start`."""
    for match in re.finditer(r"[^,]+", listed):
        if name := match[0].strip():
            begin = start + match.start() + len(match[0]) - len(match[0].lstrip())
            yield Name(name, begin, begin + len(name))


def _covered(word: str, row: int, inside: bool, reader: _Reader) -> tuple[int, int, int | None]:
    """The first and last line that a comment at a line speaks for, and the logical line that it ends, if any."""
    below = next((index for index, line in enumerate(reader.lines) if line.last >= row), None)
    if word == "ignore-file" or (not inside and below == 0):
        return 1, reader.source.line_count, None
    if below is None:
        return row, row, None
    line = reader.lines[below]
    return line.first, line.block_last, below if inside else None


def _tail(source: Source, row: int, start: int) -> tuple[int, int]:
    """From the blanks before `start` to the end of its line; with the line break where the line holds nothing else."""
    line = source.line_text(row)
    line_start = source.line_start(row)
    code = line[: start - line_start].rstrip()
    end = len(line) if not code else len(line.rstrip("\r\n"))
    return line_start + len(code), line_start + end
