"""Measurements of loaders, kept in a project for later fixes and runs.

`.perflint/loaders.json` holds `{"version": 1, "loaders": [...]}`, each loader with the fields of a `LoaderFigure`.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FOLDER = ".perflint"
FILE = "loaders.json"
VERDICTS = "verdicts.json"  # what `verify` has found
OPTION = "measured"  # of rules that use figures
_VERSION = 1
_ADDED = ("num_workers", "pin_memory", "prefetch_factor")


class LoaderFigure(NamedTuple):
    """What was measured of the loader made by `call`, the text of a call in the file at `path`, a path in the project.

    `workers` of them, each of which keeps `prefetch` batches ready, are the fewest that hide the loader, or come near.
    Times are in milliseconds: of reading one sample and one batch of `batch_size` in the program's own process, of a
    step, and from one batch to the next with these workers. `cores` is how many the process could use, `date` when.
    """

    path: str
    call: str
    workers: int
    prefetch: int
    batch_size: int
    sample_ms: float
    batch_ms: float
    step_ms: float
    ready_ms: float
    cores: int
    date: str


def nearest(start: Path, name: str = FILE) -> Path | None:
    """The file of that name, with figures or verdicts on a program in the folder `start`: the nearest one upwards."""
    files = (folder / FOLDER / name for folder in (start, *start.parents))
    return next(filter(os.path.exists, files), None)  # a Path would raise where it may not look


def load(file: Path | None) -> tuple[LoaderFigure, ...]:
    """The figures in `file`; none where it is no such file, or another version's."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        content = json.loads(file.read_text("utf-8")) if file else {}
        if content.get("version") == _VERSION:
            return tuple(LoaderFigure(**each) for each in content["loaders"])
    return ()


def keep(project: Path | str, figure: LoaderFigure) -> None:
    """Keep `figure` among those of `project`, in place of what was measured there before; raises OSError."""
    from perflint.documents.disk import write_text  # a start does without it

    file = Path(project, FOLDER, FILE)
    others = (each for each in load(file) if (each.path, each.call) != (figure.path, figure.call))
    content = {"version": _VERSION, "loaders": [each._asdict() for each in sorted((*others, figure))]}
    file.parent.mkdir(exist_ok=True)
    write_text(file, f"{json.dumps(content, indent=2)}\n")


def as_option(figures: Iterable[LoaderFigure]) -> str:
    """The figures for a rule: a line for each call, with workers and batches in front. Of two for one call, neither."""
    known: dict[str, set[str]] = {}
    for each in figures:
        known.setdefault(each.call, set()).add(f"{each.workers} {each.prefetch} {each.call}")
    return "\n".join(sorted(line for lines in known.values() if len(lines) == 1 for line in lines))


def of_option(option: str) -> dict[str, tuple[int, int]]:
    """Workers, and the batches that each keeps ready, by the text of the call."""
    lines = (line.split(" ", 2) for line in option.splitlines())
    return {call: (int(workers), int(prefetch)) for workers, prefetch, call in lines}


def call_text(call: ast.Call) -> str:
    """What stays the same of a loader's call, however it is laid out, and whatever a fix adds to it."""
    kept = [keyword for keyword in call.keywords if keyword.arg not in _ADDED]
    return " ".join(ast.unparse(ast.Call(call.func, call.args, kept)).split())
