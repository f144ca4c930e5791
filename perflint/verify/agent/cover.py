"""Has a process see folders through an overlay, which takes all that it and its children write.

It is mounted in a namespace of the process's own, and ends with its last process. `python -m
perflint.verify.agent.cover FOLDER ROOT ...` tells by its exit code whether that can be had here.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # of unshare
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000  # of mount
_SPECIAL = frozenset(",:\\")  # in the options of a mount
_COVERS, _UPPER, _WORK, _DONE = "cover", "upper", "work", "done"  # folders, and a file
_MOST = 20_000  # files whose owners are looked at


def cover(into: Path, roots: Sequence[str], ours: Sequence[str] = ()) -> None:
    """Have writes below `roots` end up below `into`, except those to the folders `ours`; raises OSError where that
    fails.
    """
    if not _SPECIAL.isdisjoint("".join((*roots, str(into)))) or any(into.is_relative_to(each) for each in roots):
        raise OSError(f"{into}: no place for a cover of {', '.join(roots)}")
    owner = _private(roots)
    for number, root in enumerate(roots):
        upper, work = (into / _COVERS / str(number) / each for each in (_UPPER, _WORK))
        for each in (upper, work):
            each.mkdir(parents=True)
        with ExitStack() as stack:
            kept = [each for each in ours if Path(each).is_relative_to(root) and Path(each).is_dir()]
            opened = [os.open(each, os.O_PATH | os.O_DIRECTORY) for each in kept]
            for descriptor in opened:
                stack.callback(os.close, descriptor)
            _mount("overlay", root, "overlay", 0, f"lowerdir={root},upperdir={upper},workdir={work}{owner}")
            for path, descriptor in zip(kept, opened, strict=True):
                _mount(f"/proc/self/fd/{descriptor}", path, None, _BIND)
    os.chdir(Path.cwd())  # it was what lies below the cover
    for name in ("rename", "replace"):
        setattr(os, name, _renaming(getattr(os, name), tuple(f"{each}{os.sep}" for each in roots)))
    (into / _COVERS / _DONE).touch()


def is_covered(into: Path) -> bool:
    return (into / _COVERS / _DONE).exists()


def outermost(folders: Sequence[str]) -> tuple[str, ...]:
    real = dict.fromkeys(map(os.path.realpath, folders))
    return tuple(each for each in real if not any(each != other and Path(each).is_relative_to(other) for other in real))


def remove(folder: str | Path) -> None:
    for each in Path(folder).glob(f"**/{_COVERS}/*/{_WORK}/{_WORK}"):  # which an overlay lets nobody read
        with suppress(OSError):
            each.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def changes(into: Path, roots: Sequence[str]) -> dict[str, Path | None] | None:
    if not is_covered(into):
        return None
    return {path: found for number, root in enumerate(roots) for path, found in _changes(into, number, root)}


def _changes(into: Path, number: int, root: str) -> Iterator[tuple[str, Path | None]]:
    upper = into / _COVERS / str(number) / _UPPER
    for each in sorted(upper.rglob("*")):
        found, path = each.lstat(), str(root / each.relative_to(upper))
        if stat.S_ISREG(found.st_mode):
            yield path, each
        elif stat.S_ISCHR(found.st_mode) and not found.st_rdev:  # which overlays note what was removed by
            yield path, None


def _private(roots: Sequence[str]) -> str:
    """Give this process mounts of its own; the options that a mount needs then.

    Without the right to that, it becomes the only user of a namespace, where files of others can't be written.
    """
    libc, owner, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    options = ""
    if libc.unshare(_NEW_MOUNTS):
        if not all(_is_ours(root) for root in roots):
            raise PermissionError(f"there are files of others below {', '.join(roots)}")
        if libc.unshare(_NEW_MOUNTS | _NEW_USER):
            raise OSError(ctypes.get_errno(), "no mounts of its own")
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{owner} {owner} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", "ascii")
        options = ",userxattr"
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    return options


def _renaming(usual: Callable[..., None], roots: tuple[str, ...]) -> Callable[..., None]:
    @functools.wraps(usual)
    def renamed(src: Any, dst: Any, **named: Any) -> None:
        try:
            usual(src, dst, **named)
        except OSError as error:
            if named or error.errno != errno.EXDEV:
                raise
            old, new = (os.path.realpath(os.fsdecode(each)) for each in (src, dst))
            if not (old.startswith(roots) and new.startswith(roots) and Path(old).is_dir()):
                raise
            shutil.copytree(old, new, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)

    os.supports_dir_fd.add(renamed)
    return renamed


def _is_ours(root: str) -> bool:
    ours = os.getuid(), os.getgid()
    found = (path for folder, _, files in os.walk(root) for path in (folder, *(f"{folder}/{each}" for each in files)))
    for number, path in enumerate(found):
        at = os.lstat(path)
        if number > _MOST or (at.st_uid, at.st_gid) != ours:
            return False
    return True


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    given = (None if each is None else os.fsencode(each) for each in (source, target, kind))
    if libc.mount(*given, ctypes.c_ulong(flags), None if options is None else os.fsencode(options)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


if __name__ == "__main__":
    try:
        cover(Path(sys.argv[1]), sys.argv[2:])
    except (OSError, AttributeError):  # or no such functions
        sys.exit(1)
