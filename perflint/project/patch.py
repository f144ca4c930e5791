"""What `fix` does to one file: the patch as a value, its diff, and writing it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Unreadable
from perflint.documents.document import Document, read
from perflint.documents.places import Position, Problem
from perflint.engine.edits import apply_fixes
from perflint.engine.fix import Applied, DefectError, FixResult, fix_text
from perflint.engine.line_map import Lines, line_map, original_line
from perflint.engine.problems import FILE_FAULTS, InternalProblem, RuleCrash, problem_of
from perflint.engine.rule import Finding, Fix, Options, Rule
from perflint.syntax.source import Source

ANY = ""  # title
Place = tuple[str, int, str]  # a rule, the line of a finding in the file as it is, and the title of a fix or ANY

_CITED = re.compile(r"\bline (\d+)\b(?! of )")  # of the same file
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")  # a line as git counts them


@dataclass(frozen=True)
class Unfixed:
    """A defect that the patch leaves, at its place in a file, and why."""

    rule: str
    start: Position
    message: str
    reason: str


@dataclass(frozen=True)
class Patch:
    """What becomes of one file; `after` is the program that it is changed to, equal to `before` where nothing is.

    Defects that are `remaining` are at their places in the patched file, and as they were `left` in the file as it is.
    With a `problem` there is no change, unless it is about some cells of a notebook only.
    """

    path: str
    before: str = ""
    after: str = ""
    applied: tuple[Applied, ...] = ()
    remaining: tuple[Unfixed, ...] = ()
    problem: Problem | None = None
    skipped: str = ""
    document: Document | None = None
    left: tuple[Unfixed, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after

    def write(self) -> None:
        """Change the file, all or nothing; raises Unwritable."""
        if self.document is not None and self.changed:
            self.document.write(self.after)


def patch_file(
    path: Path,
    rules: Sequence[Rule],
    options: Mapping[str, Options],
    *,
    unsafe: bool = False,
    context: Context = ALONE,
    wanted: Set[Place] | None = None,
) -> Patch:
    """The patch of the file at `path`; nothing is written. What prevents it is the patch's `problem`."""
    try:
        document = read(path)
    except Unreadable as error:
        return Patch(str(path), problem=error.problem)
    return patch_document(document, rules, options, unsafe=unsafe, context=context, wanted=wanted)


def patch_document(
    document: Document,
    rules: Sequence[Rule],
    options: Mapping[str, Options],
    *,
    unsafe: bool = False,
    context: Context = ALONE,
    wanted: Set[Place] | None = None,
) -> Patch:
    """The patch of `document`, by those fixes alone that are `wanted`. What prevents it is the patch's `problem`."""
    text = document.text

    def accept(now: str, finding: Finding, fix: Fix) -> str:
        if wanted is not None and _place(now, finding, fix, text).isdisjoint(wanted):
            return "no verification has found it worth it"
        refusal = document.refusal(apply_fixes(now, [fix]))
        return f"its fix cannot be written: {refusal}" if refusal else ""

    try:
        result = fix_text(text, rules, options, unsafe=unsafe, accept=accept, context=context)
    except DefectError as error:
        return _unpatched(document, InternalProblem(f"is left as it is, because of a bug: {error}"))
    except (RuleCrash, *FILE_FAULTS) as error:
        return _unpatched(document, problem_of(error, text))
    return _patched(document, result)


def _place(now: str, finding: Finding, fix: Fix, before: str) -> set[Place]:
    line = original_line(now, finding, before)
    return {(finding.rule, line, fix.title), (finding.rule, line, ANY)}


def unified_diff(patch: Patch) -> bytes:
    """The change as a unified diff that `git apply` takes; of a notebook, a diff of every cell, for reading."""
    document = patch.document
    if document is None or not patch.changed:
        return b""
    if document.notebook is None:
        return b"".join(_diff(patch.path, b"", document.data, document.encode(patch.after)))
    cells = document.notebook.split(patch.after)
    pairs = ((index, document.unit(index).text.encode(), text.encode()) for index, text in cells.items())
    return b"".join(line for index, old, new in pairs for line in _diff(patch.path, b" cell %d" % index, old, new))


def readable_diff(patch: Patch) -> str:
    """The unified diff as text for a terminal, whatever the encoding of the file."""
    return unified_diff(patch).decode(patch.document.encoding if patch.document else "utf-8", "backslashreplace")


def _unpatched(document: Document, problem: Problem) -> Patch:
    return Patch(document.path, document.text, document.text, problem=problem, document=document)


def _patched(document: Document, result: FixResult) -> Patch:
    after = document.changed_to(result.text)
    return Patch(
        document.path,
        document.text,
        result.text,
        result.applied,
        tuple(_unfixed(after, item.finding, item.reason) for item in result.remaining),
        document.problem,
        document.skipped,
        document,
        tuple(_as_it_was(document, result.text, item.finding, item.reason) for item in result.remaining),
    )


def _unfixed(document: Document, finding: Finding, reason: str) -> Unfixed:
    return Unfixed(finding.rule, document.position(finding.start), finding.message, document.cited(reason))


def _as_it_was(document: Document, text: str, finding: Finding, reason: str) -> Unfixed:
    """A defect that was found in `text`, which was made of the document, at its place there."""
    lines, now, before = line_map(text, document.text), Source(text), Source(document.text)

    def cited(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"line {abs(lines[number - 1])}" if number <= len(lines) else match[0]

    line, column = now.position(finding.start)
    there = abs(lines[line - 1])
    moved = _indentation(before.line_text(there)) - _indentation(now.line_text(line))
    start = min(before.line_start(there) + max(column - 1 + moved, 0), before.line_end(there))
    place = document.position(start)
    return Unfixed(finding.rule, place, finding.message, document.cited(_CITED.sub(cited, reason)))


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _diff(path: str, note: bytes, before: bytes, after: bytes) -> Iterator[bytes]:
    name = Path(path).as_posix().lstrip("/").encode("utf-8", "surrogateescape")
    old, new = (_LINE.findall(data) for data in (before, after))
    yield from (b"--- a/" + name + b"\n", b"+++ b/" + name + b"\n") if before != after else ()
    for opcodes in Lines(old, new).get_grouped_opcodes():
        (_, start, _, begin, _), (_, _, stop, _, end) = opcodes[0], opcodes[-1]
        yield b"@@ -%b +%b @@" % (_range(start, stop), _range(begin, end)) + note + b"\n"
        for kind, start, stop, begin, end in opcodes:
            marks = ((b" ", old[start:stop]),) if kind == "equal" else ((b"-", old[start:stop]), (b"+", new[begin:end]))
            yield from (mark + _ended(line) for mark, lines in marks for line in lines)


def _range(start: int, stop: int) -> bytes:
    """The lines from `start` to before `stop`, from 0, as a unified diff tells them."""
    return b"%d" % stop if stop - start == 1 else b"%d,%d" % (start + (start < stop), stop - start)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
