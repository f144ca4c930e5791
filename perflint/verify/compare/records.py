"""Records a program and its variants, and grades each variant by what the original computes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from perflint.engine.rule import Safety
from perflint.project.cores import available_cores
from perflint.verify.compare.alike import SEEDS
from perflint.verify.compare.further import HURRY
from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.compare.judge import Standard, likeness
from perflint.verify.compare.same import Comparison, compare
from perflint.verify.compare.seeds import over_seeds
from perflint.verify.measure.protocol import Protocol, patience
from perflint.verify.measure.race import Course, Job, Recorded
from perflint.verify.run.orders import Recording
from perflint.verify.spec import Variant

_MORE = 3  # further runs of an original that differs from itself, to see by how much
_GAINFUL = 3  # runs beside each other, for a guess at the time of many: they share the cores, or the GPU

Tell = Callable[[str], None]


class Records:
    """The records of one program in a folder; runs with several seeds may take so many `seconds` for each variant."""

    def __init__(
        self, course: Course, original: Variant, protocol: Protocol, folder: Path, seconds: float, tell: Tell
    ) -> None:
        self._course, self._original, self._protocol, self._folder = course, original, protocol, folder
        self._seconds, self._tell = seconds, tell
        self._numbers = itertools.count()
        self._seeded: list[Recorded] = []
        self._at_once, self._patience = 1, protocol.patience  # nothing is known of it yet
        begin = time.monotonic()
        (run,) = self._record([self._job(original, first=True)])
        self._one = time.monotonic() - begin
        self._at_once = run.beside
        self.standard = Standard(run)

    def add(self, variants: Sequence[Variant]) -> list[Recorded]:
        """Record variants, and the original once more and in double precision if that has not been done."""
        jobs = [self._job(variant) for variant in variants]
        if self.standard.again:
            return self._record(jobs)
        reference = self._job(self._original, reference=True)
        again, _, *runs = self._record([self._job(self._original, clock=HURRY), reference, *jobs])
        self.standard = replace(self.standard, again=again, own=(self._compared(again),))
        self._patience = patience(self._one)  # in double precision it may take much longer
        self._widen()
        return runs

    def graded(self, variant: Variant, run: Recorded, promise: Safety) -> Likeness:
        """How alike a run of `variant` is, which has promised so much, to the original."""
        found = likeness(self.standard, run, self._compared(run))
        may_draw = promise is Safety.BEHAVIOUR or self._reads_other_data
        return self._over_seeds(variant) if found.grade is Grade.DIFFERENT and may_draw else found

    @cached_property
    def own(self) -> Likeness:
        """How alike two runs of the original are; what they differ by is no fault of a variant."""
        run, again, (compared, *_) = self.standard.run, self.standard.again, self.standard.own
        assert again is not None
        found = likeness(Standard(run, again), again, compared)
        if found.grade is not Grade.DIFFERENT:
            return found
        is_unknown = compared.parted or run.code != again.code or run.stuck
        words = tuple(f"two runs of the original differ: {each}" for each in found.evidence)
        return Likeness(Grade.UNKNOWN if is_unknown else Grade.ALIKE, words)

    def _widen(self) -> None:
        """See by how much more runs of the original differ, if two do, but for such as read other data each time."""
        if self.own.grade is Grade.ALIKE and not self._reads_other_data:
            self._tell("recording the original again, for its runs differ")
            runs = self._record([self._job(self._original) for _ in range(_MORE)])
            self.standard = replace(self.standard, own=(*self.standard.own, *map(self._compared, runs)))

    @property
    def _reads_other_data(self) -> bool:
        return any(compared.order for compared in self.standard.own)

    def _compared(self, run: Recorded) -> Comparison:
        return compare(self.standard.run.folder, run.folder, self._reference)

    def _over_seeds(self, variant: Variant) -> Likeness:
        """How alike a variant is to the original with seed after seed."""
        beside = min(self._at_once, available_cores(), _GAINFUL)
        begin, each, runs = time.monotonic(), 2 * self._one / beside, list[Recorded]()
        needed = f"{SEEDS[0]} seeds would take about {SEEDS[0] * each:.0f} s"
        found = Likeness(Grade.UNKNOWN, (f"its random numbers are others, and {needed}: a larger budget may tell",))
        for seeds in SEEDS:
            if seeds * each > self._seconds:
                break
            self._tell(f"running {seeds} seeds, for random numbers are others")
            self._seeded += self._with_seeds(self._original, self._seeded, seeds)
            runs += self._with_seeds(variant, runs, seeds)
            found = over_seeds(self._seeded[:seeds], runs, self._stirred)
            each = (time.monotonic() - begin) / seeds
            if found.grade is not Grade.UNKNOWN:
                break
        return found

    def _with_seeds(self, variant: Variant, known: Sequence[Recorded], seeds: int) -> list[Recorded]:
        """Runs with the seeds up to `seeds` that are not `known`."""
        return self._record([self._job(variant, seed) for seed in range(len(known) + 1, seeds + 1)])

    @cached_property
    def _stirred(self) -> Recorded:
        (variant, recording) = self._job(self._original, 1)
        return self._record([(variant, replace(recording, stirred=True))])[0]

    @property
    def _reference(self) -> Path:
        return self._folder / "reference"

    def _job(
        self, variant: Variant, seed: int = 0, *, first: bool = False, reference: bool = False, clock: int = 1
    ) -> Job:
        """A recording of the first steps; with the seed 0, it goes on from where the first one was behind some."""
        horizon = self._protocol.horizon
        restart = tuple(sorted({1, horizon // 2} - {0}))
        full = tuple(sorted({*restart, *(step + 1 for step in restart), horizon - 1, horizon}))
        folder = self._reference if reference else self._folder / f"run {next(self._numbers)}"
        follow = "" if first or seed else str(self.standard.run.folder)
        loops = self._original.loops
        return variant, Recording(str(folder), full, restart, follow, reference, seed, clock=clock, loops=loops)

    def _record(self, jobs: Sequence[Job]) -> list[Recorded]:
        protocol = self._protocol
        return self._course.record(jobs, protocol.unit, protocol.horizon, self._patience, self._at_once)
