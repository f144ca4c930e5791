"""Finds all files that the plan for a project depends on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perflint.engine.rule import Rule
from perflint.project import figures
from perflint.project.exclude import info_exclude
from perflint.project.files import ENVIRONMENT_MARK, Discovery
from perflint.project.fingerprint import SUFFIXES, source_folders
from perflint.project.settings import Settings
from perflint.shim.basis import Basis, Tree, below

_CACHES = "__pycache__"
# files that have a say on what lies below them
_ABOVE = ("perflint.toml", "pyproject.toml", ".git", ".gitignore", f"{figures.FOLDER}/{figures.FILE}")


def basis_of(
    start: Path, root: Path, discovery: Discovery, settings: Settings, rules: Sequence[Rule], config: Path | None
) -> Basis:
    """What a plan is made from: that of the project at `root`, for a program in the folder `start` of it.

    `settings` are those of the file `config`, if one was asked for.
    """
    sources = (Tree(folder, SUFFIXES, frozenset(_caches(folder))) for folder in sorted(source_folders(rules)))
    skipped = frozenset(str(path) for path, _ in discovery.skipped)
    project = Tree(str(root), _endings(settings.include), skipped)
    above = (start, *start.parents)
    nested = (Path(path).parent for path, _ in below(project) if path.endswith(f"{os.sep}.git"))
    files = [
        *(folder / name for folder in above for name in _ABOVE),
        *map(info_exclude, (*above, *nested)),
        *(path / ENVIRONMENT_MARK for path, _ in discovery.skipped),
        *([config.absolute()] if config else ()),
    ]
    return Basis((*sources, project), tuple(sys.path), tuple(map(str, files)))


def _caches(folder: str) -> Iterator[str]:
    for inside, folders, _ in os.walk(folder):
        yield from (f"{inside}{os.sep}{name}" for name in folders if name == _CACHES)


def _endings(include: Iterable[str]) -> tuple[str, ...]:
    """What the names of the files end in that the patterns `include` take in; anything, where that can't be said."""
    endings = tuple(pattern.removeprefix("*") for pattern in include)
    return endings if all(map(_is_plain, endings)) else ("",)


def _is_plain(ending: str) -> bool:
    return ending.startswith(".") and ending[1:].isalnum()
