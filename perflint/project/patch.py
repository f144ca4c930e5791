"""What `fix` does: the patch of one file as a value, its diff, and the patches of many files, in several processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from perflint.analysis.links import ALONE, Context
from perflint.documents.disk import Position, Problem, Unreadable, Unwritable
from perflint.documents.document import Document, decode, read
from perflint.engine.edits import Lines, apply_fixes, line_map, original_line
from perflint.engine.fix import Applied, DefectError, FixResult, fix_text
from perflint.engine.results import FILE_FAULTS, RuleCrash, RunResult, problem_of
from perflint.engine.rule import Finding, Fix, Options, Rule
from perflint.project import available_cores
from perflint.project.figures import seen_in, with_seen
from perflint.project.files import RulesByFile
from perflint.project.run import check_files
from perflint.project.workers import work
from perflint.syntax.source import Source

if TYPE_CHECKING:
    from perflint.project.files import Discovery
    from perflint.project.settings import Settings
ANY = ""  # title
Place = tuple[str, int, str]  # a rule, the line of a finding in the file as it is, and the title of a fix or ANY

_CITED = re.compile(r"\bline (\d+)\b(?! of )")  # of the same file
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")  # a line as git counts them
_ROUNDS = 5  # as many as runs, each of which patches what the one before has left
_FEW = 8  # files that are patched before other processes would have started

Progress = Callable[[int, int], None]
Choice = Callable[[RunResult], Mapping[str, frozenset[Place]]]  # what is wanted in each file, of all that was found


@dataclass(frozen=True)
class Unfixed:
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
        return self.before != self.after

    @property
    def data(self) -> bytes:
        """The patched file."""
        return self.document.encode(self.after) if self.document else b""

    def write(self) -> None:
        if self.document is not None and self.changed:
            self.document.write(self.after)


def patch_document(
    document: Document,
    rules: Sequence[Rule],
    options: Mapping[str, Options],
    *,
    unsafe: bool = False,
    unread: bool = False,
    context: Context = ALONE,
    wanted: Set[Place] | None = None,
    begun: Patch | None = None,
) -> Patch:
    """The patch of `document`, by those fixes alone that are `wanted`. What prevents it is the patch's `problem`.

    A patch that was `begun` in another context is gone on with.
    """
    text = document.text
    now, applied = (begun.after, begun.applied) if begun and begun.changed else (text, ())

    def accept(now: str, finding: Finding, fix: Fix) -> str:
        if wanted is not None and _place(now, finding, fix, text).isdisjoint(wanted):
            return "no verification has found it worth it"
        refusal = document.refusal(apply_fixes(now, [fix]))
        return f"its fix cannot be written: {refusal}" if refusal else ""

    try:
        result = fix_text(now, rules, options, unsafe=unsafe, unread=unread, accept=accept, context=context)
    except DefectError as error:
        return _unpatched(document, Problem(f"is left as it is, because of a bug: {error}", traceback=""))
    except (RuleCrash, *FILE_FAULTS) as error:
        return _unpatched(document, problem_of(error, text))
    return _patched(document, replace(result, applied=(*applied, *result.applied)))


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
    yield from (b"--- a/" + name + b"\n", b"+++ b/" + name + b"\n") if before != after else ()
    yield from (hunk for _, hunk in hunks_between(before, after, note))


def hunks_between(before: bytes, after: bytes, note: bytes = b"") -> Iterator[tuple[range, bytes]]:
    """The hunks of a unified diff, each with the lines of `before`, from 0, that it shows; the `note` heads all."""
    old, new = (_LINE.findall(data) for data in (before, after))
    for opcodes in Lines(old, new).get_grouped_opcodes():
        (_, first, _, second, _), (_, _, last, _, end) = opcodes[0], opcodes[-1]
        shown = [b"@@ -%b +%b @@" % (_range(first, last), _range(second, end)) + note + b"\n"]
        for kind, start, stop, begin, until in opcodes:
            parts = (
                ((b" ", old[start:stop]),) if kind == "equal" else ((b"-", old[start:stop]), (b"+", new[begin:until]))
            )
            shown += (mark + _ended(line) for mark, lines in parts for line in lines)
        yield range(first, last), b"".join(shown)


def _range(start: int, stop: int) -> bytes:
    return b"%d" % stop if stop - start == 1 else b"%d,%d" % (start + (start < stop), stop - start)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def patch_files(
    discovery: Discovery,
    settings: Settings,
    progress: Progress | None = None,
    wanted: Choice | None = None,
    held: Mapping[Path, bytes] = MappingProxyType({}),
) -> tuple[Patch, ...]:
    """The patch of each file that was found, sorted by path, of what is `wanted` alone if asked; nothing is written.

    What is `held` stands for the content of these files on disk. A patched file may tell others more than it did, and
    ask for less: as a second run would, patching goes on from there, until nobody is told anything new.
    """
    rules = RulesByFile(settings)
    contexts: Mapping[str, Context] = with_seen(
        {}, {str(each): str(each) for each in discovery.files}, seen_in(settings.root.resolve())
    )
    places: Mapping[str, frozenset[Place]] = {}
    is_alone = len(discovery.files) + len(discovery.around) <= 1
    if wanted or not is_alone:
        result = check_files(discovery, settings, held=held)
        contexts, places = result.contexts, wanted(result) if wanted else {}
    patches = {str(path): Patch(str(path), problem=Problem(reason)) for path, reason in discovery.unreadable}
    todo: Sequence[Path] = discovery.files
    for _ in range(_ROUNDS):
        tasks = [
            _Task(
                path,
                rules.at(path),
                contexts.get(str(path), ALONE),
                places.get(str(path), frozenset()) if wanted else None,
                held.get(path),
                patches.get(str(path)),
            )
            for path in todo
        ]
        with closing(_patches(tasks, settings)) as results:
            for number, patch in enumerate(results, 1):
                patches[patch.path] = patch
                if progress:
                    progress(number, len(tasks))
        changed = {Path(patch.path): patch.data for patch in patches.values() if patch.changed}
        before = contexts
        if changed and not is_alone:
            contexts = check_files(discovery, settings, held={**held, **changed}).contexts
        todo = [each for each in discovery.files if contexts.get(str(each), ALONE) != before.get(str(each), ALONE)]
        if not todo:
            break
    return tuple(sorted(patches.values(), key=lambda patch: patch.path))


def write_all(patches: Sequence[Patch]) -> tuple[tuple[Patch, ...], tuple[str, ...]]:
    outcomes = [(patch, _write(patch)) for patch in patches]
    return tuple(patch for patch, error in outcomes if not error), tuple(error for _, error in outcomes if error)


def _write(patch: Patch) -> str:
    try:
        patch.write()
    except Unwritable as error:
        return str(error)
    return ""


def _patches(tasks: Sequence[_Task], settings: Settings) -> Generator[Patch, None, None]:
    patcher = _Patcher(settings.rules, settings.unsafe, settings.unread)
    jobs = settings.jobs or available_cores()
    if jobs == 1 or len(tasks) <= _FEW:
        yield from map(patcher, tasks)
        return
    with closing(work(patcher, tasks, jobs)) as results:
        for number, patch in results:
            lost = Problem("was not fixed: the process that worked on it was killed")
            yield patch or Patch(str(tasks[number].path), problem=lost)


@dataclass(frozen=True)
class _Task:
    path: Path
    rules: tuple[Rule, ...]
    context: Context
    wanted: frozenset[Place] | None
    held: bytes | None
    begun: Patch | None


@dataclass(frozen=True)
class _Patcher:
    """Patches a file in whichever process; what nobody will need of the patch does not travel back."""

    options: Mapping[str, Options]
    unsafe: bool
    unread: bool

    def __call__(self, task: _Task) -> Patch:
        try:
            patch = patch_document(
                read(task.path) if task.held is None else decode(str(task.path), task.held),
                task.rules,
                self.options,
                unsafe=self.unsafe or task.wanted is not None,
                unread=self.unread,
                context=task.context,
                wanted=task.wanted,
                begun=task.begun,
            )
        except Unreadable as error:
            return Patch(str(task.path), problem=error.problem)
        except Exception as error:
            return Patch(str(task.path), problem=problem_of(error))
        return patch if patch.changed else replace(patch, before="", after="", document=None)
