"""What runs have measured and seen, kept in a project for later: figures of loaders, and facts in profiles.

`.perflint/loaders.json` holds `{"version": 1, "loaders": [...]}`, each loader with the fields of a `LoaderFigure`.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from perflint.analysis.data import loaders
from perflint.analysis.links import ALONE, Context, Seen
from perflint.documents import digest
from perflint.documents.disk import Unreadable, read_bytes
from perflint.project import stored

_VERSION, _NAME = 1, "loaders"
_TENSOR = re.compile(r"\w+ tensor of rank (\d+) on ")
_OF_TORCH = re.compile(r"torch\.nn\.modules\.\w+\.(\w+)")
ByFile = Mapping[str, tuple[Seen, ...]]  # by real paths


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


def load(file: Path | None) -> tuple[LoaderFigure, ...]:
    """The figures in `file`; none where it is no such file, or another version's."""
    with suppress(*stored.DAMAGED):
        return stored.load(file, _VERSION, _NAME, LoaderFigure) if file else ()
    return ()


def keep(project: Path | str, figure: LoaderFigure) -> None:
    """Keep `figure` among those of `project`, in place of what was measured there before; raises OSError."""
    file = stored.made(project) / stored.LOADERS
    others = (each for each in load(file) if (each.path, each.call) != (figure.path, figure.call))
    stored.store(file, _VERSION, _NAME, sorted((*others, figure)))


def as_option(figures: Iterable[LoaderFigure]) -> str:
    return loaders.as_option((each.call, each.workers, each.prefetch) for each in figures)


def seen_in(root: Path) -> ByFile:
    """What the profiles that are kept for the project of `root` have seen, of each variable the latest of them."""
    file = stored.nearest(root, stored.PROFILES)
    found: defaultdict[str, dict[tuple[str, str], Seen]] = defaultdict(dict)
    with suppress(*stored.DAMAGED):
        for profile in json.loads(file.read_text("utf-8"))["profiles"] if file else ():
            for path, each in _seen(profile, file.parents[1] if file else root):
                found[path].setdefault((each.function, each.name), each)
    return {path: tuple(sorted(each.values())) for path, each in found.items()}


def with_seen(contexts: Mapping[str, Context], paths: Mapping[str, str], seen: ByFile) -> dict[str, Context]:
    """The contexts of files, by name, with what was `seen` in those at these `paths`."""
    known = {name: seen.get(os.path.realpath(path), ()) for name, path in paths.items()} if seen else {}
    news = {name: replace(contexts.get(name, ALONE), seen=each) for name, each in known.items() if each}
    return {**contexts, **news}


def _seen(profile: dict[str, Any], project: Path) -> Iterator[tuple[str, Seen]]:
    run = f"{os.path.basename(profile['program'].split()[0])}, {profile['date']}"  # noqa: PTH119
    fresh = {path for path, known in profile["files"].items() if _digest(project / path) == known}
    for fact in profile["facts"]:
        kinds = {_kind(each) for each in fact["seen"]}
        if fact["path"] in fresh and len(kinds) == 1 and (kind := kinds.pop()):
            path = os.path.realpath(project / fact["path"])
            yield path, Seen(fact["function"], fact["name"], *kind, run)


def _kind(said: str) -> tuple[str, int | None]:
    if tensor := _TENSOR.match(said):
        return "torch.Tensor", int(tensor[1])
    own = _OF_TORCH.fullmatch(said)
    return (f"torch.nn.{own[1]}" if own else said), None


def _digest(path: Path) -> str:
    with suppress(Unreadable, OSError):
        return digest(read_bytes(path))
    return ""
