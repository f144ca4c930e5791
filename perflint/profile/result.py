"""What a profile has found, as it is kept, shown and compared: plain data without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perflint.profile.roofline import Roofline

_IDLING, _IDLE = ("overhead", "input", "host reads"), 1.1

Milliseconds = Mapping[str, float]  # of a step, by the regime that they go to


@dataclass(frozen=True)
class LineCost:
    """What a line of a file costs in a step: `own` of its wall time, `total` also in the user's functions it calls.

    `launches` are those of kernels and copies, `device_ms` what these took, `host_ms` how long the host was at the
    line. `copies` go between host and device, `pageable` of them from or to memory that is not pinned.
    """

    path: str
    line: int
    function: str
    own: Milliseconds
    total: Milliseconds
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
class Made:
    """What the loaders or optimizers cost that were made at a line of a file."""

    path: str
    line: int
    cost: Milliseconds


@dataclass(frozen=True)
class WorkerLine:
    """The milliseconds of a batch that a loader's worker spends at a line."""

    path: str
    line: int
    function: str
    batch_ms: float


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
    regime add up to 1; there are none where nothing was seen but lines. `batch_ms` is what a batch takes a loader's
    worker. With several `ranks`, all else is of the slowest. `is_partial`: the program ended before all was recorded.
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
    made: tuple[Made, ...]
    roofline: Roofline
    files: Mapping[str, str]
    workers: int = 0
    batch_ms: float = 0.0
    worker_lines: tuple[WorkerLine, ...] = ()
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
