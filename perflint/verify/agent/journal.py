"""Keeps the content of files before a program changes them, and restores it, also after a crash.

Each entry is a file: a line of JSON on what was at a path, then its content if that was a file.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import pathlib
import shlex
import shutil
import socket
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from perflint.documents import digest
from perflint.shim.hooks import AfterImport, before
from perflint.verify.agent.cover import is_covered
from perflint.verify.messages import Undoable

_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OF_ONE = ("remove", "unlink", "rmdir", "mkdir", "mkfifo", "mknod", "truncate", "chmod", "utime")
_TOUCHED = {  # functions of `os`, and where their arguments have paths that are changed, with the names of those
    **{name: {0: "path"} for name in _OF_ONE},
    **{name: {0: "src", 1: "dst"} for name in ("rename", "replace")},
    **{name: {1: "dst"} for name in ("link", "symlink")},
}
_MODES = frozenset("wax+")
_WRITERS = {  # what doesn't write by Python's functions, and which of its arguments names a file
    "torch": {
        "save": 1,
        "from_file": 0,  # which maps a file: what the tensor is given is written there
        "UntypedStorage.from_file": 0,
        "_C.PyTorchFileWriter.__init__": 1,  # of `torch.export` and `torch.package`
        "_C.ScriptFunction.save": 1,
        "_C.ScriptModule.save": 1,  # which all kinds of scripted and traced modules come to
        "_C.ScriptModule._save_for_mobile": 1,
    },
    "torch.autograd.profiler": {"profile.export_chrome_trace": 1},  # which other profilers call
    "safetensors.torch": {"save_file": 1},
    "sqlite3": {"connect": 0},
    "sqlite3.dbapi2": {"connect": 0},
    "h5py": {"File.__init__": 1},
    "cv2": {"imwrite": 0},
    "soundfile": {"write": 0},
    "torchaudio": {"save": 0},
    "pyarrow.parquet": {"write_table": 1, "ParquetWriter.__init__": 1},
}
_NAMES = ("f", "filename", "database", "name", "file", "uri", "where")  # of such arguments
_SEPARATORS = str.maketrans(dict.fromkeys("<>|&;()", " "))  # of a shell
_BESIDE = ("", "-journal", "-wal", "-shm")  # the files of a database of SQLite
_LARGE = 2**28  # bytes of a file that a program is given: it is read, most likely
_FOLDERS = ("mkdir", "rename", "replace")  # what moves all that is below a path, or comes before writes of others there
_IGNORED = frozenset(("__pycache__", ".perflint", "site-packages", ".cache"))  # folders
_COMPILED = "torchinductor_"  # with the user's name, the folder of what torch.compile keeps
_KINDS = {stat.S_IFDIR: "folder", stat.S_IFIFO: "node", stat.S_IFSOCK: "node"}  # of what is known by its mode
_PATHS = (str, bytes, os.PathLike)
_DEVICES = ("/dev/", "/proc/", "/sys/")


class Entry(NamedTuple):
    """What was at a path, `own` if below the program's folders.

    `was` is "file", "folder", "link" (to `target`), "node" (a pipe or socket) or "nothing".
    """

    path: str
    was: str
    own: bool
    target: str = ""
    mode: int = 0
    time: int = 0  # of its last change, in nanoseconds
    size: int = 0
    inode: int = 0
    changed: int = 0  # when anything of it was, its name or mode, too: files may be moved that look the same


class Journal:
    """Notes what is about to change, except in the folders `ours`; `roots` are the program's own."""

    def __init__(self, folder: Path, roots: Sequence[str], ours: Sequence[str]) -> None:
        self._folder = folder
        self._roots = tuple(f"{os.path.realpath(each)}{os.sep}" for each in roots)
        self._ours = tuple(f"{os.path.realpath(each)}{os.sep}" for each in (*ours, str(folder)) if each)

    def watch(self, others: Mapping[str, AfterImport]) -> dict[str, AfterImport]:
        """Note all changes from now on; return callbacks after imports, those of `others` included.

        Patches Python's functions: an audit hook would be called for each `id` of an object, which slows programs.
        """
        for owner, name in ((builtins, "open"), (io, "open"), (os, "open"), (tarfile, "bltn_open")):
            _replace(owner, name, self._opening)
        _replace(shutil, "rmtree", partial(self._touching, {0: "path"}, below=True))
        for name, paths in _TOUCHED.items():
            _replace(os, name, partial(self._touching, paths, below=name in _FOLDERS))
        _replace(socket.socket, "bind", lambda _, address: self._keep(address))
        _replace(os, "system", self._starting)
        _replace(subprocess.Popen, "__init__", lambda _, *given, **named: self._starting(*given, **named))
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10 has the functions in here as well
        for name in filter(partial(hasattr, accessor), ("open", *_TOUCHED)):
            setattr(accessor, name, staticmethod(getattr(io if name == "open" else os, name)))
        watching = (partial(self._watch_writers, writers, others.get(name)) for name, writers in _WRITERS.items())
        return {**others, **dict(zip(_WRITERS, watching, strict=True))}

    def _opening(self, file: object = None, mode: object = "r", *_: object, **named: object) -> None:
        how = named.get("flags", mode)
        if how & _FLAGS if isinstance(how, int) else not _MODES.isdisjoint(str(how)):
            self._keep(named.get("path", file), follow=True)

    def _touching(self, paths: Mapping[int, str], *given: object, below: bool, **named: object) -> None:
        if any(name.endswith("dir_fd") and value is not None for name, value in named.items()):
            return  # relative to a folder that is known by its descriptor: whoever uses those names it before
        touched = [given[place] if place < len(given) else named.get(name) for place, name in paths.items()]
        for each in touched:
            self._keep(each, below=below)
        source, target = (*touched, None)[:2]
        if below and isinstance(source, _PATHS) and isinstance(target, _PATHS):
            folder = Path(os.fsdecode(source))
            for path in _below(folder):
                self._keep(Path(os.fsdecode(target), Path(path).relative_to(folder)))

    def _starting(self, command: object = "", *_: object, **named: object) -> None:
        """Keep what the arguments of another program name below the roots: it may write there."""
        words = [*filter(None, _words(named.get("command", named.get("args", command))))]
        given = [Path(str(named.get("cwd") or ""), word).resolve() for word in words]
        given = [path for path in given if _may_exist(path)]
        inside = [folder / path.name for folder in given if folder.is_dir() for path in given]  # as `cp` writes there
        for path in (*given, *inside):
            if str(path).startswith(self._roots) and not (path.is_file() and path.stat().st_size > _LARGE):
                for each in (path, *(folder for folder in path.parents if not folder.exists())):
                    self._keep(each, follow=True)

    def _watch_writers(self, writers: Mapping[str, int], other: AfterImport | None, library: ModuleType) -> None:
        for name, place in writers.items():
            owner: Any = library
            *around, last = name.split(".")
            for each in around:
                owner = getattr(owner, each)
            setattr(owner, last, before(getattr(owner, last), partial(self._writing, place)))
        if other:
            other(library)

    def _writing(self, place: int, *given: object, **named: object) -> None:
        file, mode, *_ = (*given[place:], None, None)
        file = file or next((named[name] for name in _NAMES if name in named), None)
        if isinstance(file, str | os.PathLike) and named.get("mode", mode) != "r":
            path = os.fsdecode(file).removeprefix("file:").partition("?")[0]
            for ending in _BESIDE:
                self._keep(f"{path}{ending}", follow=True)

    def _keep(self, given: object, *, follow: bool = False, below: bool = False) -> None:
        if not isinstance(given, _PATHS):
            return
        path = Path(os.fsdecode(given))
        if not os.fsdecode(given) or "\0" in str(path):  # a socket that is no file; all else fails
            return
        real = str(path.resolve() if follow else path.parent.resolve() / path.name)
        if not self._passes_over(real):
            for each in (real, *(_below(Path(real)) if below else ())):
                self._note(each)

    def _passes_over(self, path: str) -> bool:
        root = next(filter(path.startswith, self._roots), os.sep)
        parts = Path(path[len(root) :]).parts
        is_compiled = root == os.sep and any(part.startswith(_COMPILED) for part in parts)
        return is_compiled or not _IGNORED.isdisjoint(parts) or path.startswith((*self._ours, *_DEVICES))

    def _note(self, path: str) -> None:
        entry = _entry(path, path.startswith(self._roots))
        if entry is None:
            return
        place = self._folder / digest(os.fsencode(path))
        if place.exists():
            return
        whole = place.with_suffix(f".{os.getpid()}")
        with whole.open("wb") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            if entry.was == "file":
                with Path(path).open("rb") as content:
                    shutil.copyfileobj(content, file)
        with suppress(FileExistsError):  # another process was first: nobody has written before both were done
            os.link(whole, place)
        whole.unlink()


