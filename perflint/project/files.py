"""Finds the files of a run, by the patterns of settings and git's ignore files, and the rules that are on in each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perflint.engine import UserError
from perflint.engine.catalogue import selected_rules
from perflint.engine.rule import Rule
from perflint.project import is_marked
from perflint.project.settings import Settings

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MOST = 2_000  # files of a folder without the marks of a project
_SPECIAL = frozenset("*?[]!#\\/ ")  # in patterns
ENVIRONMENT_MARK = "pyvenv.cfg"  # what `python -m venv` and virtualenv put into an environment, whatever its name


@dataclass(frozen=True)
class Discovery:
    """The files of a run, sorted; what was left out and why; what could not be looked at and why.

    `around` are the other files of the project at `top`, which tell something of these; `passed_over` is all that was
    left out there.
    """

    files: tuple[Path, ...]
    skipped: tuple[tuple[Path, str], ...] = ()
    unreadable: tuple[tuple[Path, str], ...] = ()
    around: tuple[Path, ...] = ()
    top: Path | None = None
    passed_over: frozenset[Path] = frozenset()

    def name(self, path: Path) -> str:
        """What a file is called in the project, if there is one: it does not depend on the working directory."""
        if self.top is None:
            return str(path)
        name = os.path.relpath(path, self.top)
        return name if not name.startswith("..") else os.path.relpath(os.path.realpath(path), self.top)


def discover(paths: Sequence[Path], settings: Settings, *, may_be_empty: bool = False) -> Discovery:
    """The files that `paths` stand for, the working directory where there are none.

    A file that is named is taken even when excluded, unless `settings.force_exclude`. Raises UserError for a path that
    does not exist, and where nothing is found, unless that `may_be_empty`: a check without files is never a clean one.
    Only where `force_exclude` leaves out all that was named, as a commit hook may, is the discovery empty then.
    """
    search = _Search(settings)
    for path in paths or (Path(),):
        search.take(path)
    if not (search.found or search.unreadable or search.forced_out or may_be_empty):
        where = ", ".join(str(path) for path in paths) or "."
        raise UserError(f"no Python files or notebooks found in {where}{_hint(search.skipped)}")
    files = tuple(Path(shown) for shown in sorted(search.found.values()))
    return Discovery(files, tuple(search.skipped), tuple(search.unreadable))


def in_project(found: Discovery, top: Path, settings: Settings) -> Discovery:
    """What was `found`, with the files of the project at `top` around it.

    Many files below a folder that nothing marks as a project are several: then those in the same folders count.
    """
    placed = replace(found, top=top)
    names = {placed.name(path) for path in found.files}
    whole = discover([top], settings, may_be_empty=True)
    others = whole.files
    if len(others) > _MOST and not is_marked(top):
        folders = {os.path.realpath(each.parent) for each in found.files}
        others = tuple(each for each in others if os.path.realpath(each.parent) in folders)
    around = tuple(each for each in others if placed.name(each) not in names)
    return replace(placed, around=around, passed_over=frozenset(path for path, _ in whole.skipped))


def forced_out(path: Path, settings: Settings) -> str:
    """Why `settings` leave out a file that is named `path`, which need not be there yet; empty where they don't."""
    source = _Search(settings).forced_out_by(Path(os.path.realpath(path)))
    return f"excluded by {source}" if source else ""


def _hint(skipped: Sequence[tuple[Path, str]]) -> str:
    if not skipped:
        return ""
    path, reason = skipped[0]
    more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
    return f" (left out: {path}{more}, {reason})"


