"""Measurements of loaders, kept in a project for later fixes and runs.

`.perflint/loaders.json` holds `{"version": 1, "loaders": [...]}`, each loader with the fields of a `LoaderFigure`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from perflint.analysis.data import loaders

FOLDER = ".perflint"
FILE = "loaders.json"
VERDICTS = "verdicts.json"  # what `verify` has found
PROFILES = "profiles.json"  # what `profile` has
_VERSION = 1


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


def made(project: Path | str) -> Path:
    """The folder of what was measured in `project`, which git ignores unless told otherwise; raises OSError."""
    folder = Path(project, FOLDER)
    folder.mkdir(exist_ok=True)
    if not any(folder.iterdir()):
        (folder / ".gitignore").write_text("*\n")
    return folder


def keep(project: Path | str, figure: LoaderFigure) -> None:
    """Keep `figure` among those of `project`, in place of what was measured there before; raises OSError."""
    from perflint.documents.disk import write_text  # a start does without it

    file = made(project) / FILE
    others = (each for each in load(file) if (each.path, each.call) != (figure.path, figure.call))
    content = {"version": _VERSION, "loaders": [each._asdict() for each in sorted((*others, figure))]}
    write_text(file, f"{json.dumps(content, indent=2)}\n")


def as_option(figures: Iterable[LoaderFigure]) -> str:
    return loaders.as_option((each.call, each.workers, each.prefetch) for each in figures)