def journaled(orders: Undoable, run: Path, watched: dict[str, AfterImport]) -> dict[str, AfterImport]:
    if not orders.journal:
        return watched
    covered = orders.cover if is_covered(orders.place(run)) else ()
    return Journal(Path(orders.journal), orders.roots, (*orders.ours, *covered)).watch(watched)


def _may_exist(path: Path) -> bool:
    try:
        path.lstat()
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    return True


def _words(command: object) -> Iterator[str]:
    words = command if isinstance(command, list | tuple) else []
    if isinstance(command, str):
        with suppress(ValueError):  # the shell will say what is wrong
            words = shlex.split(command.translate(_SEPARATORS))
    for word in words:
        if isinstance(word, _PATHS):
            text = os.fsdecode(word)
            yield text.partition("=")[2] if text.startswith("-") else text


def _replace(owner: Any, name: str, note: Callable[..., None]) -> None:
    function = getattr(owner, name)
    noted = before(function, note)
    setattr(owner, name, noted)
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        able.update({noted} if function in able else ())


def _entry(path: str, own: bool) -> Entry | None:
    try:
        found = os.lstat(path)
    except OSError:
        return Entry(path, "nothing", own)
    mode = found.st_mode
    if stat.S_ISREG(mode):
        times = found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns
        return Entry(path, "file", own, "", mode, *times)
    if stat.S_ISLNK(mode):
        return Entry(path, "link", own, str(Path(path).readlink()))
    kind = _KINDS.get(stat.S_IFMT(mode))
    return Entry(path, kind, own, "", mode) if kind else None


