"""Makes the plan of a run: patches for all files that it can import, made by the engine's `fix`, and known loaders."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.analysis.data.loaders import OPTION, call_text
from perflint.documents import digest
from perflint.documents.disk import Unreadable, read_bytes
from perflint.documents.document import read
from perflint.engine.catalogue import selected_rules
from perflint.engine.edits import line_map, original_line
from perflint.engine.fix import Applied
from perflint.engine.results import Diagnostic, PlacedFix
from perflint.engine.rule import Edit, Rule, Safety
from perflint.project import CACHE, MARKS, figures, make_cache, stored
from perflint.project.cache import SUFFIXES, source_folders
from perflint.project.closure import Closure
from perflint.project.files import ENVIRONMENT_MARK, Discovery, discover, info_exclude
from perflint.project.patch import Patch, patch_files
from perflint.project.run import check_files
from perflint.project.settings import Settings
from perflint.shim.plan import COMPILE, RUNS, Basis, Change, KnownLoader, Left, PatchedFile, Plan, Planned, Tree, below
from perflint.shim.settings import COMPILING

WORKERS, PINNED = "num_workers", "pin_memory"
# files that decide what becomes of those below them
_MEASURED = tuple(f"{stored.FOLDER}/{name}" for name in (stored.LOADERS, stored.PROFILES, stored.VERDICTS))
_ABOVE = (*MARKS, ".gitignore", *_MEASURED)


@dataclass(frozen=True)
class Project:
    """The project at `root` of a program in `start`, and how to run it.

    `config` is the settings' file, if named. `tunes`: measure loaders. `whole` names settings of the whole program
    (perflint.shim.settings). Without a `closure`, any file of the project may be part of the program.
    """

    start: Path
    root: Path
    settings: Settings
    config: Path | None = None
    tunes: bool = False
    whole: tuple[str, ...] = ()
    closure: Closure | None = None

    def discover(self) -> Discovery:
        if self.closure is None:
            return discover([self.root], self.settings, may_be_empty=True)  # `-m` runs what lies elsewhere, too
        real = Path(os.path.realpath(self.root))
        named = [self.root / file.relative_to(real) for file in self.closure.files if file.is_relative_to(real)]
        return discover(named, replace(self.settings, force_exclude=True)) if named else Discovery(())


def plan_for(project: Project) -> Planned:
    settings = replace(project.settings, cache_dir=project.settings.cache_dir or project.root / CACHE)
    project = replace(project, settings=settings)
    store = _store(settings)  # made before anything is looked at, for it may lie in the project
    discovery = project.discover()
    rules = selected_rules(settings.selection)
    basis = _basis(project, discovery, rules)
    look = basis.look()
    return Planned(_plan(project, discovery, rules, store), basis, look)


def _store(settings: Settings) -> Path | None:
    if not settings.cache or not settings.cache_dir:
        return None
    store = (settings.cache_dir / RUNS).absolute()
    with suppress(OSError):
        make_cache(settings.cache_dir)
        store.mkdir(exist_ok=True)
    return store if os.access(store, os.W_OK) else None


def _basis(project: Project, discovery: Discovery, rules: Sequence[Rule]) -> Basis:
    folders = [project.root] if project.closure is None else sorted(project.closure.folders)
    around = {folder for file in discovery.files for folder in file.parents if folder.is_relative_to(project.root)}
    above = [*dict.fromkeys((project.start, *project.start.parents, *sorted(around)))]
    files = [*(discovery.files if project.closure else ()), *([project.config.absolute()] if project.config else ())]
    files += map(Path, sorted(project.closure.looked_at) if project.closure else ())
    return basis_of(rules, project.settings, folders, [path for path, _ in discovery.skipped], above, files)


def basis_of(
    rules: Sequence[Rule],
    settings: Settings,
    folders: Iterable[Path],
    skipped: Iterable[Path],
    above: Sequence[Path],
    files: Iterable[Path],
) -> Basis:
    """All that decides which files there are in `folders`, except the `skipped`, and what is found in them.

    `above` are folders that may hold settings for them; `files` are read besides.
    """
    sources = (Tree(folder, SUFFIXES, frozenset(_caches(folder))) for folder in sorted(source_folders(rules)))
    trees = [Tree(str(folder), _endings(settings.include), frozenset(map(str, skipped))) for folder in folders]
    nested = (Path(path).parent for tree in trees for path, _ in below(tree) if path.endswith(f"{os.sep}.git"))
    found = [
        *(folder / name for folder in above for name in _ABOVE),
        *map(info_exclude, (*above, *nested)),
        *(path / ENVIRONMENT_MARK for path in skipped),
        *files,
    ]
    return Basis((*sources, *trees), tuple(sys.path), tuple(map(str, found)))


def _caches(folder: str) -> Iterator[str]:
    for inside, folders, _ in os.walk(folder):
        yield from (f"{inside}{os.sep}{name}" for name in folders if name == "__pycache__")


def _endings(include: Iterable[str]) -> tuple[str, ...]:
    """The suffixes that the patterns `include` accept; ("",) where they are no plain suffixes."""
    endings = tuple(pattern.removeprefix("*") for pattern in include)
    return endings if all(ending.startswith(".") and ending[1:].isalnum() for ending in endings) else ("",)


def _plan(project: Project, discovery: Discovery, rules: Sequence[Rule], store: Path | None) -> Plan:
    settings = project.settings
    watched = [rule for rule in rules if rule.at_run_time]
    rest = replace(settings, ignore=(*settings.ignore, *(rule.name for rule in watched)), unread=True)
    patches = patch_files(discovery, rest) if len(watched) < len(rules) else ()
    against = tuple(_against_compiling(discovery)) if {*COMPILING} & {*project.whole} else ()
    changed = (patch for patch in patches if patch.changed and patch.document)
    return Plan(
        os.path.realpath(project.root),
        {os.path.realpath(patch.path): patched(patch) for patch in changed},
        (*_left(patches), *against),
        tuple(sorted({rule.at_run_time for rule in watched})),
        _known_loaders(project.root, discovery, settings, watched),
        settings.unsafe,
        project.tunes,
        str(store or ""),
        tuple(name for name in project.whole if not (against and name in COMPILING)),
    )


def _against_compiling(discovery: Discovery) -> Iterator[Left]:
    """Where the program may differentiate gradients, which compiled modules can't."""
    for file in discovery.files:
        before, found, _ = _bytes(file).partition(b"create_graph")
        if found:
            yield Left(str(file), before.count(b"\n") + 1, COMPILE, "it may differentiate gradients: create_graph")


