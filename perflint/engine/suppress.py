"""`# perflint: ignore`: drops the findings that such comments cover, reports those that cover none, and writes them."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perflint.engine import catalogue
from perflint.engine.rule import Edit, Finding, Fix, Rule, Safety, Severity
from perflint.engine.unused_ignore import UnusedIgnore
from perflint.syntax.source import Source

_MARK = "perflint:"

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_NEXT_PART = re.compile(r"(?<=\s)#(?=\s|[\w-]+:|noqa\b)")
_ADDRESSED = re.compile(r"#+\s*perflint:")
_READABLE = re.compile(r"#+\s*perflint:\s*(?P<word>ignore-file|ignore)(?:\s*\[(?P<names>[^\]]*)\]|(?=\s*$|\s+[^\s\[]))")
_LAYOUT = {*(tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)}


@dataclass(frozen=True)
class _Name:
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class _Pragma:
    """A comment addressed to perflint, at the characters [start, end), reason and all.

    It speaks for the lines `first` to `last`. `names` is None where it ignores every rule; `inner` is what stands
    between its brackets, `cut` the span to delete all of it, `statement` the index of the logical line that it ends, if
    any.
    """

    start: int
    end: int
    cut: tuple[int, int]
    names: tuple[_Name, ...] | None
    inner: tuple[int, int] | None
    first: int
    last: int
    statement: int | None
    readable: bool


@dataclass(frozen=True)
class _LogicalLine:
    """A simple statement or the header of a compound one, and the `end` of its code.

    `block_last` is the last line of the function or class that it opens or decorates, else `last`.
    """

    first: int
    last: int
    end: int
    block_last: int


@dataclass(frozen=True)
class _Comments:
    lines: tuple[_LogicalLine, ...] = ()
    pragmas: tuple[_Pragma, ...] = ()


@dataclass
class _Reader:
    source: Source
    blocks: Mapping[int, int]  # the last line of what a line opens or decorates
    lines: list[_LogicalLine] = field(default_factory=list)
    comments: list[tuple[tokenize.TokenInfo, bool]] = field(default_factory=list)  # and whether it is within a line
    first: int = 0  # of the logical line that is being read
    ahead: tokenize.TokenInfo | None = None  # its last token so far

    def take(self, token: tokenize.TokenInfo) -> None:
        if token.type == tokenize.COMMENT:
            self.comments.append((token, self.ahead is not None))
        elif token.type == tokenize.NEWLINE and self.ahead:
            last, column = self.ahead.end
            block_last = max(last, self.blocks.get(self.first, last))
            self.lines.append(_LogicalLine(self.first, last, self.source.line_start(last) + column, block_last))
            self.ahead = None
        elif token.type not in _LAYOUT:
            self.first = self.first if self.ahead else token.start[0]
            self.ahead = token


def _read(text: str) -> _Comments:
    """The logical lines and pragmas of `text`; raises ValueError where it is no Python."""
    try:
        reader = _Reader(Source(text), dict(_blocks(ast.parse(text))))
        # One kind of line break keeps rows equal to Source's lines in every version of tokenize.
        for token in tokenize.generate_tokens(io.StringIO(_LINE_BREAK.sub("\n", text), newline="\n").readline):
            reader.take(token)
    except (tokenize.TokenError, SyntaxError) as error:
        raise ValueError("not Python that can be split into tokens") from error
    pragmas = (pragma for comment, inside in reader.comments for pragma in _pragmas_of(comment, inside, reader))
    return _Comments(tuple(reader.lines), tuple(pragmas))


def _blocks(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for opening in (node, *node.decorator_list):
                yield opening.lineno, node.end_lineno or node.lineno


def _pragmas_of(comment: tokenize.TokenInfo, inside: bool, reader: _Reader) -> Iterator[_Pragma]:
    if _MARK not in comment.string:
        return
    source, row = reader.source, comment.start[0]
    base = source.line_start(row) + comment.start[1]
    starts = [0, *(match.start() for match in _NEXT_PART.finditer(comment.string)), len(comment.string)]
    for start, end in itertools.pairwise(starts):
        part, place = comment.string[start:end], base + start
        if _ADDRESSED.match(part):
            cut = (place, base + end) if end < len(comment.string) else _tail(source, row, place)
            match = _READABLE.match(part)
            names: tuple[_Name, ...] | None = ()
            inner = None
            if match:
                listed = place + match.start("names")
                inner = (listed, place + match.end("names")) if match["names"] is not None else None
                names = tuple(_listed_names(match["names"], listed)) if inner else None
            lines = _covered(match["word"] if match else "", row, inside, reader)
            yield _Pragma(place, place + len(part.rstrip()), cut, names, inner, *lines, readable=bool(match))


def _listed_names(listed: str, start: int) -> Iterator[_Name]:
    for match in re.finditer(r"[^,]+", listed):
        if name := match[0].strip():
            begin = start + match.start() + len(match[0]) - len(match[0].lstrip())
            yield _Name(name, begin, begin + len(name))


def _covered(word: str, row: int, inside: bool, reader: _Reader) -> tuple[int, int, int | None]:
    """The lines that a comment at a line speaks for, and the logical line that it ends, if any."""
    below = next((index for index, line in enumerate(reader.lines) if line.last >= row), None)
    if word == "ignore-file" or (not inside and below == 0):
        return 1, reader.source.line_count, None
    if below is None:
        return row, row, None
    line = reader.lines[below]
    return line.first, line.block_last, below if inside else None


def _tail(source: Source, row: int, start: int) -> tuple[int, int]:
    """From the blanks before `start` to the end of its line, and its break where nothing else is left."""
    line = source.line_text(row)
    line_start = source.line_start(row)
    code = line[: start - line_start].rstrip()
    end = len(line) if not code else len(line.rstrip("\r\n"))
    return line_start + len(code), line_start + end


__all__ = ["UnusedIgnore", "add_ignores", "apply"]

_UNUSED = UnusedIgnore()
_Used = set[tuple[_Pragma, str]]


def apply(
    text: str,
    findings: Iterable[Finding],
    active_rules: Sequence[Rule],
    possible: Callable[[], Iterable[Finding]] = tuple,
) -> tuple[Finding, ...]:
    """`findings` without those that a comment in `text` ignores, and with those about the comments themselves.

    The latter are only made where `unused-ignore` is among the `active_rules`, and only about rules that ran. A comment
    is used as well where it ignores one of the `possible` findings, which other files could bring about; they are asked
    for only where it matters.
    """
    found = tuple(findings)
    findings = tuple(each for each in found if not each.is_part)
    if _MARK not in text:
        return findings
    try:
        comments = _read(text)
    except ValueError:
        return findings
    source, active = Source(text), {rule.name: rule for rule in active_rules}
    used: _Used = set()
    kept = [finding for finding in findings if not _ignore(finding, source, comments, active, used)]
    if _UNUSED.name in active:
        for part in (each for each in found if each.is_part):
            _ignore(part, source, comments, active, used)
        if any(_about(comments, used, active)):
            for finding in possible():
                _ignore(finding, source, comments, active, used)
        new = _about(comments, used, active)
        kept += [finding for finding in new if not _ignore(finding, source, comments, {}, set())]
    return tuple(sorted(kept, key=lambda finding: (finding.start, finding.end, finding.rule)))


def add_ignores(text: str, findings: Iterable[Finding]) -> str:
    """`text` with a comment on the statement of each of the findings that ignores it.

    Raises ValueError where the text cannot be split into tokens.
    """
    source, comments = Source(text), _read(text)
    wanted: dict[int, list[str]] = {}
    for finding in sorted(findings, key=lambda finding: (finding.start, finding.rule)):
        row = source.position(finding.start)[0]
        line = next((index for index, line in enumerate(comments.lines) if line.last >= row), None)
        if line is not None and finding.rule != _UNUSED.name and finding.rule not in wanted.setdefault(line, []):
            wanted[line].append(finding.rule)
    for line in sorted(wanted, reverse=True):
        if wanted[line]:
            edit = _comment(line, sorted(wanted[line]), comments, source)
            text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _ignore(finding: Finding, source: Source, comments: _Comments, active: Mapping[str, Rule], used: _Used) -> bool:
    """Whether a comment ignores `finding`; the one that speaks for the fewest lines is then `used`."""
    row = source.position(finding.start)[0]
    group = active[finding.rule].group if finding.rule in active else ""
    matches = [
        (pragma.last - pragma.first, pragma.start, pragma, word)
        for pragma in comments.pragmas
        if pragma.first <= row <= pragma.last and (word := _matching(pragma, finding.rule, group)) is not None
    ]
    if matches:
        used.add(min(matches, key=lambda match: match[:2])[2:])
    return bool(matches)


def _matching(pragma: _Pragma, rule: str, group: str) -> str | None:
    """The word of `pragma` that ignores `rule`: "all" where it ignores every rule; None if none does."""
    if rule == _UNUSED.name:  # else a comment could never be told that it is unused
        return next((name.text for name in pragma.names or () if name.text == rule), None)
    if pragma.names is None:
        return "all"
    named = {name.text for name in pragma.names}
    return next((word for word in (rule, group, "all") if word in named), None)


def _about(comments: _Comments, used: _Used, active: Mapping[str, Rule]) -> Iterator[Finding]:
    return (finding for pragma in comments.pragmas for finding in _about_one(pragma, used, active))


def _about_one(pragma: _Pragma, used: _Used, active: Mapping[str, Rule]) -> Iterator[Finding]:
    span = (pragma.start, pragma.end)
    if not pragma.readable:
        message = "perflint cannot read this comment; write `# perflint: ignore[rule] reason`"
        yield _finding(span, message, "unreadable", blocked="only its author knows what it is to say")
    elif pragma.names is None:
        if (pragma, "all") not in used and _have_run("all", active):
            yield _finding(span, "there is nothing to ignore here", "unused", fix=_removal(pragma))
    else:
        unused = [name for name in pragma.names if (pragma, name.text) not in used and _have_run(name.text, active)]
        if unused or not pragma.names:
            what = ", ".join(dict.fromkeys(name.text for name in unused))
            message = f"there is no {what} to ignore here" if what else "this comment names no rule to ignore"
            yield _finding(span, message, "unused", fix=_removal(pragma, unused))
        for name in pragma.names:
            if name.text not in active and (message := catalogue.unknown(name.text)):
                blocked = "only its author knows which rule is meant"
                yield _finding((name.start, name.end), message, "unknown", blocked=blocked)


def _finding(span: tuple[int, int], message: str, kind: str, *, fix: Fix | None = None, blocked: str = "") -> Finding:
    return _UNUSED.finding(span, message, kind=kind, fixes=(fix,) if fix else (), blocked=blocked)


def _removal(pragma: _Pragma, unused: Sequence[_Name] = ()) -> Fix:
    gone = {name.text for name in unused}
    left = [name.text for name in pragma.names or () if name.text not in gone]
    if left and pragma.inner:
        title = f"remove {', '.join(sorted(gone))} from the comment"
        return Fix(title, Safety.EXACT, (Edit(*pragma.inner, ", ".join(left)),))
    return Fix("remove the comment", Safety.EXACT, (Edit(*pragma.cut, ""),))


def _have_run(word: str, active: Mapping[str, Rule]) -> bool:
    """Has every rule that `word` selects, and that is on by default, run, so that `word` can be judged?"""
    if word == _UNUSED.name:
        return False
    if word in active:
        return True
    rules = catalogue.rules_by_name().values()
    meant = [rule for rule in rules if word in ("all", rule.group) and rule.severity is not Severity.ADVICE]
    return bool(meant) and all(rule.name in active for rule in meant)


def _comment(line: int, rules: list[str], comments: _Comments, source: Source) -> Edit:
    """The edit that adds `rules` to the comment of logical line number `line`, or gives it one."""
    for pragma in comments.pragmas:
        if pragma.statement == line and pragma.inner:
            named = [name.text for name in pragma.names or ()]
            return Edit(*pragma.inner, ", ".join((*named, *(rule for rule in rules if rule not in named))))
    code_end = comments.lines[line].end
    row = comments.lines[line].last
    rest = source.text[code_end : source.line_start(row) + len(source.line_text(row).rstrip("\r\n"))]
    start = code_end + len(rest.rstrip())
    return Edit(start, code_end + len(rest), f"  # {_MARK} ignore[{', '.join(rules)}]")
