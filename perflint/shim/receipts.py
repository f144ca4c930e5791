"""Caches the plan of a command line, for as long as the inputs of the plan are unchanged.

A program then starts without reading the command line, settings or rules. Of the words after a program's name, the
plan depends on those alone that name further programs.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple

from perflint.project.root import project_of
from perflint.shim import plan
from perflint.shim.plan import Plan
from perflint.shim.running import Program, folder_of, launched

_MOST_WORDS = 16  # before the program's own; longer command lines are not cached
_MARKS = (".git", ".gitignore", "pyvenv.cfg")  # files that decide which files around them belong to a project
_TICK_NS = 50_000_000  # a file changed twice within this time may keep its time stamp
_SECOND_NS = 1_000_000_000

Stamp = tuple[int, ...]


class Tree(NamedTuple):
    """The files below `folder` whose names end in one of `endings`, except in the folders `skipped`."""

    folder: str
    endings: tuple[str, ...]
    skipped: frozenset[str]


class Basis(NamedTuple):
    """The inputs of a plan: trees of files, folders of distributions that may offer rules, and single files."""

    trees: tuple[Tree, ...]
    distributions: tuple[str, ...]
    files: tuple[str, ...]

    def look(self) -> Look:
        seen = dict[str, Stamp]()
        for tree in self.trees:
            seen.update(below(tree))
        for folder in self.distributions:
            seen.update((file, _stamp(file)) for file in _entry_points(folder))
        seen.update((file, _stamp(file)) for file in self.files)
        text = repr(sorted(seen.items())).encode("utf-8", "surrogatepass")
        return Look(blake2b(text, digest_size=16).hexdigest(), tuple(set(seen.values())), time.time_ns())


class Look(NamedTuple):
    """A digest of the inputs' stamps, these stamps, and the time at which they were read."""

    digest: str
    stamps: tuple[Stamp, ...]
    time_ns: int

    @property
    def is_settled(self) -> bool:
        """Whether any later change will alter a stamp: no file was changed only just now."""
        return all(changed + _tick(changed) < self.time_ns for stamp in self.stamps for changed in stamp[1:])


class Planned(NamedTuple):
    """A plan, its inputs, and how they looked before they were read."""

    plan: Plan
    basis: Basis
    look: Look

    @property
    def holds(self) -> bool:
        """Whether the plan is valid for as long as its inputs look the same."""
        return self.look.is_settled and self.basis.look().digest == self.look.digest


def keep(words: Sequence[str], program: Program, planned: Planned) -> None:
    """Remember that `words` asked for `program`, and its plan, in the cache of its project if that is in use."""
    place, look = _place(words, program.folder, program.arguments), planned.look.digest
    if planned.plan.store != str(place.parent):
        return
    with suppress(OSError):
        plan.write(place, pickle.dumps((program.is_module, program.quiet, look, planned.basis, planned.plan)))
        plan.sweep(place.parent)


def find(words: Sequence[str]) -> tuple[Program, Plan] | None:
    """The program that `words` ask for, and its plan; None where that is not known."""
    for end, word in enumerate(words[:_MOST_WORDS], 1):
        if word.startswith("-"):
            continue
        with suppress(*plan.UNREADABLE):
            folder = folder_of(word) if "-m" not in words[:end] and Path(word).exists() else Path.cwd()
            arguments = tuple(words[end:])
            return _read(_place(words[:end], folder, arguments), word, arguments)
    return None


def below(tree: Tree) -> Iterator[tuple[str, Stamp]]:
    """The paths in `tree` that count, with their stamps."""
    folders = [tree.folder]
    while folders:
        for entry in _entries(folders.pop()):
            if entry.name in _MARKS:
                yield entry.path, _stamp(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if entry.path not in tree.skipped:
                    folders.append(entry.path)
            elif entry.name.endswith(tree.endings):
                yield entry.path, _stamp(entry.path)


def _place(words: Sequence[str], folder: Path, arguments: Sequence[str]) -> Path:
    """The receipt for `words`, if they ask for a program in `folder`, and for the programs in its `arguments`."""
    seed = repr((tuple(words), launched(arguments), str(Path.cwd()), sys.path, sys.version, __file__)).encode(
        "utf-8", "surrogatepass"
    )
    return plan.store_of(project_of(folder)) / f"words-{blake2b(seed, digest_size=16).hexdigest()}"


def _read(place: Path, name: str, arguments: tuple[str, ...]) -> tuple[Program, Plan]:
    is_module, quiet, look, basis, planned = pickle.loads(plan.read(place))
    if basis.look().digest != look:
        raise ValueError("something has changed")
    return Program(name, arguments, is_module, quiet), planned


def _entry_points(folder: str) -> Iterator[str]:
    entries = _entries(folder)
    if not entries:
        yield folder  # an archive, or nothing yet
    for entry in entries:
        if entry.name.endswith("-info"):
            yield f"{entry.path}{os.sep}entry_points.txt"


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder or os.curdir) as scan:
            return list(scan)
    except OSError:
        return []


def _stamp(path: str) -> Stamp:
    """Size, modification and change time of a file; (0,) for a folder, () where there is nothing."""
    try:
        status = os.stat(path)  # noqa: PTH116  # a Path for each file would take longer than all the rest
    except OSError:
        return ()
    if S_ISDIR(status.st_mode):
        return (0,)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _tick(time_ns: int) -> int:
    """How long a file changed at that time may keep its stamp; some file systems have whole seconds only."""
    return _TICK_NS if time_ns % _SECOND_NS else 2 * _SECOND_NS
