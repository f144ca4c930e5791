"""Reads the code cells of a notebook as one program, with IPython's syntax masked, and writes changes into its JSON."""

from __future__ import annotations

import ast
import bisect
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perflint.documents.disk import Problem, Unreadable
from perflint.syntax.source import Edit

_MARKER = "# %% perflint cell "

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_NON_ASCII_ESCAPE = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")

Span = tuple[int, int]


class LostCell(ValueError):
    """A changed program's text can't be divided among cells, and why."""


@dataclass(frozen=True)
class Cell:
    """A Python cell: its number among all cells from 0, where its text begins in the program, its place in the JSON."""

    index: int
    start: int
    source: str
    span: Span

    @property
    def end(self) -> int:
        return self.start + len(self.source)

    @property
    def newline(self) -> str:
        return _newline(self.source)


@dataclass(frozen=True)
class Notebook:
    """A notebook as a program: `text` holds `cells` in order, each after a line that begins with `marker`.

    `skipped` says why there is no program, `problem` which cells are no valid Python and left out.
    """

    raw: str
    text: str = ""
    cells: tuple[Cell, ...] = ()
    marker: str = _MARKER
    skipped: str = ""
    problem: Problem | None = None

    @cached_property
    def _starts(self) -> list[int]:
        return [cell.start for cell in self.cells]

    def locate(self, offset: int) -> tuple[Cell, int]:
        cell = self.cells[max(bisect.bisect_right(self._starts, offset) - 1, 0)]
        return cell, min(max(offset - cell.start, 0), len(cell.source))

    def within_cell(self, edit: Edit) -> Edit:
        """`edit` without the line break after a cell, which only the program has."""
        if not self.cells or not edit.text.endswith("\n"):
            return edit
        cell = self.locate(edit.end)[0]
        end, text = cell.end, edit.text.removesuffix("\n").removesuffix("\r")
        if edit.start == edit.end == end + len(cell.newline):
            return Edit(end, end, cell.newline + text)
        if edit.start <= end < edit.end:
            return Edit(edit.start, end, text)
        return edit

    @property
    def left_out(self) -> Iterator[str]:
        for cell in self.cells:
            yield from (f"cell {cell.index}:{line} `{text}`" for line, text in _left_out(cell.source))

    def split(self, text: str) -> dict[int, str]:
        """Raises LostCell."""
        parts = re.split(rf"^{re.escape(self.marker)}(\d+)\r?\n", text, flags=re.MULTILINE)
        if [int(index) for index in parts[1::2]] != [cell.index for cell in self.cells]:
            raise LostCell("it would reach over the border of a cell")
        texts = [part.removesuffix(cell.newline) for part, cell in zip(parts[2::2], self.cells, strict=True)]
        if parts[0]:
            if not texts:
                raise LostCell("there is no cell to put it in")
            texts[0] = parts[0] + texts[0]
        return {cell.index: _unmask(part, cell) for cell, part in zip(self.cells, texts, strict=True)}

    def with_program(self, text: str) -> str:
        """Raises LostCell."""
        sources = self.split(text)
        parts: list[str] = []
        position = 0
        for cell in self.cells:
            if sources[cell.index] != cell.source:
                parts += self.raw[position : cell.span[0]], with_text(self.raw, cell.span, sources[cell.index])
                position = cell.span[1]
        return "".join([*parts, self.raw[position:]])


def parse(raw: str) -> Notebook:
    """Raises Unreadable."""
    if not raw.strip():
        return Notebook(raw)
    try:
        content = json.loads(raw)
        if isinstance(content, dict) and (reason := _other_language(content)):
            return Notebook(raw, skipped=reason)
        return _compose(raw, _code_cells(raw, content))
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not valid JSON: {error.msg}", error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not a notebook: {error}") from error


def _other_language(content: dict[str, Any]) -> str:
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for section, key in (("kernelspec", "language"), ("language_info", "name")):
        value = metadata.get(section)
        language = value.get(key) if isinstance(value, dict) else None
        if isinstance(language, str) and language and not language.lower().startswith(("python", "ipython")):
            return f"its kernel runs {language}, not Python"
    return ""


def _code_cells(raw: str, content: Any) -> list[tuple[int, str, Span]]:
    if not isinstance(content, dict) or not {"cells", "worksheets"} & content.keys():
        raise ValueError("it has no cells")
    top = _object(raw, raw.index("{"))
    if "cells" in top:
        cells, key = _array(raw, top["cells"][0]), "source"
    else:  # format 3
        sheets = [_object(raw, start) for start, _ in _array(raw, top["worksheets"][0])]
        cells = [cell for sheet in sheets if "cells" in sheet for cell in _array(raw, sheet["cells"][0])]
        key = "input"
    found = []
    for index, cell in enumerate(cells):
        spans = _object(raw, cell[0])
        if key in spans and _is_python(json.loads(raw[slice(*cell)])):
            found.append((index, _text(json.loads(raw[slice(*spans[key])])), spans[key]))
    return [(index, text, span) for index, text, span in found if not cell_language(text)]


def _is_python(cell: dict[str, Any]) -> bool:
    metadata = cell.get("metadata")
    vscode = metadata.get("vscode") if isinstance(metadata, dict) else None
    language = vscode.get("languageId") if isinstance(vscode, dict) else cell.get("language")
    return cell.get("cell_type") == "code" and language in (None, "", "python")


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    if isinstance(value, str):
        return value
    raise ValueError("the source of a cell is neither text nor a list of lines")


