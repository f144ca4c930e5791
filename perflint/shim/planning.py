"""Makes the plan of a run: the patch of every file of the project, by the same `fix` as the command line's."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.documents.disk import Unreadable, read_bytes
from perflint.engine.catalogue import selected_rules
from perflint.engine.fix import Applied
from perflint.engine.line_map import line_map, original_line
from perflint.engine.rule import Edit, Rule
from perflint.project.cache import keys_for
from perflint.project.cache_folder import FOLDER, make
from perflint.project.figures import load as load_figures
from perflint.project.figures import nearest
from perflint.project.files import Discovery, discover
from perflint.project.fingerprint import source_digest
from perflint.project.patch import Patch
from perflint.project.patching import patch_files
from perflint.project.settings import Settings
from perflint.shim.basis import Basis, Look
from perflint.shim.dependencies import basis_of
from perflint.shim.known_loaders import known_loaders
from perflint.shim.plan import COMPILE, Change, Left, PatchedFile, Plan, digest, load, save
from perflint.shim.store import RUNS, sweep


@dataclass(frozen=True)
class Planned:
    """A plan, where it is kept if it is, what it was made from, and how that looked before it was read."""

    plan: Plan
    path: Path | None
    basis: Basis
    look: Look

    @property
    def holds(self) -> bool:
        """Whether the plan is right for as long as its basis looks as it did."""
        return self.look.is_settled and self.basis.look().digest == self.look.digest


@dataclass(frozen=True)
class Project:
    """The project at `root` of a program in its folder `start`, and how it is to be run.

    `settings` are those of the file `config`, if one was asked for. `tunes`: to find out about its loaders. `compiles`:
    with the modules compiled that are called again and again.
    """

    start: Path
    root: Path
    settings: Settings
    config: Path | None = None
    tunes: bool = False
    compiles: bool = False


def plan_for(project: Project) -> Planned:
    """The plan for a program, from the cache or new, and then kept there."""
    root = project.root
    settings = replace(project.settings, cache_dir=project.settings.cache_dir or root / FOLDER)
    store = _store(settings)  # made before anything is looked at, for it may lie in the project
    discovery = discover([root], settings, may_be_empty=True)  # `-m` runs what lies elsewhere, too
    rules = selected_rules(settings.selection)
    basis = basis_of(project.start, root, discovery, settings, rules, project.config)
    look = basis.look()
    figures, how = load_figures(nearest(root)), (settings.unsafe, project.tunes, project.compiles)
    seed = repr((str(root), settings.per_file_ignores, how, figures))
    key = keys_for(rules, settings.rules, source_digest(rules) + seed.encode())
    parts = [f"{file}\0{digest(_bytes(file))}" for file in discovery.files]
    name = f"plan-{key.key('plan.py', os.fsencode(chr(0).join(parts))).hex()}.json"
    path = store / name if store else None
    plan = _known(path)
    if plan is None:
        plan = _plan(replace(project, settings=settings), discovery, rules, store)
        path = _saved(plan, path)
    return Planned(plan, path, basis, look)


def _saved(plan: Plan, path: Path | None) -> Path | None:
    """Keep `plan` at `path`, and return that, or None where there is no room."""
    if path is not None:
        with suppress(OSError):
            save(plan, path)
            sweep(path.parent)
            return path
    return None


def _store(settings: Settings) -> Path | None:
    if not settings.cache or not settings.cache_dir:
        return None
    store = (settings.cache_dir / RUNS).absolute()
    with suppress(OSError):
        make(settings.cache_dir)
        store.mkdir(exist_ok=True)
    return store if os.access(store, os.W_OK) else None


def _known(path: Path | None) -> Plan | None:
    with suppress(OSError, ValueError):
        return load(path) if path else None
    return None


def _plan(project: Project, discovery: Discovery, rules: Sequence[Rule], store: Path | None) -> Plan:
    settings = project.settings
    watched = [rule for rule in rules if rule.at_run_time]
    rest = replace(settings, ignore=(*settings.ignore, *(rule.name for rule in watched)))
    patches = patch_files(discovery, rest) if len(watched) < len(rules) else ()
    against = tuple(_against_compiling(discovery)) if project.compiles else ()
    return Plan(
        os.path.realpath(project.root),
        _patched_files(patches),
        (*_left(patches), *against),
        tuple(sorted({rule.at_run_time for rule in watched})),
        known_loaders(project.root, discovery, settings, watched),
        settings.unsafe,
        project.tunes,
        str(store or ""),
        project.compiles and not against,
    )


def _against_compiling(discovery: Discovery) -> Iterator[Left]:
    """Where the program goes backward through its gradients, which nothing that was compiled can do."""
    for file in discovery.files:
        before, found, _ = _bytes(file).partition(b"create_graph")
        if found:
            yield Left(str(file), before.count(b"\n") + 1, COMPILE, "it may differentiate gradients: create_graph")


def _bytes(path: Path) -> bytes:
    with suppress(Unreadable, OSError):
        return read_bytes(path)
    return b""


def _patched_files(patches: Sequence[Patch]) -> dict[str, PatchedFile]:
    changed = (patch for patch in patches if patch.changed and patch.document and not patch.document.notebook)
    return {os.path.realpath(patch.path): patched(patch) for patch in changed}


def _left(patches: Sequence[Patch]) -> Iterator[Left]:
    for patch in patches:
        if patch.problem:
            yield Left(patch.path, patch.problem.line or 1, "", patch.problem.message)
        for each in (*patch.remaining, *patch.failures):
            yield Left(patch.path, each.start.line, each.rule, each.reason)


def patched(patch: Patch) -> PatchedFile:
    """What a run needs of a patch."""
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
    """Each line of the patched text that begins what stands for more lines than that, with those others.

    They are where a debugger may be told to stop, and what a coverage tool counts.
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
    """The first line of `statements` in `after` that the fix made, or that follows on what it took away; or 0."""
    touched = {line for edit in item.fix.edits for line in _lines_of(item.text, edit)}
    places = line_map(after, item.text)
    made = (line for line in statements if abs(places[line - 1]) in touched)
    behind = (line for line in statements if abs(places[line - 1]) >= max(touched))
    return next(made, next(behind, 0))


def _lines_of(text: str, edit: Edit) -> range:
    first = text.count("\n", 0, edit.start) + 1
    return range(first, first + text.count("\n", edit.start, edit.end) + 1)
