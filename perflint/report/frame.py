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
    bar = style.paint("bold blue", f"{' ' * gutter} |")
    numbered = list(enumerate((line.rstrip("\r\n") for line in diagnostic.frame), diagnostic.frame_line))
    first, start, end = diagnostic.start.line, diagnostic.start, diagnostic.end
    last = end.line if end.cell == start.cell else first  # of a finding that ends in another cell, the first line
    while numbered and numbered[0][0] < first and not numbered[0][1].strip():
        del numbered[0]
    while numbered and numbered[-1][0] > last and not numbered[-1][1].strip():
        del numbered[-1]
    spans = {number: _span(diagnostic, number, code, last) for number, code in numbered}
    left = max((_first_cell(code, *spans[number], room) for number, code in numbered if number == first), default=0)
    lines = [bar]
    for number, code in numbered:
        shown = crop(_expanded(code), left, room).rstrip()
        lines.append(f"{style.paint('bold blue', f'{number:>{gutter}} |')} {shown}".rstrip())
        begin, stop = spans[number]
        if begin < stop or number == first:
            begin, stop = min(max(begin - left, 0), room - 1), min(stop - left, room)
            more = f" to line {last}" if last - first >= _MOST_UNDERLINED else ""
            mark = style.paint(LOOKS[diagnostic.severity], "^" * max(stop - begin, 1) + more)
            lines.append(f"{bar} {' ' * begin}{mark}")
    return [*lines, bar]


def _span(diagnostic: Diagnostic, number: int, code: str, last: int) -> tuple[int, int]:
    """The cells [begin, stop) of line `number`, which reads `code`, to underline; an empty range for none."""
    first = diagnostic.start.line
    if not first <= number <= last or (number > first and last - first >= _MOST_UNDERLINED):
        return 0, 0
    start = diagnostic.start.column - 1 if number == first else len(code) - len(code.lstrip())
    ends_here = (number, diagnostic.start.cell) == (diagnostic.end.line, diagnostic.end.cell)
    end = diagnostic.end.column - 1 if ends_here else len(code.rstrip())
    begin = cells(_expanded(code[:start]))
    return begin, max(cells(_expanded(code[:end])), begin + (number == first))


def _first_cell(code: str, begin: int, stop: int, room: int) -> int:
    """The cell at which the frame's lines begin, so that the finding in `code` is in view where lines are cropped."""
    if stop <= room - len(_ELLIPSIS) or cells(_expanded(code)) <= room:
        return 0
    return max(0, min(begin - len(_ELLIPSIS), stop - room // 2))


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