def _bytes(path: Path) -> bytes:
    with suppress(Unreadable, OSError):
        return read_bytes(path)
    return b""


def _left(patches: Sequence[Patch]) -> Iterator[Left]:
    for patch in patches:
        if patch.problem:
            yield Left(patch.path, patch.problem.line or 1, "", patch.problem.message)
        for each in patch.left:
            yield Left(patch.path, each.start.program_line, each.rule, each.reason)


def _known_loaders(
    root: Path, discovery: Discovery, settings: Settings, rules: Sequence[Rule]
) -> dict[str, tuple[KnownLoader, ...]]:
    if not rules:
        return {}
    unmeasured = {name: {**options, OPTION: ""} for name, options in settings.rules.items()}
    settings = replace(settings, select=tuple(rule.name for rule in rules), rules=unmeasured)
    measured = {(each.path, each.call): each for each in figures.load(stored.nearest(root, stored.LOADERS))}
    found = {}
    for file in check_files(discovery, settings).files:
        path = os.path.relpath(os.path.realpath(file.path), root)
        calls = list(_calls(file.path, file.diagnostics))
        lines = [each.start.program_line for each, _ in calls]
        alone = [call for call, line in zip(calls, lines, strict=True) if lines.count(line) == 1]  # or else unknown
        if alone:
            known = (_known_loader(each, call, measured.get((path, call))) for each, call in alone)
            found[os.path.realpath(file.path)] = tuple(known)
    return found


