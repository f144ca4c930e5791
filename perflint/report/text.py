"""What reports share: colours, escaping, notes on a finding, places; and the formats for humans, full and concise."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from textwrap import wrap

from perflint.documents.disk import Position
from perflint.engine import count
from perflint.engine.results import Diagnostic, FileResult, PlacedFix, RunResult
from perflint.engine.rule import GROUPS, Rule, Safety, Severity

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
_NAMES = re.compile(r"`[^`]*`|'[^']*'|\d+")  # of the user's code, and numbers
_UNSAFE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_PROMISE = {
    Safety.EXACT: "exact: the same results",
    Safety.ROUNDING: "rounding: the same mathematics, floats in another order",
    Safety.PRECISION: "precision: other number formats; needs --unsafe",
    Safety.BEHAVIOUR: "behaviour: results may differ; needs --unsafe",
}


@dataclass(frozen=True)
class Style:
    """What the caller wants: `width` in terminal cells (None: lines are never cropped), `notes` end the summary."""

    color: bool = False
    width: int | None = None
    quiet: bool = False
    verbose: bool = False
    notes: tuple[str, ...] = ()

    def paint(self, look: str, text: str) -> str:
        if not self.color or not text:
            return text
        codes = ";".join(_CODES[word] for word in look.split())
        return f"\x1b[{codes}m{text}\x1b[0m"


def printable(text: str) -> str:
    """`text` on one line, with every character that could move the cursor, reorder or fail to encode escaped."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def outline(text: str) -> str:
    return _NAMES.sub("", text)


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) not in _UNSAFE_CATEGORIES:
        return character
    return character.encode("unicode_escape").decode("ascii")


def place(path: str, position: Position) -> str:
    """`path:line:column` for humans and editors; in a notebook `path:cell 3:line:column`, cells counted from 0."""
    return f"{printable(path)}:{within(position)}"


def within(position: Position) -> str:
    cell = "" if position.cell is None else f"cell {position.cell}:"
    return f"{cell}{position.line}:{position.column}"


def problem_place(file: FileResult) -> str:
    line = file.problem.line if file.problem else None
    return printable(file.path) if line is None else f"{printable(file.path)}:{line}"


def is_fixable(diagnostic: Diagnostic) -> bool:
    return any(fix.is_safe for fix in diagnostic.fixes)


def notes(diagnostic: Diagnostic) -> Iterator[tuple[str, str]]:
    for number, fix in enumerate(diagnostic.fixes):
        yield ("or" if number else "fix"), _fix(fix)
    if diagnostic.blocked:
        yield "not fixed", diagnostic.blocked
    elif not diagnostic.fixes:
        yield "not fixed", "perflint has no fix for this one"
    if diagnostic.cost:
        yield "costs", str(diagnostic.cost)
    if diagnostic.measured:
        yield "measured", diagnostic.measured


def with_notes(diagnostic: Diagnostic) -> str:
    return "\n".join([diagnostic.message, *(f"{label}: {text}" for label, text in notes(diagnostic))])


def _fix(fix: PlacedFix) -> str:
    needs = f"; {fix.proviso}: needs --unsafe" if fix.proviso else ""
    return f"{fix.title} ({_PROMISE[fix.safety]}{needs})"


_PLACES = 5  # of a defect's others that are named, unless verbose

_ALIKE = 3  # findings of one defect that are still shown one by one
_TAB = 4
_MOST_UNDERLINED = 3  # of longer spans only the first line is underlined
_ELLIPSIS = "..."
_LEAST_WIDTH = 20
_WIDTH = 300  # where the output is not a terminal; a line of data can be a megabyte long
LOOKS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.ADVICE: "bold cyan"}


def concise(result: RunResult, style: Style) -> str:
    """One line each; `[*]` marks what `perflint fix --apply` would fix."""
    lines = []
    for file in result.by_cost:
        if file.problem:
            lines.append(
                f"{problem_place(file)}: {style.paint('bold red', 'error')}: {printable(file.problem.message)}"
            )
        for each in file.diagnostics:
            mark = f" {style.paint('green', '[*]')}" if is_fixable(each) else ""
            rule = style.paint(LOOKS[each.severity], each.rule)
            obstacle = f"; not fixed: {printable(each.blocked)}" if each.blocked else ""
            obstacle = "; its fix needs --unsafe" if each.fixes and not mark else obstacle
            lines.append(f"{place(each.path, each.start)}: {rule}{mark} {printable(each.message)}{obstacle}")
    return "".join(f"{line}\n" for line in [*lines, summary(result, style)] if line)


def full(result: RunResult, style: Style) -> str:
    from perflint.engine.catalogue import all_rules

    groups = grouped(result.diagnostics, all_rules(), each=style.verbose)
    blocks = [_problem(file, style) for file in result.problems] + ["\n".join(_lines(each, style)) for each in groups]
    return "\n".join(f"{block}\n" for block in [*blocks, summary(result, style)] if block)


def _problem(file: FileResult, style: Style) -> str:
    message = printable(file.problem.message) if file.problem else ""
    head = f"{style.paint('bold red', 'error')}{style.paint('bold', f': {message}')}"
    return f"{head}\n {style.paint('bold blue', '-->')} {problem_place(file)}"


