"""The inputs of a plan, and a check of their metadata that tells whether the plan still holds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from hashlib import blake2b
from stat import S_ISDIR
from typing import NamedTuple

_MARKS = (".git", ".gitignore", "pyvenv.cfg")  # names that say which files around them are a project's
_TICK_NS = 50_000_000  # in which a second change of a file may leave it the same time
_SECOND_NS = 1_000_000_000

Stamp = tuple[int, ...]


class Tree(NamedTuple):
    """The files below `folder` whose names end in one of `endings`; what is in the folders `skipped` does not count."""

    folder: str
    endings: tuple[str, ...]
    skipped: frozenset[str]


class Basis(NamedTuple):
    """Trees of files; folders of distributions, which may offer rules; and single files, which need not be there."""

    trees: tuple[Tree, ...]
    distributions: tuple[str, ...]
    files: tuple[str, ...]

    def look(self) -> Look:
        """How all of it is now."""
        seen = dict[str, Stamp]()
        for tree in self.trees:
            seen.update(below(tree))
        for folder in self.distributions:
            seen.update((file, _stamp(file)) for file in _entry_points(folder))
        seen.update((file, _stamp(file)) for file in self.files)
        text = repr(sorted(seen.items())).encode("utf-8", "surrogatepass")
        return Look(blake2b(text, digest_size=16).hexdigest(), tuple(set(seen.values())), time.time_ns())


class Look(NamedTuple):
    """A digest of what there was to see, the stamps of its files, and the time at which it was looked at."""

    digest: str
    stamps: tuple[Stamp, ...]
    time_ns: int

    @property
    def is_settled(self) -> bool:
        """Whether any file that is changed from this time on will show it: none was changed only just now."""
        return all(changed + _tick(changed) < self.time_ns for stamp in self.stamps for changed in stamp[1:])


def _tick(time_ns: int) -> int:
    """How long a file that was changed then may show the same time; some file systems know whole seconds alone."""
    return _TICK_NS if time_ns % _SECOND_NS else 2 * _SECOND_NS


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
    """Size and times of the file at `path`; empty where there is none; of a folder only that it is there.

    The last of the times is that of the latest change, which nobody can set back.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  # a Path for each file would take longer than all the rest
    except OSError:
        return ()
    if S_ISDIR(status.st_mode):
        return (0,)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
