"""Caches the results of files by their content; the cache may be lost, damaged or locked, and is never wrong.

One sqlite database holds a row for each file. Its key digests all that the result depends on, each row has a checksum,
and any error of the database makes the run one without a cache. Worker processes send the same compact JSON.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from perflint.analysis.links import NONE, Links
from perflint.analysis.values.hints import imported_names
from perflint.documents import NOTEBOOK
from perflint.engine.results import FileResult
from perflint.engine.rule import Options, Rule
from perflint.project import make_cache
from perflint.project.stored import reader

_WORDS = re.compile(r"\.?[^\W\d]\w*")
_CLASSES = re.compile(r"^\s*class\s+(\w+)\s*\(", re.MULTILINE)
_IMPORTS = re.compile(r"^\s*(?:from\b[^\n(]*\([^)]*\)|(?:from|import)\b[^\n]*(?:\\\n[^\n]*)*)", re.MULTILINE)


def encode(result: FileResult, links: Links = NONE) -> str:
    """`result` without its path, which the reader knows, and the file's links; empty where there is nothing to tell."""
    if result == FileResult(result.path) and links == NONE:
        return ""
    return _told(result, links)


def _told(result: FileResult, links: Links) -> str:
    told = "" if result == FileResult(result.path) else _dumps(replace(result, path=""))
    return f"{told}\n{_dumps(links)}"


def decode_links(payload: str) -> Links:
    links: Links = reader(Links)(json.loads(payload.split("\n")[1])) if payload else NONE
    return links


class Outline(NamedTuple):
    """What is seen of a file at once: its links as far as they need no values, and the names in its text.

    That is the classes that derive from others, all that is imported, by dotted names, and all words, those of
    attributes with a dot.
    """

    links: Links
    classes: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


def encode_outline(result: FileResult, links: Links, text: str) -> str:
    """What `encode` makes of `result` and `links`, with the outline of a file that has this text."""
    found = _CLASSES.findall(text), _imported(text), _WORDS.findall(text)
    return "\n".join((_told(result, links), *(" ".join(sorted({*names})) for names in found)))


def _imported(text: str) -> Iterator[str]:
    for lines in _IMPORTS.findall(text):
        try:
            (statement,) = ast.parse(lines.strip()).body
        except (SyntaxError, ValueError):
            continue  # a line of a longer text
        yield from imported_names(statement)


def decode_outline(payload: str) -> Outline:
    if not payload:
        return Outline(NONE)
    _, links, *names = payload.split("\n")
    return Outline(reader(Links)(json.loads(links)), *(frozenset(each.split()) for each in names))


def decode(path: str, payload: str) -> FileResult:
    """The result of the file at `path` that `encode` made `payload` of.

    Raises ValueError, TypeError or KeyError where `payload` is nothing of the sort.
    """
    told = payload.partition("\n")[0]
    if not told:
        return FileResult(path)
    result: FileResult = reader(FileResult)(json.loads(told))
    return replace(result, path=path, diagnostics=tuple(replace(each, path=path) for each in result.diagnostics))


def _dumps(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), default=_values)


def _values(each: Any) -> list[Any]:
    return ["" if field.name == "path" else getattr(each, field.name) for field in fields(each)]


KEEP_DAYS = 30
KEEP_ROWS = 100_000  # some 20 MB of mostly empty results

_FORMAT = 3
_FILE = f"results-{_FORMAT}.sqlite3"
_WAIT_S = 1.0  # for another process to finish writing
_BATCH = 500  # below the least number of parameters that a build of sqlite accepts
_DAY_S = 86_400
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS results"
    " (key BLOB PRIMARY KEY, checksum BLOB NOT NULL, used INTEGER NOT NULL, payload BLOB NOT NULL) WITHOUT ROWID"
)
SUFFIXES = (".py", ".json", ".so", ".pyd")


@dataclass(frozen=True)
class Keys:
    """Makes the keys of files: equal keys promise equal results. `seed` digests what these depend on beside it."""

    seed: bytes

    def key(self, path: str, data: bytes) -> bytes:
        kind = b"notebook" if path.lower().endswith(NOTEBOOK) else b"python"
        return blake2b(data, digest_size=16, key=self.seed, person=kind).digest()


