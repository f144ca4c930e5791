"""What a profile has found, as it is kept, shown and compared: plain data without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perflint.documents.disk import write_text
from perflint.profile.roofline import Roofline
from perflint.project.figures import PROFILES, made
from perflint.verify.verdicts import decoded, encoded

_IDLING, _IDLE = ("overhead", "input", "host reads"), 1.1

Milliseconds = dict[str, float]  # of a step, by the regime that they go to

_VERSION = 2
_MOST = 20  # programs


@dataclass
class LineCost:
    """What a line of a file costs in a step: `own` of its wall time, `total` also in the user's functions it calls.

    `launches` are those of kernels and copies, `device_ms` what these took, `host_ms` how long the host was at the
    line. `copies` go between host and device, `pageable` of them from or to memory that is not pinned.
    """

    path: str
    line: int
    function: str = ""
    own: Milliseconds = field(default_factory=dict)
    total: Milliseconds = field(default_factory=dict)
    launches: float = 0.0
    device_ms: float = 0.0
    host_ms: float = 0.0
    copies: float = 0.0
    pageable: float = 0.0

    @property
    def own_ms(self) -> float:
        """Its wall time in a step."""
        return sum(self.own.values())

    @property
    def total_ms(self) -> float:
        """The same with what it calls."""
        return sum(self.total.values())


@dataclass(frozen=True)
class Rank:
    """A rank's step: its own milliseconds, and those in which it did nothing but communicate."""

    rank: int
    step_ms: float
    communication_ms: float


@dataclass(frozen=True)
class Fact:
    """What a variable of a function held, in words, one for each kind of value that was seen."""

    path: str
    function: str
    name: str
    seen: tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """The profile of a program; `files` holds digests of the files that its lines are in.

    `steps` of the kind `unit` took `step_ms` each, and while they were traced `slowdown` times as long. `shares` by
    regime add up to 1; there are none where nothing was seen but lines. `made` are the lines that make loaders and
    optimizers, with what these cost. A batch takes a loader's worker `batch_ms`, and the `worker_lines` of that. With
    several `ranks`, all else is of the slowest. `is_partial`: the program ended before all was recorded.
    """

    program: str
    date: str
    device: str
    is_gpu: bool
    versions: Mapping[str, str]
    unit: str
    steps: int
    step_ms: float
    slowdown: float
    shares: Mapping[str, float]
    lines: tuple[LineCost, ...]
    made: tuple[LineCost, ...]
    roofline: Roofline
    files: Mapping[str, str]
    workers: int = 0
    batch_ms: float = 0.0
    worker_lines: tuple[LineCost, ...] = ()
    ranks: tuple[Rank, ...] = ()
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    is_partial: bool = False

    @property
    def regime(self) -> str:
        """What takes most of a step; where it is close, rather what keeps a device waiting."""
        return max(self.shares, key=lambda name: self.shares[name] * (_IDLE if name in _IDLING else 1), default="")

    def ms(self, regime: str) -> float:
        """The milliseconds of a step that go to a regime."""
        return self.shares.get(regime, 0.0) * self.step_ms


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
    names = ("lines", "made", "worker_lines", "facts")
    moved: dict[str, Any] = {
        name: tuple(replace(each, path=change(each.path)) for each in getattr(profile, name)) for name in names
    }
    return replace(profile, files={change(path): value for path, value in profile.files.items()}, **moved)


def _project(file: Path) -> Path:
    return Path(os.path.realpath(file.parent.parent))
