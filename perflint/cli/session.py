"""One run of `check` or `fix`: its settings, its files, what becomes of them, and what `fix` tells of that."""

from __future__ import annotations

import ast
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflint.analysis.links import ALONE, Context
from perflint.cli import options
from perflint.documents.disk import Unreadable, Unwritable
from perflint.documents.document import read
from perflint.engine import UserError, baseline, count, suppress
from perflint.engine.check import find
from perflint.engine.results import FileResult, RunResult
from perflint.engine.rule import Rule
from perflint.engine.unused_ignore import UnusedIgnore
from perflint.project import project_around
from perflint.project.files import Discovery, RulesByFile, discover, forced_out, in_project
from perflint.project.run import check_files
from perflint.project.settings import Resolved, Settings, files_above, load, reasons_off
from perflint.project.stored import VERDICTS, nearest
from perflint.report.text import Style, outline, place, printable

if TYPE_CHECKING:
    from perflint.project.patch import Patch
    from perflint.verify.verdicts import Won

Progress = Callable[[int, int], None]
STDIN = Path("-")
UNNAMED = Path("<stdin>")


def resolve(paths: Sequence[Path], typed: Mapping[str, Any]) -> Resolved:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UserError("the working directory does not exist any more") from None
    for path in paths:
        _enter(path)
    return configured(
        _folder([(typed.get("stdin_filename") or Path()) if path == STDIN else path for path in paths]), typed
    )


def _enter(path: Path) -> None:
    try:
        closed = stat.S_ISDIR(path.stat().st_mode) and not os.access(path, os.R_OK | os.X_OK)
    except OSError as error:  # of which others are told where files are looked for
        closed = isinstance(error, PermissionError)
    if closed:
        raise UserError(f"{path}: Permission denied")


def _folder(paths: Sequence[Path]) -> Path:
    real = [Path(os.path.realpath(path)) for path in paths or [Path()]]  # Path.resolve would raise at circular links
    folders = [path if path.is_dir() else path.parent for path in real]
    above = (folders[0], *folders[0].parents)
    return next((each for each in above if all(folder.is_relative_to(each) for folder in folders)), folders[0])


def configured(start: Path, typed: Mapping[str, Any]) -> Resolved:
    return load(start, isolated=typed["isolated"], config_path=typed["config"], overrides=options.overrides(typed))


def watched(paths: tuple[Path, ...], typed: Mapping[str, Any]) -> list[Path]:
    named = [typed["config"]] if typed["config"] else files_above(_folder(paths))
    configuration = [] if typed["isolated"] else named
    try:
        session = Session.of(paths, typed)
    except UserError:  # of settings, as the check tells
        return configuration
    return [*session.discover()[0].files, *configuration]


