"""One file as a program to check: decoded from its bytes, and encoded back losslessly."""

from __future__ import annotations

import codecs
import re
import tokenize
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from perflint.documents import NOTEBOOK, notebook
from perflint.documents.disk import PlacedEdit, Position, Problem, Unreadable, Unwritable, read_bytes, replace_bytes
from perflint.documents.notebook import LostCell, Notebook
from perflint.syntax.source import Edit, Source

MAX_CHARACTERS = 8_000_000

_WIDE_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LINE_CITED = re.compile(r"\bline (\d+)\b")
_BYTE_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True)
class Document:
    """A file's bytes `data`, and the program `text` in them, of a notebook that of its code cells."""

    path: str
    data: bytes
    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    notebook: Notebook | None = None

    @property
    def skipped(self) -> str:
        return self.notebook.skipped if self.notebook else ""

    @property
    def problem(self) -> Problem | None:
        return self.notebook.problem if self.notebook else None

    def position(self, offset: int) -> Position:
        if self.notebook is None:
            line, column = self.unit(None).position(offset)
            return Position(None, offset, line, column, line)
        if not self.notebook.cells:
            return Position(None, 0, 1, 1)
        cell, local = self.notebook.locate(offset)
        return Position(cell.index, local, *self.unit(cell.index).position(local), self._program.position(offset)[0])

    def at_line(self, line: int) -> Position:
        return self.position(self._program.line_start(min(max(line, 1), self._program.line_count)))

    def placed(self, edit: Edit) -> PlacedEdit:
        if self.notebook:
            edit = self.notebook.within_cell(edit)
        return PlacedEdit(self.position(edit.start), self.position(edit.end), edit.text)

    def cited(self, reason: str) -> str:
        """`reason`, with lines of a notebook's program told as its cells' lines."""
        return _LINE_CITED.sub(self._cited_line, reason) if self.notebook else reason

    def _cited_line(self, cited: re.Match[str]) -> str:
        if not 1 <= int(cited[1]) <= self._program.line_count:
            return cited[0]
        place = self.at_line(int(cited[1]))
        return f"line {place.line} of cell {place.cell}"

    def unit(self, cell: int | None) -> Source:
        return self._units[cell]

    @cached_property
    def _program(self) -> Source:
        return Source(self.text)

    @cached_property
    def _units(self) -> dict[int | None, Source]:
        if self.notebook is None:
            return {None: Source(self.text)}
        return {cell.index: Source(cell.source) for cell in self.notebook.cells}

    def encode(self, text: str) -> bytes:
        """The file's bytes with its program changed to `text`; raises Unwritable where that can't be expressed."""
        try:
            content = self.notebook.with_program(text) if self.notebook else text
            data = self.bom + content.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise Unwritable(f"the file's encoding, {self.encoding}, has no {character!r}") from error
        except LostCell as error:
            raise Unwritable(str(error)) from error
        if not self.notebook and _declared_encoding(data) != self.encoding:
            raise Unwritable("the change would alter which encoding the file declares")
        return data

    def changed_to(self, text: str) -> Document:
        return decode(self.path, self.encode(text))

    def refusal(self, text: str) -> str:
        try:
            self.encode(text)
        except (Unwritable, Unreadable) as error:
            return str(error)
        return ""

    def write(self, text: str) -> None:
        data = self.encode(text)
        if data != self.data:
            replace_bytes(Path(self.path), self.data, data)


def read(path: Path) -> Document:
    return decode(str(path), read_bytes(path))


def decode(path: str, data: bytes) -> Document:
    """Raises Unreadable."""
    document = _decode_notebook(path, data) if path.lower().endswith(NOTEBOOK) else _decode_python(path, data)
    if len(document.text) > MAX_CHARACTERS:
        raise Unreadable(f"is too large: {len(document.text):,} characters of Python; the limit is {MAX_CHARACTERS:,}")
    return document


def _decode_notebook(path: str, data: bytes) -> Document:
    bom, text = _text(data, "utf-8")
    parsed = notebook.parse(text)
    return Document(path, data, parsed.text, bom=bom, notebook=parsed)


def _decode_python(path: str, data: bytes) -> Document:
    encoding = _declared_encoding(data)
    bom, text = _text(data, encoding)
    if "\0" in text:
        raise Unreadable("holds NUL characters: it is not Python source", text.count("\n", 0, text.index("\0")) + 1)
    return Document(path, data, text, encoding, bom)


def _declared_encoding(data: bytes) -> str:
    if data.startswith(_WIDE_BOMS):
        raise Unreadable("is UTF-16 or UTF-32, which Python does not read as source")
    lines = (match[0] for match in islice(_BYTE_LINE.finditer(data), 2))
    try:
        name, _ = tokenize.detect_encoding(lambda: next(lines, b""))
    except SyntaxError as error:
        _text(data, "utf-8")  # has the better message where that is what is wrong
        raise Unreadable(str(error.msg), 1) from error
    return "utf-8" if name == "utf-8-sig" else name


def _text(data: bytes, encoding: str) -> tuple[bytes, str]:
    """The byte order mark and text of `data`, which encode to `data` again."""
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = data[len(bom) :].decode(encoding)
        if encoding != "utf-8" and text.encode(encoding) != data[len(bom) :]:
            raise Unreadable(f"is not plain {encoding}: it would not survive being written back")
    except UnicodeDecodeError as error:
        at = len(bom) + error.start
        byte, line = data[at : at + 1].hex(), data.count(b"\n", 0, at) + 1
        raise Unreadable(f"is not {encoding}: byte 0x{byte} on line {line}", line) from error
    except (LookupError, ValueError) as error:
        raise Unreadable(f"declares an encoding that Python cannot use: {encoding}", 1) from error
    return bom, text
