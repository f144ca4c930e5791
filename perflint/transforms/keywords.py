"""Adds keyword arguments to a call in the call's own layout."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass

from perflint.syntax.edits import Edit
from perflint.syntax.source import Source

_OPEN, _CLOSE = "([{", ")]}"
_WIDTH = 120
_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT}
)


@dataclass(frozen=True)
class _Argument:
    """One argument at the characters [start, end), the comma behind it if there is one, and whether it is `**`."""

    start: int
    end: int
    comma: int | None
    spread: bool


def add_keywords(source: Source, call: ast.Call, keywords: Mapping[str, str]) -> tuple[Edit, ...]:
    """The edits that give `call` these keywords, before any `**`; on lines of their own where its arguments have them.

    The call must not have them yet. Empty where its arguments cannot take any (a bare generator).
    """
    arguments = _arguments(source, call)
    given = [f"{name}={value}" for name, value in keywords.items()]
    place = next((index for index, argument in enumerate(arguments) if argument.spread), len(arguments))
    if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and not call.keywords:
        return ()
    if place == 0:
        inside = arguments[0].start if arguments else source.span(call)[1] - 1
        return (Edit(inside, inside, ", ".join(given) + (", " if arguments else "")),)
    before = arguments[place - 1]
    indent = _own_line(source, before)
    if indent is None:
        return (Edit(before.end, before.end, _inline(source, call, before, given)),)
    text = f",\n{indent}".join(given)
    line_end = _line_end(source, before.end)
    rest = source.text[before.end : line_end]
    if before.comma is not None and before.comma < line_end:
        if rest.partition(",")[2].strip() and not rest.partition(",")[2].strip().startswith("#"):
            return (Edit(before.end, before.end, f",\n{indent}{text}"),)  # more on this line: `shuffle=True,)`
        return (Edit(line_end, line_end, f"\n{indent}{text},"),)
    if rest.strip().startswith("#"):
        return Edit(before.end, before.end, ","), Edit(line_end, line_end, f"\n{indent}{text}")
    return (Edit(before.end, before.end, f",\n{indent}{text}"),)


def _inline(source: Source, call: ast.Call, before: _Argument, given: list[str]) -> str:
    column = source.position(before.end)[1]
    text = "".join(f", {each}" for each in given)
    rest = min(_line_end(source, before.end), source.span(call)[1]) - before.end
    if column + len(text) + rest <= _WIDTH or _is_held(source, call):
        return text
    first = _arguments(source, call)[0]
    _, aligned = source.position(first.start)
    return ",\n" + " " * (aligned - 1) + ", ".join(given)


def _is_held(source: Source, call: ast.Call) -> bool:
    """Does the call stand inside brackets that open on its line, which may hold others that grow too?"""
    start, _ = source.span(call)
    before = source.text[source.line_start(call.lineno) : start]
    return sum(map(before.count, _OPEN)) > sum(map(before.count, _CLOSE))


def _own_line(source: Source, argument: _Argument) -> str | None:
    """The blanks before `argument` where it begins its line."""
    line, _ = source.position(argument.start)
    before = source.text[source.line_start(line) : argument.start]
    return before if not before.strip() else None


def _line_end(source: Source, offset: int) -> int:
    line, _ = source.position(offset)
    return source.line_start(line) + len(source.line_text(line).rstrip("\r\n"))


def _arguments(source: Source, call: ast.Call) -> list[_Argument]:
    """The arguments of `call` with the parentheses around them, from its tokens."""
    start = source.span(call.func)[1]
    end = source.span(call)[1]
    inner = Source(source.text[start:end].replace("\r\n", " \n").replace("\r", "\n"))
    found: list[_Argument] = []
    depth, first, last, spread = 0, -1, -1, False
    for token in tokenize.generate_tokens(io.StringIO(inner.text, newline="\n").readline):
        if token.type in _LAYOUT:
            continue
        begin = start + inner.line_start(token.start[0]) + token.start[1]
        stop = start + inner.line_start(token.end[0]) + token.end[1]
        closes = token.type == tokenize.OP and token.string in _CLOSE
        depth -= closes
        ends = depth == 0 and closes
        if (token.type == tokenize.OP and token.string == "," and depth == 1) or ends:
            if first >= 0:
                found.append(_Argument(first, last, None if ends else begin, spread))
            first = -1
            if ends:
                break
        elif depth >= 1:
            if first < 0:
                first, spread = begin, token.string == "**"
            last = stop
        depth += token.type == tokenize.OP and token.string in _OPEN
    return found