@dataclass(frozen=True)
class Session:
    """What `paths` are checked or fixed with."""

    paths: tuple[Path, ...]
    settings: Settings
    rules: RulesByFile
    stdin_name: Path
    verbose: bool

    @classmethod
    def of(cls, paths: tuple[Path, ...], typed: Mapping[str, Any]) -> Session:
        if STDIN in paths and len(paths) > 1:
            raise click.UsageError("- stands alone: standard input is one program")
        if typed["stdin_filename"] and STDIN not in paths:
            raise click.UsageError("--stdin-filename needs - for PATHS")
        settings = resolve(paths, typed).settings
        return cls(paths, settings, RulesByFile(settings), typed["stdin_filename"] or UNNAMED, typed["verbose"])

    @property
    def reads_stdin(self) -> bool:
        return self.paths == (STDIN,)

    @property
    def folder(self) -> Path:
        return _folder(self.paths)

    def discover(self) -> tuple[Discovery, tuple[str, ...]]:
        discovery = in_project(discover(self.paths, self.settings), project_around(self.folder), self.settings)
        if not self.verbose:
            return discovery, ()
        left_out = (f"{path}: {reason}" for path, reason in discovery.skipped)
        return discovery, (*left_out, *reasons_off(self.settings))

    def excluded(self) -> str:
        """Why `force-exclude` leaves standard input out, by a name that no file needs to have."""
        return "" if self.stdin_name == UNNAMED else forced_out(self.stdin_name, self.settings)

    def check_stdin(self, data: bytes, *, edits: bool = False) -> RunResult:
        if reason := self.excluded():
            return RunResult((FileResult(str(self.stdin_name), skipped=reason),), 0.0)
        return check_files(self._stdin(), self.settings, edits=edits, held={self.stdin_name: data})

    def _stdin(self) -> Discovery:
        alone = Discovery((self.stdin_name,))
        if self.stdin_name == UNNAMED:
            return alone
        return in_project(alone, project_around(_folder([self.stdin_name])), self.settings)

    def fix_stdin(self, data: bytes) -> tuple[Patch, bytes]:
        from perflint.project.patch import Patch, patch_files  # here: a check does without processes that share work

        if reason := self.excluded():
            return Patch(str(self.stdin_name), skipped=reason), data
        (patch,) = patch_files(self._stdin(), self.settings, held={self.stdin_name: data})
        return patch, patch.data if patch.changed else data

    def won(self) -> Won:
        """Raises UserError where nothing was verified."""
        from perflint.verify.verdicts import Won

        file = nearest(self.settings.root.resolve(), VERDICTS)
        if file is None:
            raise UserError(f"{self.settings.root}: nothing was verified yet; `perflint verify SCRIPT` does")
        return Won.read(file)

    def selecting(self, rules: Iterable[str]) -> Session:
        if self.settings.select:
            return self
        settings = replace(self.settings, extend_select=(*self.settings.extend_select, *rules))
        return replace(self, settings=settings, rules=RulesByFile(settings))

    def less_baseline(self, result: RunResult) -> tuple[RunResult, tuple[str, ...]]:
        path = self.settings.baseline
        if not path:
            return result, ()
        difference = baseline.subtract(result, baseline.read(path), {rule.name for rule in self.rules.selected})
        notes = []
        if difference.hidden:
            notes.append(f"{count(difference.hidden, 'finding')} accepted by the baseline {path.name}.")
        if difference.gone:
            gone = f"{count(difference.gone, 'accepted finding')} no longer occur"
            notes.append(f"{gone}; `perflint check --write-baseline {path.name}` forgets them.")
        return difference.result, tuple(notes)


@dataclass(frozen=True)
class Ignored:
    findings: int
    files: int
    errors: tuple[str, ...]


def add_ignores(result: RunResult, settings: Settings) -> Ignored:
    """Add a comment that ignores it to each finding, except those about such comments."""
    rules = RulesByFile(settings)
    findings = files = 0
    errors = []
    for file in result.files:
        try:
            added = _add(file, rules.at(Path(file.path)), settings, result.contexts.get(file.path, ALONE))
        except (Unreadable, Unwritable, ValueError) as error:
            errors.append(f"{file.path}: no comment was added: {str(error).removeprefix(f'{file.path}: ')}")
            continue
        findings += added
        files += bool(added)
    return Ignored(findings, files, tuple(errors))


def _add(file: FileResult, rules: Sequence[Rule], settings: Settings, context: Context) -> int:
    wanted = {(each.rule, each.start) for each in file.diagnostics if each.rule != UnusedIgnore.name}
    if not wanted:
        return 0
    document = read(Path(file.path))
    found = find(document.text, rules, settings.rules, context).findings
    chosen = [each for each in found if (each.rule, document.position(each.start)) in wanted]
    text = suppress.add_ignores(document.text, chosen)
    if ast.dump(ast.parse(document.text)) != ast.dump(ast.parse(text)):
        raise ValueError("it would change the program")
    document.write(text)
    return len(chosen)


_LINE = re.compile(r"^line \d+(?: of cell \d+)?: ")  # where an obstacle is
_PLACES = 3  # shown of those that were left for the same reason, unless verbose


