"""A baseline: the findings that a project has accepted, so that only new ones are reported."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.documents.disk import write_text
from perflint.engine import UserError
from perflint.engine.results import Diagnostic, RunResult

VERSION = 1


_FIELDS = ("path", "rule", "fingerprint")
Entry = tuple[str, str, str]  # what identifies an accepted finding


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
    folder = path.absolute().parent
    counts = Counter(_entry(each, folder) for each in result.diagnostics)
    entries = ({**dict(zip(_FIELDS, entry, strict=True)), "count": counts[entry]} for entry in sorted(counts))
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    findings = f"[\n{lines}\n  ]" if lines else "[]"
    try:
        write_text(path, f'{{\n  "version": {VERSION},\n  "findings": {findings}\n}}\n')
    except OSError as error:
        raise UserError(f"cannot write the baseline {path}: {error.strerror}") from error
    return counts.total()


def read(path: Path) -> Baseline:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"it is not of version {VERSION}")
        counts = {tuple(str(item[key]) for key in _FIELDS): int(item["count"]) for item in data["findings"]}
    except OSError as error:
        raise UserError(f"cannot read the baseline {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "it is damaged"
        raise UserError(f"{path} is not a baseline: {why}; `perflint check --write-baseline` makes one") from error
    return Baseline(path.absolute().parent, counts)  # type: ignore[arg-type]


def subtract(result: RunResult, baseline: Baseline, rules: Collection[str]) -> Difference:
    """`result` without the findings that `baseline` accepts.

    An accepted finding counts as gone where its file was checked, or no longer exists, and its rule is among `rules`,
    those of this run.
    """
    left = Counter(baseline.counts)

    def is_new(diagnostic: Diagnostic) -> bool:
        entry = _entry(diagnostic, baseline.folder)
        left[entry] -= 1
        return left[entry] < 0

    kept = (replace(file, diagnostics=tuple(filter(is_new, file.diagnostics))) for file in result.files)
    less = replace(result, files=tuple(kept))
    checked = {_relative(file.path, baseline.folder) for file in result.files if not file.problem}
    gone = sum(
        number
        for (path, rule, _), number in left.items()
        if number > 0 and rule in rules and (path in checked or not (baseline.folder / path).exists())
    )
    return Difference(less, len(result.diagnostics) - len(less.diagnostics), gone)


def _entry(diagnostic: Diagnostic, folder: Path) -> Entry:
    return _relative(diagnostic.path, folder), diagnostic.rule, diagnostic.fingerprint


def _relative(path: str, folder: Path) -> str:
    with contextlib.suppress(ValueError):  # on another drive there is no way from one to the other
        path = os.path.relpath(path, folder)
    return path.replace(os.sep, "/")