def _below(folder: Path) -> Iterator[str]:
    if folder.is_dir() and not folder.is_symlink():
        yield from map(str, folder.rglob("*"))


def entries(journal: Path) -> list[tuple[Entry, Path]]:
    found = []
    for place in journal.iterdir():
        if not place.suffix:
            with place.open("rb") as file:
                found.append((Entry(*json.loads(file.readline())), place))
    return sorted(found)


def written(journal: Path, into: Path) -> dict[str, Path | None]:
    into.mkdir()
    files: dict[str, Path | None] = {}
    for number, (entry, _) in enumerate(entries(journal)):
        now = _entry(entry.path, entry.own)
        if not entry.own or now is None or (now.was != "file" and entry.was != "file"):
            continue
        if now.was == "file" and now != entry:
            files[entry.path] = Path(shutil.copyfile(entry.path, into / str(number)))
        elif now.was != "file":
            files[entry.path] = None
    return files


def elsewhere(journal: Path) -> tuple[str, ...]:
    temporary = f"{os.path.realpath(tempfile.gettempdir())}{os.sep}"
    paths = []
    for entry, _ in entries(journal):
        if not entry.own and not entry.path.startswith(temporary) and f"{os.sep}." not in entry.path:
            now = _entry(entry.path, entry.own)
            if now is not None and now.was == "file" and now != entry:
                paths.append(entry.path)
    return tuple(paths)


def put_back(journal: Path) -> None:
    found = entries(journal) if journal.is_dir() else []
    for entry, place in reversed(found):  # what is in a folder before the folder
        if entry.was == "nothing":
            if entry.own:
                _remove(Path(entry.path), Path.rmdir)  # a folder stays that another program has written to meanwhile
            place.unlink()
    new = tuple(f"{entry.path}{os.sep}" for entry, _ in found if entry.was == "nothing")
    for entry, place in found:
        if entry.was != "nothing":
            if not entry.path.startswith(new):
                _restore(entry, place)
            place.unlink()


def _remove(path: Path, remove_folder: Callable[[Path], object]) -> None:
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError):
            remove_folder(path)
    else:
        path.unlink(missing_ok=True)


def _restore(entry: Entry, place: Path) -> None:
    path = Path(entry.path)
    now = _entry(entry.path, entry.own)
    if now == entry:
        return  # it was opened, and nothing was written
    if now and (now.was != entry.was or entry.was in ("link", "node")):
        _remove(path, partial(shutil.rmtree, ignore_errors=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.was == "file":
        _write(entry, place, path)
    elif entry.was == "link":
        path.symlink_to(entry.target)
    else:
        with suppress(FileExistsError, PermissionError):  # not every system has pipes and sockets made so
            path.mkdir() if entry.was == "folder" else os.mknod(path, entry.mode)
        path.chmod(stat.S_IMODE(entry.mode))


def _write(entry: Entry, place: Path, path: Path) -> None:
    """Restore a file's content atomically, or in place where it has further names."""
    found = path.lstat() if path.exists() else None
    has_names = found and found.st_ino == entry.inode and found.st_nlink > 1
    into = path if has_names else path.with_name(f"{path.name}.perflint")
    with place.open("rb") as kept, into.open("wb") as file:
        kept.readline()
        shutil.copyfileobj(kept, file)
    into.chmod(stat.S_IMODE(entry.mode))
    os.utime(into, ns=(entry.time, entry.time))
    into.replace(path)  # which does nothing to a file itself
