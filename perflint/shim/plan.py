"""The plan of a run: what is to be changed, as data that every process of the run reads.

Here, as in all that a process needs as it starts, records are named tuples: dataclasses take too long to import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from perflint.shim import store

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
    `text`, each with a line of the file that nothing else stands for than what begins there.
    """

    source: str
    text: str
    lines: tuple[int, ...]
    changes: tuple[Change, ...]
    probes: tuple[tuple[int, int], ...]
    calls: tuple[str, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()

    @property
    def counter(self) -> str:
        """The global function by which the patched code counts, by the numbers of its changes; of this patch alone."""
        return f"__perflint_hit_{digest(repr((self.text, self.probes)).encode('utf-8', 'surrogatepass'))}__"

    @property
    def digest(self) -> str:
        """Names this very patch."""
        return digest(json.dumps(self).encode("ascii"))


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
    `compiles`: modules that are called again and again are compiled.
    """

    root: str
    files: Mapping[str, PatchedFile]
    left: tuple[Left, ...]
    watches: tuple[str, ...]
    loaders: Mapping[str, tuple[KnownLoader, ...]]
    unsafe: bool
    tunes: bool
    store: str
    compiles: bool = False

    @property
    def slots(self) -> dict[str, int]:
        """Where the counters of each file begin: that of its loading, then one for each of its changes."""
        slots, total = {}, 0
        for path, file in self.files.items():
            slots[path] = total
            total += 1 + len(file.changes)
        return slots

    @property
    def counters(self) -> int:
        """How many counters a process of the run has."""
        return sum(1 + len(file.changes) for file in self.files.values())

    def loader_at(self, path: str, line: int) -> KnownLoader | None:
        """What is known of the loader at a line of a file: nothing where there are several."""
        known = [each for each in self.loaders.get(os.path.realpath(path), ()) if each.line == line]
        return known[0] if len(known) == 1 else None


def digest(data: bytes) -> str:
    """What tells the content of a file from any other."""
    return blake2b(data, digest_size=16).hexdigest()


def save(plan: Plan, path: Path) -> None:
    """Leave the plan at `path` for `load`; raises OSError."""
    store.write(path, json.dumps(plan).encode("ascii"))


def load(path: Path) -> Plan:
    """The plan that was saved at `path`; raises OSError or ValueError where there is none, or a damaged one."""
    root, files, left, watches, loaders, unsafe, tunes, folder, compiles = json.loads(store.read(path))
    return Plan(
        root,
        {name: _read_file(*file) for name, file in files.items()},
        tuple(Left(*each) for each in left),
        tuple(watches),
        {name: tuple(_read_loader(*each) for each in known) for name, known in loaders.items()},
        unsafe,
        tunes,
        folder,
        compiles,
    )


def _read_loader(
    line: int, call: str, proven: list[str], doubt: str, measured: list[int] | None, cores: int
) -> KnownLoader:
    return KnownLoader(line, call, tuple(proven), doubt, (measured[0], measured[1]) if measured else None, cores)


def _read_file(
    source: str,
    text: str,
    lines: list[int],
    changes: list[list[object]],
    probes: list[list[int]],
    calls: list[str],
    lost: list[list[int]],
) -> PatchedFile:
    made = (Change(str(rule), str(title), str(safety), line) for rule, title, safety, line in changes)  # type: ignore[arg-type]
    return PatchedFile(source, text, tuple(lines), tuple(made), _pairs(probes), tuple(calls), _pairs(lost))


def _pairs(read: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in read)