def _lines(group: Group, style: Style) -> Iterator[str]:
    diagnostic = group.first
    label = f"{diagnostic.severity}[{diagnostic.rule}]"
    first, *more = _folded(f": {printable(diagnostic.message)}", len(label), 0, style)
    yield f"{style.paint(LOOKS[diagnostic.severity], label)}{style.paint('bold', first)}"
    yield from (style.paint("bold", line) for line in more)
    frame = code_frame(diagnostic, style)
    indent = " " * len(str(diagnostic.frame_line + max(len(diagnostic.frame) - 1, 0)))
    yield f"{indent}{style.paint('bold blue', '-->')} {place(diagnostic.path, diagnostic.start)}"
    yield from frame
    for label, text in (*notes(diagnostic), *_others(group), ("see", f"perflint explain {diagnostic.rule}")):
        margin = len(f"{indent} = {label}")
        first, *more = _folded(f": {printable(text)}", margin, len(f"{indent} = "), style)
        yield f"{indent} {style.paint('bold blue', '=')} {style.paint('bold', label)}{first}"
        yield from more


def _folded(text: str, taken: int, margin: int, style: Style) -> list[str]:
    if not style.width or taken + cells(text) <= style.width:
        return [text]
    width = max(style.width, taken + _LEAST_WIDTH)
    lines = wrap(f"{'.' * taken}{text}", width, subsequent_indent=" " * margin, break_on_hyphens=False)
    return [lines[0][taken:], *lines[1:]]


def _others(group: Group) -> Iterator[tuple[str, str]]:
    if group.others:
        places = [place(each.path, each.start) for each in group.others[:_PLACES]]
        more = ", ..." if len(group.others) > _PLACES else ""
        yield "also", f"{count(len(group.others), 'other place')} (--verbose shows each): {', '.join(places)}{more}"


def statistics(name: str, result: RunResult, style: Style) -> str:
    counts = Counter(diagnostic.rule for diagnostic in result.diagnostics)
    fixable = Counter(diagnostic.rule for diagnostic in result.diagnostics if is_fixable(diagnostic))
    rows = [(rule, number, fixable[rule]) for rule, number in sorted(counts.items(), key=lambda row: (-row[1], row[0]))]
    objects = [{"code": rule, "count": number, "fixable": fixed} for rule, number, fixed in rows]
    if name == "json":
        return json.dumps(objects, indent=2) + "\n"
    if name == "json-lines":
        return "".join(json.dumps(each) + "\n" for each in objects)
    width = max((len(str(number)) for _, number, _ in rows), default=0)
    longest = max((len(rule) for rule, _, _ in rows), default=0)
    lines = []
    for rule, number, fixed in rows:
        mark = f"{style.paint('green', '[*]')} {fixed} fixable" if fixed else ""
        lines.append(f"{number:>{width}}  {style.paint('bold', rule)}{' ' * (longest - len(rule))}  {mark}".rstrip())
    return "".join(f"{part}\n" for part in ("\n".join(lines), summary(result, style)) if part)


def summary(result: RunResult, style: Style) -> str:
    return "" if style.quiet else "\n".join(_summary(result, style))


def _summary(result: RunResult, style: Style) -> Iterator[str]:
    if style.verbose:
        for file in result.files:
            if file.skipped:
                yield style.paint("dim", f"{printable(file.path)}: {printable(file.skipped)}")
    yield _found(result, style)
    if result.diagnostics:
        yield _fixable(result)
    if result.problems:
        problems = f"{count(len(result.problems), 'file')} could not be checked, in whole or in part."
        yield style.paint("bold red", problems)
    yield from map(printable, style.notes)


def _found(result: RunResult, style: Style) -> str:
    checked = sum(not file.skipped and (not file.problem or bool(file.diagnostics)) for file in result.files)
    if not checked:
        return style.paint("bold", "No file was checked.")
    where = f"{count(checked, 'file')} in {result.seconds:.2f} s"
    if not result.diagnostics:
        return style.paint("bold green", f"No findings in {where}.")
    hit = sum(1 for file in result.files if file.diagnostics)
    return style.paint("bold", f"{count(len(result.diagnostics), 'finding')} in {hit} of {where}.")


def _fixable(result: RunResult) -> str:
    safe = sum(is_fixable(diagnostic) for diagnostic in result.diagnostics)
    unsafe = sum(bool(diagnostic.fixes) for diagnostic in result.diagnostics) - safe
    if not safe and not unsafe:
        return "None of them can be fixed automatically."
    more = f"{unsafe} more with `--unsafe`" if safe else f"{unsafe} can be fixed with `perflint fix --apply --unsafe`"
    parts = [f"{safe} can be fixed with `perflint fix --apply`"] if safe else []
    return ", ".join([*parts, *([more] if unsafe else [])]) + "."


@dataclass(frozen=True)
class Group:
    """One defect: the finding that is shown with its code, and where else it stands."""

    first: Diagnostic
    others: tuple[Diagnostic, ...] = ()


def grouped(diagnostics: Iterable[Diagnostic], rules: Iterable[Rule], *, each: bool) -> list[Group]:
    order = {rule.name: (GROUPS.index(rule.group) if rule.group in GROUPS else len(GROUPS)) for rule in rules}
    together: defaultdict[object, list[Diagnostic]] = defaultdict(list)
    for number, one in enumerate(diagnostics):
        words = (outline(text) for text in (one.message, one.blocked, *(fix.title for fix in one.fixes)))
        together[number if each else (one.rule, one.kind, one.severity, one.measured, one.cost, *words)].append(one)
    groups: list[Group] = []
    for alike in together.values():
        is_long = len(alike) > _ALIKE
        groups += [Group(alike[0], tuple(alike[1:]))] if is_long else map(Group, alike)
    severities = list(Severity)

    def weight(group: Group) -> tuple[float, int, int]:
        first = group.first
        return -first.cost.ms if first.cost else 0.0, severities.index(first.severity), order.get(first.rule, 9)

    return sorted(groups, key=weight)


def code_frame(diagnostic: Diagnostic, style: Style) -> list[str]:
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
