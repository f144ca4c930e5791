"""Masks IPython's syntax in a cell, so that it parses as Python with every offset kept."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

# Cell magics that run their cell as Python in the notebook's own namespace; the cells of all others are not Python.
PYTHON_CELL_MAGICS = frozenset(
    {"time", "timeit", "capture", "prun", "memit", "snakeviz", "scalene", "pyinstrument", "wandb", "debug"}
)

_CELL_MAGIC = re.compile(r"\s*%%(\S*)")
_CONTINUED_LINE = re.compile(r"(?:[^\r\n]*\\(?:\r\n|\r|\n))*[^\r\n]*")
_ESCAPED = re.compile(r"[ \t]*(?=[%!?,;/])")
_HELP = re.compile(r"([ \t]*)[^\s#'\"=()]+\?{1,2}[ \t]*;?[ \t]*(?=[\r\n]|\Z)")
_TARGET = r"[A-Za-z_][\w.]*(?:\[[^\]\r\n]*\])?"
_ASSIGNED = re.compile(rf"[ \t]*{_TARGET}(?:[ \t]*,[ \t]*{_TARGET})*[ \t]*=[ \t]*(?=[!%])")
_TIMED = re.compile(r"[ \t]*%time ")
_TOKEN = re.compile(
    r"""
      (?P<comment>\#[^\r\n]*)
    | (?P<string>\"{3}(?:\\.|[^\\])*?(?:\"{3}|\Z) | '{3}(?:\\.|[^\\])*?(?:'{3}|\Z)
        | "(?:\\(?:\r\n|.)|[^\\"\r\n])*"? | '(?:\\(?:\r\n|.)|[^\\'\r\n])*'?)
    | (?P<open>[(\[{]) | (?P<close>[)\]}])
    | (?P<continuation>\\(?:\r\n|\r|\n)) | (?P<newline>\r\n|\r|\n)
    | (?P<other>[^\#"'()\[\]{}\\\r\n]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE_START, _LINE_END = r"(?:\A|(?<=[\r\n]))", r"(?=[\r\n]|\Z)"
_MASK = re.compile(
    rf"{_LINE_START}[ \t]*(0(?:\#~*)?){_LINE_END} | =[ \t]*(_(?:\#~*)?){_LINE_END}"
    rf" | {_LINE_START}(\#~*){_LINE_END} | {_LINE_START}[ \t]*(if\ 1:\ )",
    re.VERBOSE,
)


class LostMask(ValueError):
    """Masked text was changed, so that what it stands for cannot be put back."""


def cell_language(source: str) -> str:
    """Empty for a cell that is Python, else the cell magic that takes it."""
    magic = _CELL_MAGIC.match(source)
    return "" if magic is None or magic[1] in PYTHON_CELL_MAGICS else f"%%{magic[1]}"


def cell_magic_line(source: str) -> str:
    magic = _CELL_MAGIC.match(source)
    return source[magic.start(1) :].partition("\n")[0] if magic else ""


def mask(source: str) -> str:
    """`source` with magics, shell and help lines replaced by Python of the same length."""
    parts: list[str] = []
    position = 0
    while position < len(source):
        part = _masked_line(source, position) or source[position : _statement_end(source, position)]
        parts.append(part)
        position += len(part)
    return "".join(parts)


def left_out(source: str) -> Iterator[tuple[int, str]]:
    """The magics, shell and help lines that `mask` takes out, each with its line from 1; not what it runs as Python."""
    masked = mask(source)
    for match in _MASK.finditer(masked):
        start, end = match.span(match.lastindex or 0)
        if masked[start] in "0_" and masked[start:end] != source[start:end] and not source.startswith("%%", start):
            yield source.count("\n", 0, start) + 1, source[source.rfind("\n", 0, start) + 1 : end].strip()


def unmask(text: str, source: str) -> str:
    """`text`, a changed `mask(source)`, with the masked text of `source` put back; raises LostMask."""
    masked = mask(source)
    old = [match.span(match.lastindex or 0) for match in _MASK.finditer(masked)]
    new = [match.span(match.lastindex or 0) for match in _MASK.finditer(text)]
    if [masked[start:end] for start, end in old] != [text[start:end] for start, end in new]:
        raise LostMask
    parts: list[str] = []
    position = 0
    for (old_start, old_end), (start, end) in zip(old, new, strict=True):
        parts += text[position:start], source[old_start:old_end]
        position = end
    return "".join([*parts, text[position:]])


def _masked_line(source: str, start: int) -> str:
    """The mask of the line at `start`, the start of a statement; empty where it is Python."""
    line = _CONTINUED_LINE.match(source, start)
    assert line is not None
    text = line[0]
    if timed := _TIMED.match(text):
        head = text[: timed.end() - len("%time ")]
        if _parses("if 1: " + text[timed.end() :]):
            return head + "if 1: " + text[timed.end() :]
    if assigned := _ASSIGNED.match(text):
        return text[: assigned.end()] + _blank(text[assigned.end() :], "_")
    if escaped := _ESCAPED.match(text):
        return escaped[0] + _blank(text[escaped.end() :], "0")
    if help_line := _HELP.match(text):
        return help_line[1] + _blank(text[help_line.end(1) :], "0")
    return ""


def _blank(text: str, value: str) -> str:
    """An expression as long as `text`, and below it comments as long as the lines that continue it."""

    def blank_line(line: re.Match[str]) -> str:
        head = value if line.start() == 0 else ""
        return f"{head}#{'~' * len(line[0])}"[: len(line[0])]

    return re.sub(r"[^\r\n]+", blank_line, text)


def _statement_end(source: str, start: int) -> int:
    """After the line break that ends the logical line at `start`."""
    depth = 0
    for token in _TOKEN.finditer(source, start):
        if token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth = max(depth - 1, 0)
        elif token.lastgroup == "newline" and not depth:
            return token.end()
    return len(source)


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
