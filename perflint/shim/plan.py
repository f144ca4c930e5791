"""The plan of a run, which each of its processes reads, and the checksummed files that it is kept in.

Here, as in all that a process needs as it starts, records are named tuples: dataclasses take too long to import.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from perflint.documents import digest
from perflint.project.root import CACHE

RUNS = "run"  # the folder of a cache for what is kept of runs
_DIGEST = 16
_KEEP_S = 30 * 86_400
# What is damaged, or was written by another version:
UNREADABLE = (OSError, ValueError, TypeError, AttributeError, ImportError, EOFError, pickle.UnpicklingError)
COMPILE = "compile"  # stands for a rule, where modules are left that --compile asks for


class Change(NamedTuple):
    """A fix that is applied: its rule, title and safety, and the line of the user's file that its finding begins at."""

    rule: str
    title: str
    safety: str
    line: int


class PatchedFile(NamedTuple):
    """A file of the user's that is run changed, for as long as its bytes have the digest `source`.

    `lines` holds for each line of the patched `text` the line of the file that it stands for, negative where that one
    reads differently. `probes` holds lines of `text` that begin what a change made, each with the change's number.
    `calls` names functions, and methods as `Class.method`, of whose calls the verifier is told. `lost` holds lines of
    `text`, each with a line of the file that nothing else stands for than what begins there. `shortened` are lines of
    `text` with loops and tests that the verifier shortens.
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
        """The global function by which the patched code counts, by the numbers of its changes; of this patch alone."""
        return f"__perflint_hit_{digest(repr((self.text, self.probes)).encode('utf-8', 'surrogatepass'))}__"

    @property
    def digest(self) -> str:
        """Names this very patch."""
        return digest(repr(self).encode("ascii", "backslashreplace"))


class Left(NamedTuple):
    """A defect that is left at a line of a file, and why; of a file that can't be patched at all, without a rule."""

    path: str
    line: int
    rule: str
    reason: str


class KnownLoader(NamedTuple):
    """A loader that leaves something out, by the line of its call, whose text it is known by.

    `proven` are the arguments that the text alone proves to be safe, `doubt` is why workers are not among them.
    `measured` are workers, and batches that each keeps ready, if a run has found out how many are worth it, on as many
    `cores`.
    """

    line: int
    call: str
    proven: tuple[str, ...]
    doubt: str
    measured: tuple[int, int] | None
    cores: int


class Plan(NamedTuple):
    """The changed files of a program by their real paths, what is left and why, and the folder for compiled code or "".

    `root` is the project's folder; `watches` names what is fixed as the program runs, by `unsafe` means as well or not;
    `loaders` holds by real paths what is known of loaders, which the run `tunes` or makes as they were tuned.
    `settings` of perflint.shim.settings are made for the whole program. A run began in the folder `start`, and `tells`
    at its end what took effect.
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
        """What is known of the loader at a line of a file: nothing where there are several."""
        known = [each for each in self.loaders.get(os.path.realpath(path), ()) if each.line == line]
        return known[0] if len(known) == 1 else None


def save(plan: Plan, path: Path) -> None:
    """Write the plan to `path` for `load`; raises OSError."""
    write(path, pickle.dumps(plan))


def load(path: Path) -> Plan:
    """The plan that was saved at `path`; raises one of UNREADABLE where there is none, or a damaged one."""
    plan: Plan = pickle.loads(read(path))
    return plan


def store_of(project: Path) -> Path:
    """Where the cache of a project keeps what is for its runs."""
    return project / CACHE / RUNS


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
    """What this user wrote to `path`; raises OSError where nothing was, and ValueError where it is damaged."""
    with path.open("rb") as file:
        owner, content = os.fstat(file.fileno()).st_uid, file.read()
    if owner != getattr(os, "getuid", lambda: owner)():
        raise PermissionError(f"{path} is somebody else's")  # who could have this process run anything
    data = content[_DIGEST:]
    if blake2b(data, digest_size=_DIGEST).digest() != content[:_DIGEST]:
        raise ValueError(f"{path} is damaged")
    return data


def sweep(folder: Path) -> None:
    """Remove the files in `folder` that were written long ago; they would be made again."""
    oldest = time.time() - _KEEP_S
    for file in folder.iterdir():
        with suppress(OSError):
            if file.stat().st_mtime < oldest:
                file.unlink()
