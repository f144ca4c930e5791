"""Reads and writes a program's text: parts of expressions, whole lines, comments."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from perflint.syntax.edits import Edit
from perflint.syntax.walk import Loop
from perflint.transforms.blocked import Blocked

if TYPE_CHECKING:
    from perflint.analysis.program import Program

_ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.Tuple, ast.List)


def on_one_line(text: str) -> str:
    """`text` so that it may stand behind an assignment: in brackets where it would break off at a line's end."""
    if "\n" not in text and "\r" not in text:
        return text
    try:
        whole = ast.dump(ast.parse(f"_ = {text}"))
    except SyntaxError:
        whole = ""
    return text if whole == ast.dump(ast.parse(f"_ = ({text}\n)")) else f"({text})"


def atom(text: str) -> str:
    """`text` so that an attribute or a call may follow it."""
    node = ast.parse(f"({text}\n)", mode="eval").body
    return on_one_line(text) if isinstance(node, _ATOMS) else f"({text})"


def indent_of(program: Program, loop: Loop) -> str:
    """The blanks before `loop`."""
    start = program.span(loop)[0]
    line = program.source.line_start(loop.lineno)
    return program.text[line:start]


def whole_lines(program: Program, statement: ast.stmt) -> Edit:
    """Takes away a statement with its lines, but for its comments; raises Blocked where it shares lines."""
    source = program.source
    start, end = source.line_start(statement.lineno), source.line_end(statement.end_lineno or statement.lineno)
    before, behind = program.text[start : program.span(statement)[0]], program.text[program.span(statement)[1] : end]
    if before.strip() or behind.lstrip()[:1] == ";":
        raise Blocked("it shares a line with something else", statement)
    indent = source.indentation(statement.lineno)
    return Edit(start, end, "".join(f"{indent}{comment}\n" for _, comment in comments(program, statement)))


def difference(old: str, new: str) -> Edit:
    """The edit that makes `new` of `old`: whole lines."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    front = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    most = min(len(before), len(after)) - front
    back = next((i for i in range(most) if before[-1 - i] != after[-1 - i]), most)
    start, end = sum(map(len, before[:front])), sum(map(len, before[: len(before) - back]))
    return Edit(start, end, "".join(after[front : len(after) - back]))


def comments(program: Program, statement: ast.stmt) -> list[tuple[int, str]]:
    """The comments on the lines of a statement, by line."""
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    lines = [program.source.line_text(line) for line in range(first, last + 1)]
    return [(first + token.start[0] - 1, token.string) for token in _tokens(lines) if token.type == tokenize.COMMENT]


def _tokens(lines: list[str]) -> Iterator[tokenize.TokenInfo]:
    """The tokens of some lines out of a program, which may be the inside of a block."""
    readline = (re.sub(r"[\r\n]+$", "\n", line) for line in lines)
    with suppress(tokenize.TokenError, IndentationError):
        yield from tokenize.generate_tokens(lambda: next(readline, ""))
