"""Finds what is known of a project's loaders before a run: from their code, and from tuning runs."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from perflint.analysis.data.measured import OPTION, call_text
from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.engine.results import Diagnostic, PlacedFix
from perflint.engine.rule import Rule, Safety
from perflint.project import figures
from perflint.project.files import Discovery
from perflint.project.run import check_files
from perflint.project.settings import Settings
from perflint.shim.plan import KnownLoader

WORKERS, PINNED = "num_workers", "pin_memory"


def known_loaders(
    root: Path, discovery: Discovery, settings: Settings, rules: Sequence[Rule]
) -> dict[str, tuple[KnownLoader, ...]]:
    """The loaders that `rules` find, by the real paths of their files."""
    if not rules:
        return {}
    unmeasured = {name: {**options, OPTION: ""} for name, options in settings.rules.items()}
    settings = replace(settings, select=tuple(rule.name for rule in rules), rules=unmeasured)
    measured = {(each.path, each.call): each for each in figures.load(figures.nearest(root))}
    found = {}
    for file in check_files(discovery, settings).files:
        path = os.path.relpath(os.path.realpath(file.path), root)
        calls = list(_calls(file.path, file.diagnostics))
        if calls:
            known = (_known(each, call, measured.get((path, call))) for each, call in calls)
            found[os.path.realpath(file.path)] = tuple(known)
    return found


def _calls(path: str, found: Sequence[Diagnostic]) -> Iterator[tuple[Diagnostic, str]]:
    """What was found in a file, each with the text of the call that it is about."""
    with suppress(Unreadable, OSError, SyntaxError):
        text = read(Path(path)).text if found else ""
        for each in found:
            call = ast.parse(f"({text[each.start.offset : each.end.offset]})", mode="eval").body
            yield each, call_text(call) if isinstance(call, ast.Call) else ""


def _known(found: Diagnostic, call: str, figure: figures.LoaderFigure | None) -> KnownLoader:
    proven = tuple(name for name in (WORKERS, PINNED) if any(_proves(name, fix) for fix in found.fixes))
    doubt = "" if WORKERS in proven else _doubt(found)
    measured = (figure.workers, figure.prefetch) if figure else None
    return KnownLoader(found.start.line, call, proven, doubt, measured, figure.cores if figure else 0)


def _doubt(found: Diagnostic) -> str:
    """Why there are no workers, or none without a proviso, which the title of a fix ends in."""
    provisos = (fix.title.partition(" (")[2].removesuffix(")") for fix in found.fixes if _adds(WORKERS, fix))
    return next(provisos, "") or found.message.partition("no workers are added: ")[2] or found.blocked


def _proves(name: str, fix: PlacedFix) -> bool:
    """Does the `fix` add this argument without a doubt? Where it has one, that is of the workers."""
    return _adds(name, fix) and (name == PINNED or fix.safety is not Safety.BEHAVIOUR)


def _adds(name: str, fix: PlacedFix) -> bool:
    return f"{name}=" in fix.title
