"""What is known of a program and its patch in the end, as data, and what that comes to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from perflint.engine.rule import Safety
from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.measure.gpus import Reading, Stranger
from perflint.verify.measure.samples import ORIGINALS, PATCHED, Samples
from perflint.verify.measure.statistics import Estimate, against_original, itself, noise_floor, speed, step_seconds
from perflint.verify.measure.timeline import Timeline
from perflint.verify.outcome import Outcome

_UNCHECKED = Likeness(Grade.UNKNOWN)


@dataclass(frozen=True)
class FixVerdict:
    """What was seen of one fix: that of the finding at `line` of the original file `path`, known by `fingerprint`.

    No other fix of the verdict has its `name`; a finding may have several fixes, of which at most one is kept.
    `likeness` is that of the original with this fix alone, and `alone` how much faster that is; `on_top` is how much
    faster the fix makes those that were kept before it. `is_joint`: it was kept for what it gains together with others.
    `activations` is how often the fix was run.
    """

    name: str
    rule: str
    path: str
    line: int
    title: str
    safety: Safety
    fingerprint: str
    likeness: Likeness
    activations: int
    alone: Estimate | None = None
    on_top: Estimate | None = None
    kept: bool = False
    reason: str = ""
    is_joint: bool = False
    at_run_time: bool = False

    @property
    def place(self) -> str:
        """The fix for humans: its rule, and where it is, seen from the working directory."""
        path = os.path.relpath(self.path)
        return f"{self.rule} {path}:{self.line}" if self.line else f"{self.rule} {path}"

    @property
    def gain(self) -> Estimate | None:
        """What it is judged by: what it gains beside those that were kept before it, and else alone."""
        return self.on_top or self.alone


@dataclass(frozen=True)
class Hunk:
    """One change of the unified diff, its `@@` line first, and the names of the fixes that it is made of."""

    path: str
    text: str
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """What was seen of one program: memory is the peak in bytes, 0 where there was none.

    `setup_seconds` is from the start of its process to the first step that was measured.
    """

    setup_seconds: float = 0.0
    device_bytes: int = 0
    host_bytes: int = 0
    losses: tuple[float, ...] = ()
    timeline: Timeline | None = None

    @property
    def busy(self) -> float | None:
        """The share of the time in which the GPU had work; None where it was not observed."""
        return self.timeline.busy if self.timeline else None


@dataclass(frozen=True)
class Reach:
    """How far results were compared: over so many `steps`, which are all of the program's if it `is_whole`.

    `unseen` names functions and loops with fixes that were never left by then: what they compute may be used later.
    Files that it wrote `elsewhere` than below the program's folder were not compared.
    """

    steps: int = 0
    is_whole: bool = False
    unseen: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of what was not seen, in sentences without full stops."""
        end = f"is used behind step {self.steps} only: a larger --horizon looks further"
        return (*(f"what {place} computes {end}" for place in self.unseen), *self._not_compared)

    @property
    def _not_compared(self) -> Iterator[str]:
        if self.elsewhere:
            more = f" and {len(self.elsewhere) - 1} more" if len(self.elsewhere) > 1 else ""
            yield f"the content of {self.elsewhere[0]}{more}: only files below the program's folder are compared"


@dataclass(frozen=True)
class Verdict:
    """All that a verification of `program` showed, on `date` (ISO 8601).

    `own` is how alike two runs of the original are, `likeness` that of original and patch; `reach` is how far they were
    compared. `samples` are of the last race, that of the patch; those of the races that chose its fixes are `earlier`.
    `warm_up` is how many steps came before the first measured one. `excluded` says in sentences what was left out, or
    disturbed the measurement, and why; `failure`, why there is no verdict. `readings` are of the GPUs during the race;
    while there are `strangers` on them, nobody can tell how fast the program is.
    """

    program: str
    date: str
    device: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    warm_up: int = 0
    samples: Samples = field(default_factory=Samples)
    earlier: tuple[Samples, ...] = ()
    own: Likeness = _UNCHECKED
    likeness: Likeness = _UNCHECKED
    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)
    again: Side | None = None
    fixes: tuple[FixVerdict, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    excluded: tuple[str, ...] = ()
    failure: str = ""
    readings: tuple[Reading, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    reach: Reach = Reach()

    @cached_property
    def speed(self) -> Estimate | None:
        """How much faster the patch is."""
        return against_original(self.samples, PATCHED)

    @cached_property
    def aa(self) -> Estimate | None:
        """How much faster the original is than itself."""
        return itself(self.samples)

    @property
    def floor(self) -> float:
        """The noise floor."""
        return noise_floor(self.aa) if self.aa else 0.0

    @property
    def is_faster(self) -> bool:
        """Is the patch faster, noise and all?"""
        return self._raced is Outcome.FASTER

    @property
    def is_same(self) -> bool:
        """Does the patch compute what the weakest of its fixes promises?

        Where none is kept, they are those that keep their own promise.
        """
        own = self.own.grade
        honest = [fix for fix in self.fixes if fix.activations and fix.likeness.keeps(fix.safety, own)]
        patch = [fix for fix in self.fixes if fix.kept] or honest
        return self.likeness.keeps(weakest(patch), own)

    @property
    def outcome(self) -> Outcome:
        """What it comes to."""
        if self.failure:
            return Outcome.FAILED
        if not self.fixes:
            return Outcome.UNFIXED
        if Grade.UNKNOWN in (self.own.grade, self.likeness.grade):
            return Outcome.UNCHECKED
        return self._raced if self.is_same else Outcome.DIFFERENT

    @property
    def _raced(self) -> Outcome:
        return speed(self.speed, self.floor) if self.speed and not self.strangers else Outcome.UNSURE

    @property
    def step_seconds(self) -> tuple[float, float] | None:
        """The median time of a step before and after; None where one was not measured."""
        before, after = (step_seconds(self.samples, variants) for variants in (ORIGINALS, [PATCHED]))
        return (before, after) if before is not None and after is not None else None

    @property
    def break_even_steps(self) -> int | None:
        """After how many steps what the patch takes longer to set up is won back; None where it never is."""
        if not self.is_faster or self.step_seconds is None:
            return None
        before, after = self.step_seconds
        longer = max(0.0, self.after.setup_seconds - self.before.setup_seconds)
        return ceil(longer / (before - after)) if before > after else None


def weakest(fixes: Iterable[FixVerdict]) -> Safety:
    """What fixes promise together; without any, nothing may change."""
    return max((fix.safety for fix in fixes), key=list(Safety).index, default=Safety.EXACT)