def in_context(key: bytes, context: str) -> bytes:
    """The key of a file that has `key` by itself, where its result also depends on `context`."""
    return blake2b(context.encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest() if context else key


def keys_for(rules: Sequence[Rule], options: Mapping[str, Options], source: bytes, *, edits: bool = False) -> Keys:
    """The keys of files that `rules` run on; `source` is the digest of the code (see `fingerprint`).

    Results with the `edits` of fixes are others than those without.
    """
    chosen = [(rule.name, sorted(options.get(rule.name, {}).items())) for rule in rules]
    seed = repr((_FORMAT, source, sys.version, sys.implementation.name, chosen, edits))
    return Keys(blake2b(seed.encode(), digest_size=16).digest())


class Cache:
    """The cache in `folder`, which is made when there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / _FILE
        self._today = int(time.time() // _DAY_S)
        self._unmarked: list[bytes] = []

    def load(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        if not self._file.exists():
            return found
        with self._forgiving(), closing(sqlite3.connect(self._file, timeout=_WAIT_S)) as connection:
            for batch in _batches(keys):
                query = f"SELECT key, checksum, used, payload FROM results WHERE key IN ({_marks(batch)})"
                for key, checksum, used, payload in connection.execute(query, batch):
                    if checksum == _sum(key, payload):
                        found[key] = payload.decode()
                        if used < self._today:
                            self._unmarked.append(key)
        return found

    def store(self, payloads: Mapping[bytes, str]) -> None:
        """Keep `payloads`, note which rows were loaded today, and drop those that were not for long."""
        if not payloads and not self._unmarked:
            return
        with self._forgiving():
            if not self._file.exists():
                make_cache(self._folder)
            with closing(sqlite3.connect(self._file, timeout=_WAIT_S)) as connection, connection:
                connection.execute("PRAGMA synchronous = OFF")  # what a power cut damages is made anew
                connection.execute(_SCHEMA)
                rows = ((key, _sum(key, text.encode()), self._today, text.encode()) for key, text in payloads.items())
                connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", rows)
                for batch in _batches(self._unmarked):
                    update = f"UPDATE results SET used = ? WHERE key IN ({_marks(batch)})"
                    connection.execute(update, (self._today, *batch))
                connection.execute("DELETE FROM results WHERE used < ?", (self._today - KEEP_DAYS,))
                oldest = "SELECT key FROM results ORDER BY used DESC LIMIT -1 OFFSET ?"
                connection.execute(f"DELETE FROM results WHERE key IN ({oldest})", (KEEP_ROWS,))

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Go on without the cache where it cannot be used, and remove a damaged one, so that the next run makes it."""
        try:
            yield
        except (sqlite3.OperationalError, OSError):
            pass  # locked, read-only, no room: it may do next time
        except (sqlite3.Error, TypeError, ValueError):
            with suppress(OSError):
                self._file.unlink()


def _sum(key: bytes, payload: bytes) -> bytes:
    return blake2b(payload, digest_size=8, key=key).digest()


def _batches(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _BATCH):
        yield keys[start : start + _BATCH]


def _marks(batch: Sequence[bytes]) -> str:
    return ",".join("?" * len(batch))


def source_digest(folders: Iterable[str]) -> bytes:
    """A digest of every source file in `folders`."""
    digest = blake2b(digest_size=16)
    for file in sorted(set(_files(folders))):
        digest.update(f"\0{Path(file).name}\0".encode())
        digest.update(Path(file).read_bytes())
    return digest.digest()


def source_folders(rules: Sequence[Rule]) -> set[str]:
    """The folders of perflint and of the packages that `rules` come from."""
    folders = {str(Path(__file__).parents[1])}
    for rule in rules:
        module = sys.modules[type(rule).__module__]
        package, _, rest = module.__name__.partition(".")
        if rest and module.__file__:
            folders.update(sys.modules[package].__path__)
            folders.add(str(Path(module.__file__).parent))
    return folders


def _files(folders: Iterable[str]) -> Iterator[str]:
    for top in folders:
        for folder, below, names in os.walk(top):
            below[:] = [name for name in below if name != "__pycache__"]
            for name in names:
                if name.endswith(SUFFIXES):
                    yield f"{folder}{os.sep}{name}"
