"""The plan of a run, which each of its processes reads, and the checksummed files that hold it.

Plans are cached by command line while their inputs are unchanged: a program then starts without parsing options,
settings or rules. Of the words after its name, only those that name more programs matter. Records that a starting
process needs are named tuples, as dataclasses take too long to import.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple

from perflint.documents import digest
from perflint.engine import UserError
from perflint.project import CACHE, project_of

RUNS = "run"
_DIGEST = 16
_KEEP_S = 30 * 86_400
# What is damaged, or was written by another version:
UNREADABLE = (OSError, ValueError, TypeError, AttributeError, ImportError, EOFError, pickle.UnpicklingError)
COMPILE = "compile"  # stands for a rule, where modules are left that --compile asks for
_MOST_WORDS = 16  # before the program's own; longer command lines are not cached
_MARKS = (".git", ".gitignore", "pyvenv.cfg")  # files that decide which files around them belong to a project
_TICK_NS = 50_000_000  # a file changed twice within this time may keep its time stamp
_SECOND_NS = 1_000_000_000
Stamp = tuple[int, ...]


class Change(NamedTuple):
    """`line` is that of the finding in the user's file."""

    rule: str
    title: str
    safety: str
    line: int


class PatchedFile(NamedTuple):
    """A user's file that is run changed while its bytes have the digest `source`.

    `lines` maps lines of the patched `text` to the file's, negative where changed. `probes` are pairs of a line of
    `text` that a change made, and the change's number. `calls` names functions, methods as `Class.method`, whose calls
    are counted. `lost` pairs lines of `text` with replaced lines of the file. `shortened` are lines of `text` with
    loops and tests to shorten.
    """

    source: str
    text: str
    lines: tuple[int, ...]
    changes: tuple[Change, ...]
    probes: tuple[tuple[int, int], ...]
    calls: tuple[str, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    shortened: tuple[int, ...] = ()

    @property
    def counter(self) -> str:
        """The global counting function of this patch alone, called with numbers of changes."""
        return f"__perflint_hit_{digest(repr((self.text, self.probes)).encode('utf-8', 'surrogatepass'))}__"

    @property
    def digest(self) -> str:
        return digest(repr(self).encode("ascii", "backslashreplace"))


class Left(NamedTuple):
    """A defect left at a line, and why; without a rule, a file that can't be patched at all."""

    path: str
    line: int
    rule: str
    reason: str


class KnownLoader(NamedTuple):
    """A loader that leaves something out, by the line of its call, whose text identifies it.

    `proven` are arguments that the text alone proves safe, `doubt` is why workers are not among them. `measured` are
    workers and batches that each keeps ready, if a tuning run on as many `cores` found them worth it.
    """

    line: int
    call: str
    proven: tuple[str, ...]
    doubt: str
    measured: tuple[int, int] | None
    cores: int


class Plan(NamedTuple):
    """A program's changed files by real path, what is left and why, and the folder for compiled code or "".

    `watches` names what is fixed at run time, by `unsafe` means too or not; `loaders`, by real path, are tuned if the
    run `tunes`. `settings` (perflint.shim.settings) hold for the whole program. The run began in the folder `start`,
    and `tells` at its end what took effect.
    """

    root: str
    files: Mapping[str, PatchedFile]
    left: tuple[Left, ...]
    watches: tuple[str, ...]
    loaders: Mapping[str, tuple[KnownLoader, ...]]
    unsafe: bool
    tunes: bool
    store: str
    settings: tuple[str, ...] = ()
    start: str = ""
    tells: bool = True

    def loader_at(self, path: str, line: int) -> KnownLoader | None:
        known = self.loaders.get(os.path.realpath(path), ())
        return next((each for each in known if each.line == line), None)


def save(plan: Plan, path: Path) -> None:
    write(path, pickle.dumps(plan))


def load(path: Path) -> Plan:
    plan: Plan = pickle.loads(read(path))
    return plan


def write(path: Path, data: bytes) -> None:
    """Write `data` with its digest to `path`, atomically; raises OSError."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(blake2b(data, digest_size=_DIGEST).digest() + data)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def read(path: Path) -> bytes:
    """What this user wrote to `path`; raises OSError, and ValueError where it is damaged."""
    with path.open("rb") as file:
        owner, content = os.fstat(file.fileno()).st_uid, file.read()
    if owner != getattr(os, "getuid", lambda: owner)():
        raise PermissionError(f"{path} is somebody else's")  # who could have this process run anything
    data = content[_DIGEST:]
    if blake2b(data, digest_size=_DIGEST).digest() != content[:_DIGEST]:
        raise ValueError(f"{path} is damaged")
    return data


def sweep(folder: Path) -> None:
    oldest = time.time() - _KEEP_S
    for file in folder.iterdir():
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()


class Program(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    is_module: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        return Path.cwd() if self.is_module else folder_of(self.name)


def launched(arguments: Sequence[str]) -> tuple[str, ...]:
    pairs = zip(("", *arguments), arguments, strict=False)
    return tuple(word for before, word in pairs if word.endswith(".py") or before == "-m")


def find_program(path: str) -> None:
    """Raise UserError where there is no readable script or folder at `path`."""
    try:
        access = os.R_OK | (os.X_OK if S_ISDIR(os.stat(path).st_mode) else 0)  # noqa: PTH116
        is_open = os.access(path, access)
    except PermissionError:
        is_open = False
    except OSError:
        raise UserError(f"{path}: there is no such file to run") from None
    if not is_open:
        raise UserError(f"{path}: Permission denied")


def folder_of(path: str) -> Path:
    real = Path(os.path.realpath(path))
    return real if real.is_dir() else real.parent


class Tree(NamedTuple):
    """The files below `folder` whose names end in one of `endings`, except in the folders `skipped`."""

    folder: str
    endings: tuple[str, ...]
    skipped: frozenset[str]


class Basis(NamedTuple):
    """The inputs of a plan: trees of files, folders of distributions that may offer rules, single files."""

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
        known = digest(repr(sorted(seen.items())).encode("utf-8", "surrogatepass"))
        return Look(known, tuple(set(seen.values())), time.time_ns(), frozenset(seen))

    def holds(self, look: Look) -> bool:
        return look.is_settled and self.look().digest == look.digest


class Look(NamedTuple):
    """A digest of the inputs' stamps, these stamps, when they were read, and the inputs' paths."""

    digest: str
    stamps: tuple[Stamp, ...]
    time_ns: int
    paths: frozenset[str] = frozenset()

    @property
    def is_settled(self) -> bool:
        """Whether any later change will alter a stamp: no file was changed just now."""
        return all(changed + _tick(changed) < self.time_ns for stamp in self.stamps for changed in stamp[1:])


class Planned(NamedTuple):
    plan: Plan
    basis: Basis
    look: Look


def keep(words: Sequence[str], program: Program, planned: Planned) -> None:
    place, look = _place(words, program.folder, program.arguments), planned.look.digest
    if planned.plan.store != str(place.parent):
        return
    with suppress(OSError):
        write(place, pickle.dumps((program.is_module, program.quiet, look, planned.basis, planned.plan)))
        sweep(place.parent)


def find(words: Sequence[str]) -> tuple[Program, Plan] | None:
    for end, word in enumerate(words[:_MOST_WORDS], 1):
        if word.startswith("-"):
            continue
        with suppress(*UNREADABLE):
            folder = folder_of(word) if "-m" not in words[:end] and Path(word).exists() else Path.cwd()
            arguments = tuple(words[end:])
            return _read(_place(words[:end], folder, arguments), word, arguments)
    return None


def below(tree: Tree) -> Iterator[tuple[str, Stamp]]:
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
    seed = repr((tuple(words), launched(arguments), str(Path.cwd()), sys.path, sys.version, __file__))
    return project_of(folder) / CACHE / RUNS / f"words-{digest(seed.encode('utf-8', 'surrogatepass'))}"


def _read(place: Path, name: str, arguments: tuple[str, ...]) -> tuple[Program, Plan]:
    is_module, quiet, look, basis, planned = pickle.loads(read(place))
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
    """A file's size, modification and change time; (0,) for a folder, () where there is nothing."""
    try:
        status = os.stat(path)  # noqa: PTH116  # a Path for each file would take longer than all the rest
    except OSError:
        return ()
    if S_ISDIR(status.st_mode):
        return (0,)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _tick(time_ns: int) -> int:
    """Some file systems have whole seconds only."""
    return _TICK_NS if time_ns % _SECOND_NS else 2 * _SECOND_NS