def _array(raw: str, start: int) -> list[Span]:
    if raw[start] != "[":
        raise ValueError("its cells are not a list")
    return [span for _, span in _entries(raw, start)]


def _object(raw: str, start: int) -> dict[str, Span]:
    if raw[start] != "{":
        raise ValueError("one of its cells is not an object")
    return dict(_entries(raw, start))


def _compose(raw: str, found: list[tuple[int, str, Span]]) -> Notebook:
    marker = _MARKER
    while any(marker in source for _, source, _ in found):
        marker += "% "
    parts: list[str] = []
    cells: list[Cell] = []
    errors: list[str] = []
    length = 0
    for index, source, span in found:
        masked = mask(source)
        if error := _syntax_error(masked):
            errors.append(f"cell {index}{error}")
            continue
        newline = _newline(source)
        head = f"{marker}{index}{newline}"
        cells.append(Cell(index, length + len(head), source, span))
        parts.append(f"{head}{masked}{newline}")
        length += len(parts[-1])
    problem = Problem("; ".join(errors)) if errors else None
    return Notebook(raw, "".join(parts), tuple(cells), marker, problem=problem)


def _newline(source: str) -> str:
    return "\r\n" if "\r\n" in source else "\n"


def _syntax_error(source: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        return f", line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f": {error or type(error).__name__}"
    return ""


def _unmask(text: str, cell: Cell) -> str:
    try:
        source = unmask(text, cell.source)
    except LostMask:
        raise LostCell(f"it would change a magic, shell or help line of cell {cell.index}") from None
    if cell_magic_line(source) != cell_magic_line(cell.source):
        raise LostCell(f"the cell magic of cell {cell.index} has to stay above all else")
    return source


def _entries(raw: str, start: int) -> Iterator[tuple[str, Span]]:
    is_object = raw[start] == "{"
    at = _skip(raw, start + 1)
    while raw[at] not in "}]":
        key = ""
        if is_object:
            key, at = _DECODER.raw_decode(raw, at)
            at = _skip(raw, _skip(raw, at) + 1)
        _, end = _DECODER.raw_decode(raw, at)
        yield key, (at, end)
        at = _skip(raw, end)
        at = _skip(raw, at + 1) if raw[at] == "," else at


def with_text(raw: str, span: Span, text: str) -> str:
    ascii_only = raw.isascii() and _NON_ASCII_ESCAPE.search(raw) is not None
    start, end = span
    if raw[start] == '"':
        return json.dumps(text, ensure_ascii=ascii_only)
    lines = [json.dumps(line, ensure_ascii=ascii_only) for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
    old = _array(raw, start)
    if not old:
        return f"[{', '.join(lines)}]"
    lead = raw[start + 1 : old[0][0]]
    between = raw[old[0][1] : old[1][0]] if len(old) > 1 else "," + (lead if "\n" in lead else " ")
    return f"[{lead}{between.join(lines)}{raw[old[-1][1] : end]}"


def _skip(raw: str, at: int) -> int:
    blank = _BLANK.match(raw, at)
    assert blank is not None
    return blank.end()


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
    """Masked text was changed, and can't be restored."""


def cell_language(source: str) -> str:
    """The magic of a cell in another language; empty for Python."""
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


def _left_out(source: str) -> Iterator[tuple[int, str]]:
    """The lines that `mask` takes out, numbered from 1; not those it runs as Python."""
    masked = mask(source)
    for match in _MASK.finditer(masked):
        start, end = match.span(match.lastindex or 0)
        if masked[start] in "0_" and masked[start:end] != source[start:end] and not source.startswith("%%", start):
            yield source.count("\n", 0, start) + 1, source[source.rfind("\n", 0, start) + 1 : end].strip()


def unmask(text: str, source: str) -> str:
    """Raises LostMask."""
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
    line = _CONTINUED_LINE.match(source, start)
    assert line is not None
    text = line[0]
    if timed := _TIMED.match(text):
        head = text[: timed.end() - len("%time ")]
        if not _syntax_error("if 1: " + text[timed.end() :]):
            return head + "if 1: " + text[timed.end() :]
    if assigned := _ASSIGNED.match(text):
        return text[: assigned.end()] + _blank(text[assigned.end() :], "_")
    if escaped := _ESCAPED.match(text):
        return escaped[0] + _blank(text[escaped.end() :], "0")
    if help_line := _HELP.match(text):
        return help_line[1] + _blank(text[help_line.end(1) :], "0")
    return ""


def _blank(text: str, value: str) -> str:
    """An expression as long as `text`, followed by comments as long as its continuation lines."""

    def blank_line(line: re.Match[str]) -> str:
        head = value if line.start() == 0 else ""
        return f"{head}#{'~' * len(line[0])}"[: len(line[0])]

    return re.sub(r"[^\r\n]+", blank_line, text)


def _statement_end(source: str, start: int) -> int:
    depth = 0
    for token in _TOKEN.finditer(source, start):
        if token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth = max(depth - 1, 0)
        elif token.lastgroup == "newline" and not depth:
            return token.end()
    return len(source)
