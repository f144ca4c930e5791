"""Keeps the latest profile of each program of a project in `.perflint/profiles.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from perflint.documents.disk import write_text
from perflint.profile.result import Profile
from perflint.project.figures import PROFILES, made
from perflint.verify.verdicts import decoded, encoded

_VERSION = 1
_MOST = 20  # programs


def read(file: Path) -> tuple[Profile, ...]:
    """The profiles in a file, the latest first; none where there is no such file, or another version's."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        content = json.loads(file.read_text("utf-8"))
        if content["version"] == _VERSION:
            project = _project(file)
            profiles = (decoded(Profile, each) for each in content["profiles"])
            return tuple(_with_paths(each, lambda name: os.path.normpath(project / name)) for each in profiles)
    return ()


def keep(project: Path, profile: Profile) -> Path:
    """Keep a profile in place of the last one of its program; raises OSError."""
    file = made(project) / PROFILES
    others = [each for each in read(file) if each.program != profile.program]
    root = _project(file)
    kept = [_with_paths(each, lambda name: os.path.relpath(name, root)) for each in (profile, *others)]
    content = {"version": _VERSION, "profiles": [encoded(each) for each in kept[:_MOST]]}
    write_text(file, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n")
    return file


def as_json(profile: Profile) -> str:
    """A profile for programs that read it."""
    return json.dumps(encoded(profile), allow_nan=False, indent=1) + "\n"


def _with_paths(profile: Profile, change: Callable[[str], str]) -> Profile:
    """The profile with other paths: in the file they are relative to the project, which may be copied."""
    return replace(
        profile,
        lines=tuple(replace(each, path=change(each.path)) for each in profile.lines),
        made=tuple(replace(each, path=change(each.path)) for each in profile.made),
        worker_lines=tuple(replace(each, path=change(each.path)) for each in profile.worker_lines),
        facts=tuple(replace(each, path=change(each.path)) for each in profile.facts),
        files={change(path): value for path, value in profile.files.items()},
    )


def _project(file: Path) -> Path:
    return Path(os.path.realpath(file.parent.parent))
