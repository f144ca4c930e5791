"""The code frame: the source lines around a finding, the offending columns underlined."""

from __future__ import annotations

from perflint.engine.results import Diagnostic
from perflint.engine.rule import Severity
from perflint.report.style import Style, printable

_TAB = 4
_MOST_UNDERLINED = 3  # of longer spans only the first line is underlined
_ELLIPSIS = "..."
_LEAST_WIDTH = 20
_WIDTH = 300  # where the output is not a terminal; a line of data can be a megabyte long
LOOKS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.ADVICE: "bold cyan"}


def code_frame(diagnostic: Diagnostic, style: Style) -> list[str]:
    """The lines of the frame, each with its gutter."""
    gutter = len(str(diagnostic.frame_line + max(len(diagnostic.frame) - 1, 0)))
    room = max((style.width or _WIDTH) - gutter - 3, _LEAST_WIDTH)
    left = _first_cell(diagnostic, room)
    bar = style.paint("bold blue", f"{' ' * gutter} |")
    lines = [bar]
    for number, code in _without_blank_edges(diagnostic):
        shown = crop(_expanded(code), left, room).rstrip()
        lines.append(f"{style.paint('bold blue', f'{number:>{gutter}} |')} {shown}".rstrip())
        start, end = _underlined(diagnostic, number, code)
        if start < end or number == diagnostic.start.line:
            lines.append(f"{bar} {_underline(code, start, end, left, room, diagnostic, style)}")
    return [*lines, bar]


def _without_blank_edges(diagnostic: Diagnostic) -> list[tuple[int, str]]:
    """The frame's lines with their numbers, less blank ones above and below the finding."""
    numbered = enumerate((line.rstrip("\r\n") for line in diagnostic.frame), diagnostic.frame_line)
    lines = list(numbered)
    while lines and lines[0][0] < diagnostic.start.line and not lines[0][1].strip():
        del lines[0]
    while lines and lines[-1][0] > _last_line(diagnostic) and not lines[-1][1].strip():
        del lines[-1]
    return lines


def cells(text: str) -> int:
    """How many terminal cells `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _expanded(code: str) -> str:
    """`code` with tabs as blanks and unprintable characters escaped; a prefix of `code` gives a prefix of this."""
    first, *others = code.split("\t")
    shown = printable(first)
    for piece in others:
        shown += " " * (_TAB - cells(shown) % _TAB) + printable(piece)
    return shown


def _underlined(diagnostic: Diagnostic, number: int, code: str) -> tuple[int, int]:
    """The characters [start, end) of line `number`, which reads `code`, to underline; an empty range for none."""
    first, last = diagnostic.start.line, _last_line(diagnostic)
    if not first <= number <= last or (number > first and last - first >= _MOST_UNDERLINED):
        return 0, 0
    start = diagnostic.start.column - 1 if number == first else len(code) - len(code.lstrip())
    ends_here = (number, diagnostic.start.cell) == (diagnostic.end.line, diagnostic.end.cell)
    return start, diagnostic.end.column - 1 if ends_here else len(code.rstrip())


def _last_line(diagnostic: Diagnostic) -> int:
    """The last line to underline: of a finding that ends in another cell, the first."""
    start, end = diagnostic.start, diagnostic.end
    return end.line if end.cell == start.cell else start.line


def _underline(code: str, start: int, end: int, left: int, room: int, diagnostic: Diagnostic, style: Style) -> str:
    begin = cells(_expanded(code[:start]))
    stop = max(cells(_expanded(code[:end])), begin + 1)
    begin, stop = max(begin - left, 0), stop - left
    begin, stop = min(begin, room - 1), min(stop, room)
    last = _last_line(diagnostic)
    more = f" to line {last}" if last - diagnostic.start.line >= _MOST_UNDERLINED else ""
    return " " * begin + style.paint(LOOKS[diagnostic.severity], "^" * max(stop - begin, 1) + more)


def _first_cell(diagnostic: Diagnostic, room: int) -> int:
    """The cell at which the frame's lines begin, so that the finding is in view where lines are cropped."""
    index = diagnostic.start.line - diagnostic.frame_line
    if not 0 <= index < len(diagnostic.frame):
        return 0
    code = diagnostic.frame[index].rstrip("\r\n")
    start, end = _underlined(diagnostic, diagnostic.start.line, code)
    begin, stop = cells(_expanded(code[:start])), cells(_expanded(code[:end]))
    if stop <= room - len(_ELLIPSIS) or cells(_expanded(code)) <= room:
        return 0
    return max(0, min(begin - len(_ELLIPSIS), stop - room // 2))


def crop(text: str, left: int, room: int) -> str:
    """The cells [left, left + room) of `text`, dots where something is missing."""
    if not left and cells(text) <= room:
        return text
    kept = _without_cells(text, left)
    more = cells(kept) > room
    if more:
        kept = _without_cells(kept[::-1], cells(kept) - room)[::-1]
    if left and kept:
        kept = _ELLIPSIS + _without_cells(kept, len(_ELLIPSIS))
    if more:
        kept = _without_cells(kept[::-1], len(_ELLIPSIS))[::-1] + _ELLIPSIS
    return kept


def _without_cells(text: str, number: int) -> str:
    """`text` less its first characters that take `number` cells; blanks make up for a wide one cut in half."""
    if text.isascii():
        return text[number:]
    taken = 0
    for index, character in enumerate(text):
        if taken >= number:
            return " " * (taken - number) + text[index:]
        taken += cells(character)
    return ""
