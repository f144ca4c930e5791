"""Decides which files and folders a run leaves out: patterns of the settings, and git's ignore files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_SPECIAL = frozenset("*?[]!#\\/ ")


@dataclass(frozen=True)
class Layer:
    """Patterns in gitignore's language which apply below the folder `base`; `source` names them to the user.

    `names` and `suffixes` are the patterns that are no more than that (`build/`, `*.egg`); they are kept apart from
    the `others`, which `spec` is made of, because they are most of all patterns and tested in no time.
    """

    base: str
    source: str
    names: frozenset[str]
    suffixes: tuple[str, ...]
    others: tuple[str, ...]
    spec: GitIgnoreSpec | None

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """True where the last pattern that matches the absolute `path` excludes it, False where it takes it back in."""
        name = path.rpartition(os.sep)[2]
        if name in self.names or name.endswith(self.suffixes):
            return True
        if is_folder and (name + "/" in self.names or (name + "/").endswith(self.suffixes)):
            return True
        if self.spec is None or not path.startswith(self.base):
            return None
        relative = path[len(self.base) :].replace(os.sep, "/")
        return self.spec.check_file(relative + "/" if is_folder else relative).include

    def covers(self, path: Path) -> bool:
        folders = (folder for folder in path.parents if str(folder).startswith(self.base))
        return bool(self.verdict(str(path), False)) or any(self.verdict(str(folder), True) for folder in folders)

    def without(self, folder: str) -> Layer:
        """This layer less the patterns with a path that exclude `folder`, which the user has asked for by name."""
        if self.spec is None or not self.spec.check_file(folder[len(self.base) :].replace(os.sep, "/") + "/").include:
            return self
        kept = tuple(line for line in self.others if not layer([line], Path(self.base), "").verdict(folder, True))
        return replace(self, others=kept, spec=_spec(kept))


def layer(patterns: Iterable[str], base: Path, source: str) -> Layer:
    """The layer of `patterns` below the absolute folder `base`.

    Raises ValueError for a pattern that is not one.
    """
    others = [line for line in patterns if line.strip() and not line.startswith("#")]
    names: list[str] = []
    suffixes: list[str] = []
    if not any(line.startswith("!") for line in others):  # else their order matters
        names = [line for line in others if _SPECIAL.isdisjoint(line.removesuffix("/"))]
        suffixes = [line[1:] for line in others if line[0] == "*" and _SPECIAL.isdisjoint(line[1:].removesuffix("/"))]
        others = [line for line in others if line not in names and line[1:] not in suffixes]
    below = str(base).rstrip(os.sep) + os.sep
    return Layer(below, source, frozenset(names), tuple(suffixes), tuple(others), _spec(others))


def git_layer(file: Path, base: Path) -> Layer | None:
    """The layer of one of git's ignore files; None without a readable one. As git does, skips what is no pattern."""
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    try:
        return layer(lines, base, str(file))
    except ValueError:
        return layer([line for line in lines if _is_pattern(line)], base, str(file))


def git_layers_above(folder: Path, root: Path) -> list[Layer]:
    """The ignore files which apply to `folder` from above it: from its repository's top, or else from `root`, down."""
    lineage = (folder, *folder.parents)
    top = next((each for each in lineage if (each / ".git").exists()), root)
    above = [each for each in reversed(lineage) if each.is_relative_to(top)]
    found = [git_layer(info_exclude(top), top)] if above else []
    found += [git_layer(each / ".gitignore", each) for each in above if each != folder]
    return [each for each in found if each]


def excluded_by(layers: Sequence[Layer], path: str, is_folder: bool) -> str | None:
    """The source of the pattern that excludes `path`; the layer nearest to it, the last one, has the say."""
    for each in reversed(layers):
        verdict = each.verdict(path, is_folder)
        if verdict is not None:
            return each.source if verdict else None
    return None


def info_exclude(top: Path) -> Path:
    """Where a repository keeps its private ignore file; in a work tree or submodule, `.git` is a file that points."""
    git = top / ".git"
    if git.is_file():
        git = top / git.read_text(encoding="utf-8", errors="replace").strip().removeprefix("gitdir:").strip()
        common = git / "commondir"
        if common.is_file():
            git = git / common.read_text(encoding="utf-8", errors="replace").strip()
    return git / "info" / "exclude"


def _spec(lines: Sequence[str]) -> GitIgnoreSpec | None:
    if not lines:
        return None
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _is_pattern(line: str) -> bool:
    try:
        _spec([line])
    except ValueError:
        return False
    return True
