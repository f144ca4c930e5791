"""A baseline: the findings that a project has accepted, so that only new ones are reported."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.documents.disk import write_text
from perflint.engine.errors import UserError
from perflint.engine.results import Diagnostic, FileResult, RunResult

VERSION = 1


@dataclass(frozen=True, order=True)
class Entry:
    """What identifies an accepted finding: its file's path from the baseline's folder, its rule and its fingerprint."""

    path: str
    rule: str
    fingerprint: str


@dataclass(frozen=True)
class Baseline:
    """How often each entry was accepted; `folder` holds the baseline's file."""

    folder: Path
    counts: Mapping[Entry, int]


@dataclass(frozen=True)
class Difference:
    """A run less its baseline: `hidden` findings were accepted, `gone` is how many accepted ones no longer occur."""

    result: RunResult
    hidden: int
    gone: int


def write(path: Path, result: RunResult) -> int:
    """Accept every finding of `result`, in a file at `path`; return how many there are.

    Raises UserError where the file cannot be written; an old one is then left as it was.
    """
    counts = Counter(entry for file in result.files for entry, _ in _entries(file, path.absolute().parent))
    lines = ",\n".join(f"    {json.dumps({**vars(entry), 'count': counts[entry]})}" for entry in sorted(counts))
    findings = f"[\n{lines}\n  ]" if lines else "[]"
    _replace(path, f'{{\n  "version": {VERSION},\n  "findings": {findings}\n}}\n')
    return counts.total()


def read(path: Path) -> Baseline:
    """The baseline in the file at `path`; UserError where there is none or it is no baseline."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the baseline {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a baseline: {error}; `perflint check --write-baseline` makes one") from error
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise UserError(f"{path} is not a baseline of version {VERSION}; `perflint check --write-baseline` makes one")
    try:
        counts = {_entry(item): _count(item) for item in _listed(data["findings"])}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is a damaged baseline; `perflint check --write-baseline` makes it anew") from error
    return Baseline(path.absolute().parent, counts)


def subtract(result: RunResult, baseline: Baseline, rules: Collection[str]) -> Difference:
    """`result` without the findings that `baseline` accepts.

    An accepted finding counts as gone where its file was checked, or no longer exists, and its rule is among `rules`,
    those of this run.
    """
    left = Counter(baseline.counts)
    files = tuple(_subtract_file(file, baseline.folder, left) for file in result.files)
    less = replace(result, files=files)
    checked = {_relative(file.path, baseline.folder) for file in result.files if not file.problem}
    gone = sum(
        number
        for entry, number in left.items()
        if entry.rule in rules and (entry.path in checked or not (baseline.folder / entry.path).exists())
    )
    return Difference(less, len(result.diagnostics) - len(less.diagnostics), gone)


def _subtract_file(file: FileResult, folder: Path, left: Counter[Entry]) -> FileResult:
    kept = []
    for entry, diagnostic in _entries(file, folder):
        if left[entry] > 0:
            left[entry] -= 1
        else:
            kept.append(diagnostic)
    return replace(file, diagnostics=tuple(kept))


def _entries(file: FileResult, folder: Path) -> Iterator[tuple[Entry, Diagnostic]]:
    if file.diagnostics:
        path = _relative(file.path, folder)
        for diagnostic in file.diagnostics:
            yield Entry(path, diagnostic.rule, diagnostic.fingerprint), diagnostic


def _relative(path: str, folder: Path) -> str:
    with contextlib.suppress(ValueError):  # on another drive there is no way from one to the other
        path = os.path.relpath(path, folder)
    return path.replace(os.sep, "/")


def _listed(findings: object) -> list[Mapping[str, object]]:
    if not isinstance(findings, list):
        raise TypeError("the findings are a list")
    return findings


def _entry(item: Mapping[str, object]) -> Entry:
    entry = Entry(*(item[key] for key in ("path", "rule", "fingerprint")))  # type: ignore[arg-type]
    if not all(isinstance(value, str) for value in vars(entry).values()):
        raise TypeError("an entry's path, rule and fingerprint are strings")
    return entry


def _count(item: Mapping[str, object]) -> int:
    number = item["count"]
    if not isinstance(number, int) or number < 1:
        raise ValueError("an entry's count is a positive number")
    return number


def _replace(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise UserError(f"cannot write the baseline {path}: {error.strerror}") from error
