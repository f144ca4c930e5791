"""Reads what runs have seen of a project's variables: the facts in the profiles of files as they are."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from perflint.analysis.links import ALONE, Context, Seen
from perflint.documents import digest
from perflint.documents.disk import Unreadable, read_bytes
from perflint.project.figures import PROFILES, nearest

_TENSOR = re.compile(r"\w+ tensor of rank (\d+) on ")
_OF_TORCH = re.compile(r"torch\.nn\.modules\.\w+\.(\w+)")

ByFile = Mapping[str, tuple[Seen, ...]]  # by real paths


def seen_in(root: Path) -> ByFile:
    """What the profiles that are kept for the project of `root` have seen, of each variable the latest of them."""
    file = nearest(root, PROFILES)
    found: defaultdict[str, dict[tuple[str, str], Seen]] = defaultdict(dict)
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
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
