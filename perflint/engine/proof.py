"""Checks that a changed program still compiles and has kept its comments."""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from perflint.syntax.source import Source

_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Comment:
    """A comment at the characters [start, end) of a program."""

    start: int
    end: int
    text: str


@lru_cache(maxsize=4)
def comments(text: str) -> tuple[Comment, ...]:
    """The comments of `text` in order; raises SyntaxError where it cannot be split into tokens."""
    if "#" not in text:
        return ()
    source = Source(text)
    try:
        return tuple(_comments(source))
    except tokenize.TokenError as error:
        raise SyntaxError(str(error)) from error


def _comments(source: Source) -> Iterator[Comment]:
    # Every line break becomes \n, which moves no column: tokenize would take a lone \r for a blank.
    lines = (_NEWLINE.sub("\n", source.line_text(line)) for line in range(1, source.line_count + 1))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT:
            start = source.line_start(token.start[0]) + token.start[1]
            yield Comment(start, start + len(token.string), token.string.rstrip())


def flaw(before: str, after: str, dropped: Iterable[Comment] = ()) -> str:
    """What `after` lost of what `before` was, apart from the comments `dropped` on purpose; empty where nothing."""
    sound, message = _soundness(after)
    if sound < _soundness(before)[0]:
        return f"the result is not valid Python: {message}"
    try:
        kept = Counter(comment.text for comment in comments(after))
    except SyntaxError as error:
        return f"the result is not valid Python: {error}"
    due = Counter(comment.text for comment in comments(before)) - Counter(comment.text for comment in dropped)
    lost = next(iter(due - kept), "")
    return f"the result lacks the comment {lost!r}" if lost else ""


@lru_cache(maxsize=4)
def _soundness(text: str) -> tuple[int, str]:
    """2 for text that compiles, 1 if it only parses, 0 if neither; and the reason for less than 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        message = _compile_error(text, 0)
        if not message:
            return 2, ""
        return int(not _compile_error(text, ast.PyCF_ONLY_AST)), message


def _compile_error(text: str, flags: int) -> str:
    try:
        compile(text, "<fixed>", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""