def _calls(path: str, found: Sequence[Diagnostic]) -> Iterator[tuple[Diagnostic, str]]:
    if not found:
        return
    with suppress(Unreadable, OSError, SyntaxError):
        document = read(Path(path))
        for each in found:
            text = document.unit(each.start.cell).text[each.start.offset : each.end.offset]
            call = ast.parse(f"({text})", mode="eval").body
            yield each, call_text(call) if isinstance(call, ast.Call) else ""


def _known_loader(found: Diagnostic, call: str, figure: figures.LoaderFigure | None) -> KnownLoader:
    proven = tuple(name for name in (WORKERS, PINNED) if any(_proves(name, fix) for fix in found.fixes))
    doubt = ""
    if WORKERS not in proven:  # the title of a fix with a proviso ends in that
        provisos = (fix.title.partition(" (")[2].removesuffix(")") for fix in found.fixes if _adds(WORKERS, fix))
        doubt = next(provisos, "") or found.message.partition("no workers are added: ")[2] or found.blocked
    measured = (figure.workers, figure.prefetch) if figure else None
    return KnownLoader(found.start.program_line, call, proven, doubt, measured, figure.cores if figure else 0)


def _proves(name: str, fix: PlacedFix) -> bool:
    return _adds(name, fix) and (name == PINNED or fix.safety is not Safety.BEHAVIOUR)


def _adds(name: str, fix: PlacedFix) -> bool:
    return f"{name}=" in fix.title


def patched(patch: Patch) -> PatchedFile:
    assert patch.document is not None
    changes, probes = [], []
    statements = sorted(_statements(patch.after, but=(ast.Import, ast.ImportFrom)))
    for number, item in enumerate(patch.applied, 1):
        line = original_line(item.text, item.finding, patch.before)
        changes.append(Change(item.finding.rule, item.fix.title, str(item.fix.safety), line))
        if statement := _statement(item, patch.after, statements):
            probes.append((statement, number))
    lines = line_map(patch.after, patch.before)
    lost = tuple(_lost(patch, lines))
    return PatchedFile(digest(patch.document.data), patch.after, lines, tuple(changes), tuple(probes), lost=lost)


def _lost(patch: Patch, lines: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Lines of the patched text whose statement replaces further lines of the original, with those.

    A debugger may be told to stop there, and a coverage tool counts them.
    """
    kept = {abs(line) for line in lines}
    changed = {-lines[line - 1]: line for line in sorted(_statements(patch.after), reverse=True) if lines[line - 1] < 0}
    for line in sorted(_statements(patch.before) - kept):
        before = max((each for each in kept if each < line), default=0)
        if before in changed:
            yield changed[before], line


def _statements(text: str, but: tuple[type[ast.stmt], ...] = ()) -> set[int]:
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt))
    return {node.lineno for node in nodes if not isinstance(node, but)}


def _statement(item: Applied, after: str, statements: Sequence[int]) -> int:
    """The first of `statements` that the fix made, or that follows what it removed; else 0.

    What its first edit made may have moved since: it is known by its text.
    """
    touched = [_lines_of(item.text, edit) for edit in item.fix.edits]
    places = [abs(line) for line in line_map(after, item.text)]
    made = [line for line in statements if any(places[line - 1] in lines for lines in touched)]
    if not any(places[line - 1] in touched[0] for line in made):
        written, first = after.splitlines(), _written(item.text, item.fix.edits[0])
        moved = [line for line in statements if written[line - 1].strip() in first]
        made = moved if len(moved) == 1 else made
    last = max(line for lines in touched for line in lines)
    behind = (line for line in statements if places[line - 1] >= last)
    return next(iter(made), next(behind, 0))


def _written(text: str, edit: Edit) -> frozenset[str]:
    start, end = text.rfind("\n", 0, edit.start) + 1, text.find("\n", edit.end) % (len(text) + 1)
    return frozenset(
        line.strip() for line in (text[start : edit.start] + edit.text + text[edit.end : end]).splitlines()
    )


def _lines_of(text: str, edit: Edit) -> range:
    first = text.count("\n", 0, edit.start) + 1
    return range(first, first + text.count("\n", edit.start, edit.end) + 1)