def fix_report(patches: Sequence[Patch], style: Style, *, applied: bool, errors: Iterable[str] = ()) -> str:
    lines = [*_problems(patches, style), *(f"{style.paint('bold red', 'error')}: {printable(e)}" for e in errors)]
    failed = bool(lines)
    if not style.quiet:
        if style.verbose:
            lines += [style.paint("dim", f"{p.path}: {printable(p.skipped)}") for p in patches if p.skipped]
        lines += [
            *_fixed(patches, style, applied, failed=failed),
            *_left(patches, style, applied),
            *map(printable, style.notes),
        ]
    return "".join(f"{line}\n" for line in lines)


def colored(diff: str, style: Style) -> str:
    looks = {"+": "green", "-": "red", "@": "cyan"}
    painted = []
    for line in diff.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        look = "bold" if line.startswith(("+++ ", "--- ")) else looks.get(line[:1], "")
        painted.append((style.paint(look, body) if look else body) + line[len(body) :])
    return "".join(painted)


def _problems(patches: Iterable[Patch], style: Style) -> Iterator[str]:
    error = style.paint("bold red", "error")
    for patch in patches:
        if patch.problem:
            where = f"{patch.path}:{patch.problem.line}" if patch.problem.line else patch.path
            yield f"{error}: {printable(where)}: {printable(patch.problem.message)}"


def _fixed(patches: Sequence[Patch], style: Style, applied: bool, *, failed: bool) -> Iterator[str]:
    fixed: Counter[tuple[str, str]] = Counter()
    titles: dict[tuple[str, str], list[str]] = {}
    for item in (each for patch in patches for each in patch.applied):
        alike = item.finding.rule, outline(item.fix.title)
        fixed[alike] += 1 + len(item.others)
        titles.setdefault(alike, []).append(printable(item.fix.title))
    changed = sum(patch.changed for patch in patches)
    if not fixed:
        sound = sum(not patch.skipped and (not patch.problem or bool(patch.remaining)) for patch in patches)
        where = count(sound, "other file" if failed else "file")
        yield style.paint("bold", f"Nothing to fix in {where}." if sound else "No file was fixed.")
        return
    head = f"{count(fixed.total(), 'finding')} in {count(changed, 'file')}"
    yield style.paint("bold green", f"Fixed {head}:") if applied else style.paint("bold", f"Would fix {head}:")
    yield from _table([(alike[0], number, _title(titles[alike])) for alike, number in sorted(fixed.items())])
    if not applied:
        yield "`perflint fix --apply` with the same paths and options writes these changes."


def _title(titles: Sequence[str]) -> str:
    return titles[0] if len(set(titles)) == 1 else f"{titles[0]}, and alike"


def _left(patches: Sequence[Patch], style: Style, applied: bool) -> Iterator[str]:
    left: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for patch in patches:
        for item in patch.remaining if applied else patch.left:  # as they are on the disk now
            alike = left.setdefault((item.rule, outline(_LINE.sub("", item.reason))), [])
            alike.append((printable(item.reason), place(patch.path, item.start)))
    if left:
        yield style.paint("bold", f"Left {count(sum(map(len, left.values())), 'finding')}:")
        rows = sorted(left.items(), key=lambda row: (row[0][0], -len(row[1]), row[0][1]))
        yield from _table([(rule, len(found), _reason(found, style.verbose)) for (rule, _), found in rows])


def _reason(found: Sequence[tuple[str, str]], every: bool) -> str:
    (first, where), *others = found
    if len({_LINE.sub("", reason) for reason, _ in found}) > 1:
        return f"{first} ({where}; alike: {_some([place for _, place in others], every)})"
    return f"{_LINE.sub('', first) if others else first} ({_some([place for _, place in found], every)})"


def _table(rows: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    longest = max(len(rule) for rule, _, _ in rows)
    widest = max(len(str(number)) for _, number, _ in rows)
    for rule, number, text in rows:
        yield f"  {rule:<{longest}}  {number:>{widest}}  {text}"


def _some(places: Sequence[str], every: bool) -> str:
    shown = places if every else places[:_PLACES]
    more = len(places) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