class _Search:
    """One run's search; `found` maps the real path of each file to the path that is shown for it."""

    def __init__(self, settings: Settings) -> None:
        self.found: dict[str, str] = {}
        self.skipped: list[tuple[Path, str]] = []
        self.unreadable: list[tuple[Path, str]] = []
        self.forced_out = False
        self._root = settings.root.resolve()
        self._force = settings.force_exclude
        self._gitignore = settings.respect_gitignore
        try:
            self._own = layer((*settings.exclude, *settings.extend_exclude), self._root, "the setting exclude")
            self._include = layer(settings.include, self._root, "the setting include")
        except ValueError as error:
            raise UserError(f"exclude or include: {error}") from error

    def take(self, path: Path) -> None:
        try:
            real = path.resolve(strict=True)
        except FileNotFoundError:
            broken = ": a symbolic link to nothing" if path.is_symlink() else ": no such file or folder"
            raise UserError(f"{path}{broken}") from None
        except (OSError, RuntimeError) as error:
            raise UserError(f"{path}: {error}") from error
        if source := self.forced_out_by(real):
            self.forced_out = True
            self.skipped.append((path, f"excluded by {source}"))
        elif real.is_dir():
            self._walk(real, path)
        else:
            self.found.setdefault(str(real), str(path))

    def forced_out_by(self, real: Path) -> str | None:
        """What excludes `real` or a folder above it, up to the root of the settings, even where it is named."""
        if not self._force:
            return None
        layers = self._git_layers_above(real)
        for path in (real, *real.parents):
            if path == self._root:
                break
            is_folder = path != real or real.is_dir()
            if source := excluded_by((self._own,), str(path), is_folder) or excluded_by(layers, str(path), is_folder):
                return source
        return None

    def _walk(self, real: Path, path: Path) -> None:
        layers = [each.without(str(real)) for each in self._git_layers_above(real)]
        self._own_here = self._own.without(str(real))
        self._folders = [(str(real), "" if path == Path() else str(path).rstrip(os.sep) + os.sep, layers)]
        while self._folders:
            folder, shown, layers = self._folders.pop()
            try:
                with os.scandir(folder) as scan:
                    entries = list(scan)
            except OSError as error:
                self.unreadable.append((Path(shown), f"cannot read this folder: {error.strerror}"))
                continue
            names = {entry.name for entry in entries}
            if ENVIRONMENT_MARK in names and folder != str(real):
                self.skipped.append((Path(shown), "a virtual environment"))
                continue
            layers = self._enter(Path(folder), names, layers)
            for entry in entries:
                self._visit(entry, shown + entry.name, layers)

    def _visit(self, entry: os.DirEntry[str], shown: str, layers: list[Layer]) -> None:
        is_folder = _is(entry.is_dir)
        if not is_folder and not self._include.verdict(entry.path, False):
            return
        source = excluded_by((self._own_here,), entry.path, is_folder) or excluded_by(layers, entry.path, is_folder)
        if source:
            self.skipped.append((Path(shown), f"excluded by {source}"))
        elif is_folder and entry.is_symlink():
            self.skipped.append((Path(shown), "a symbolic link to a folder"))
        elif is_folder:
            self._folders.append((entry.path, shown + os.sep, layers))
        elif _is(entry.is_file):
            real = str(Path(entry.path).resolve()) if entry.is_symlink() else entry.path
            self.found.setdefault(real, shown)
        else:
            self.skipped.append((Path(shown), "not a regular file"))

    def _enter(self, folder: Path, names: set[str], layers: list[Layer]) -> list[Layer]:
        if not self._gitignore:
            return layers
        if ".git" in names:
            layers = self._git_layers_above(folder)
        own = git_layer(folder / ".gitignore", folder) if ".gitignore" in names else None
        return [*layers, own] if own else layers

    def _git_layers_above(self, folder: Path) -> list[Layer]:
        return git_layers_above(folder, self._root) if self._gitignore else []


def _is(what: Callable[[], bool]) -> bool:
    try:
        return what()
    except OSError:
        return False


class RulesByFile:
    """The rules that settings leave on, and those of them that `per-file-ignores` leave on in a file.

    Raises UserError where no rule is on at all, which must not pass for a clean run.
    """

    def __init__(self, settings: Settings) -> None:
        self.selected = selected_rules(settings.selection)
        if not self.selected:
            raise UserError("no rule is on: everything selected is also ignored; `perflint config` shows where")
        root = settings.root.resolve()
        try:
            self._off = [(layer([pattern], root, ""), words) for pattern, words in settings.per_file_ignores]
        except ValueError as error:
            raise UserError(f"per-file-ignores: {error}") from error

    def at(self, path: Path) -> tuple[Rule, ...]:
        if not self._off:
            return self.selected
        real = path.resolve()
        off = {word for pattern, words in self._off if pattern.covers(real) for word in words}
        return tuple(rule for rule in self.selected if off.isdisjoint(("all", rule.group, rule.name)))


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
