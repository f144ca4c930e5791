"""Records a program and its variants, and grades each variant against the original."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from perflint.engine.rule import Safety
from perflint.project import available_cores
from perflint.verify.compare import Comparison
from perflint.verify.judge import Standard, drift, likeness
from perflint.verify.messages import Arrival, Recording, Variant
from perflint.verify.protocol import Budget, Protocol, patience
from perflint.verify.runs import Course, Job, Recorded
from perflint.verify.seeds import SEEDS, over_seeds
from perflint.verify.statistics import PATCHED
from perflint.verify.verdict import MORE_TIME, FixVerdict, Grade, Likeness, Reach

_MORE = 3  # further runs of an original that differs from itself, to see by how much
_GAINFUL = 3  # runs beside each other, for a guess at the time of many: they share the cores, or the GPU
_CLOCK = 10  # times as fast do clocks run, for moments, in the original's second run: what is printed of them differs
_STRIDE = 1.25  # times as far is each mark of a replay as the one before
_MARKS = 64
_OTHER_NUMBERS = "its random numbers are others"
_NOT_EACH = f"that may have grown from rounding, and there was no time to record each step: {MORE_TIME}"
_HURRIED = 1.5  # times as long as recordings are expected to take
_FOR_ONE, _FOR_REFERENCE = 0.6, 0.5  # of the time for recordings, for the first of them, and of what is left by then

Tell = Callable[[str], None]

Fixes = Sequence[FixVerdict]


class Records:
    """Records of a program's first steps in a folder, and its variants' grades by them.

    What the `course` has no time for is cut: fewer steps are compared.
    """

    def __init__(
        self, course: Course, original: Variant, protocol: Protocol, folder: Path, seconds: float, tell: Tell
    ) -> None:
        """`seconds` are for runs of a variant with several seeds."""
        self.course, self._original, self._protocol, self._folder = course, original, protocol, folder
        self._seconds, self._tell = seconds, tell
        self._numbers = itertools.count()
        self._seeded: list[Recorded] = []
        self._beside, self._patience, self._horizon = 1, protocol.patience, protocol.horizon
        begin = time.monotonic()
        (run,) = self._record([self._job(original, first=True)], self._part(_FOR_ONE))
        self.one = self._slowest = time.monotonic() - begin
        self._beside, self._patience = run.beside, max(self._patience, patience(self.one))
        if run.is_cut:
            self._horizon = run.last
        self.standard = Standard(run, reference=self._reference)

    def add(self, variants: Sequence[Variant]) -> list[Recorded]:
        jobs, begin = [self._job(variant) for variant in variants], time.monotonic()
        if self.standard.again:
            return self._record(jobs)
        again, *runs = self._hurried(jobs) or self._record([self._job(self._original, clock=_CLOCK), *jobs])
        self._slowest = max(self._slowest, time.monotonic() - begin)
        self.standard = replace(self.standard, again=again)
        self.standard = replace(self.standard, own=(self._compared(again),))
        if self.own.grade is Grade.ALIKE and not self._reads_other_data:
            self._tell("recording the original again, for its runs differ")
            more = self._record([self._job(self._original) for _ in range(_MORE)])
            whole = (run for run in more if not run.is_cut)
            self.standard = replace(self.standard, own=(*self.standard.own, *map(self._compared, whole)))
        return runs

    def _hurried(self, jobs: Sequence[Job]) -> list[Recorded]:
        """In haste, variants before the original; a bitwise equal variant shows that it repeats."""
        if self.course.budget.left > _HURRIED * self.seconds(1 + len(jobs)):
            return []
        runs = self._record(jobs)
        for run in runs:
            if likeness(self.standard, run, self.standard.compared(run)).grade is Grade.BITWISE:
                return [run, *runs]
        return [*self._record([self._job(self._original, clock=_CLOCK)]), *runs]

    def seconds(self, variants: int) -> float:
        beside = self._beside if self.course.side_by_side else 1
        return math.ceil(variants / beside) * self._slowest * max(1.0, min(variants, beside) / available_cores())

    def graded(self, variant: Variant, run: Recorded, promise: Safety) -> Likeness:
        is_coarse = promise is Safety.PRECISION  # which double precision tells nothing of
        compared = self.standard.compared(run) if is_coarse else self._compared(run)
        found = likeness(self.standard, run, compared)
        if not is_coarse and (last := drift(self.standard, compared)):
            found = self._step_by_step(variant, last) or Likeness(Grade.UNKNOWN, (found.evidence[0], _NOT_EACH))
        may_draw = promise in (Safety.PRECISION, Safety.BEHAVIOUR) or self._reads_other_data
        if found.grade is not Grade.DIFFERENT or not may_draw:
            return found
        reason = "its numbers have less precision" if is_coarse else _OTHER_NUMBERS
        return self._over_seeds(variant, reason, formats=is_coarse)

    @cached_property
    def own(self) -> Likeness:
        run, again, (compared, *_) = self.standard.run, self.standard.again, self.standard.own
        assert again is not None
        found = likeness(Standard(run, again), again, compared)
        if found.grade is not Grade.DIFFERENT:
            return found
        is_unknown = compared.parted or run.code != again.code or run.stuck
        return Likeness(Grade.UNKNOWN if is_unknown else Grade.ALIKE, _of_original(found))

    @property
    def _reads_other_data(self) -> bool:
        return any(compared.order for compared in self.standard.own)

    def _compared(self, run: Recorded) -> Comparison:
        found = self.standard.compared(run)
        if found.parted or found.order or not found.differences or self._reference.exists():
            return found
        self._tell("recording the original in double precision, for results differ")
        self._record([self._job(self._original, reference=True)], self._part(_FOR_REFERENCE))
        return self.standard.compared(run)

    def _step_by_step(self, variant: Variant, last: int) -> Likeness | None:
        """How alike steps are that start from the original's states.

        None if time is up before the `last` one is recorded, of the original in double precision, too.
        """
        standard = self._of_each_step
        if standard.run.last < last:
            return None
        (run,) = self._record([self._each_step(variant, standard)])
        compared = standard.compared(run)
        is_whole = run.last >= last and compared.restarted.issuperset(range(2, last + 1))
        return likeness(standard, run, compared) if is_whole else None

    @cached_property
    def _of_each_step(self) -> Standard:
        self._tell("recording each step from the state of the original, for results drift apart")
        variant, recording = self._job(self._original)
        (run,) = self._record([(variant, replace(recording, full=self._steps))])
        standard = replace(self.standard, run=run, reference=self._folder / "reference of each step")
        job, recording = self._each_step(self._original, standard)
        recording = replace(recording, folder=str(standard.reference), reference=True)
        self._record([(job, recording)], self._part(_FOR_REFERENCE))
        return standard

    def _each_step(self, variant: Variant, standard: Standard) -> Job:
        variant, recording = self._job(variant)
        return variant, replace(recording, full=self._steps, restart=self._steps, follow=str(standard.run.folder))

    @property
    def _steps(self) -> tuple[int, ...]:
        return tuple(range(1, self._protocol.horizon + 1))

    def _over_seeds(self, variant: Variant, reason: str, *, formats: bool = False) -> Likeness:
        beside = min(self._beside, available_cores(), _GAINFUL)
        budget, runs = self.course.budget.part(self._seconds), list[Recorded]()
        each = (self.one + self._slowest) / beside
        needed = f"{SEEDS[0]} seeds would take about {SEEDS[0] * each:.0f} s"
        found = Likeness(Grade.UNKNOWN, (f"{reason}, and {needed}: {MORE_TIME}",))
        for seeds in SEEDS:
            if seeds * each > budget.seconds:
                break
            self._tell(f"running {seeds} seeds, for {reason}")
            self._seeded = list(itertools.takewhile(lambda run: not run.is_cut, self._seeded))
            jobs = [self._seeded_original(number) for number in range(len(self._seeded), seeds + 1)]
            further = [self._job(variant, seed) for seed in range(len(runs) + 1, seeds + 1)]
            made = self._record([*jobs, *further], budget)
            self._seeded += made[: len(jobs)]
            runs += made[len(jobs) :]
            if any(run.is_cut for run in made):
                break
            found = over_seeds(self._seeded[1 : seeds + 1], runs, self._seeded[0], formats=formats)
            each = budget.spent / seeds
            if found.grade is not Grade.UNKNOWN:
                break
        return found

    def _seeded_original(self, number: int) -> Job:
        variant, recording = self._job(self._original, number or 1)
        return variant, replace(recording, other_samples=not number)

    @property
    def _reference(self) -> Path:
        return self._folder / "reference"

    def _job(
        self,
        variant: Variant,
        seed: int = 0,
        *,
        first: bool = False,
        reference: bool = False,
        clock: int = 1,
    ) -> Job:
        """Record the first steps; with seed 0, restart from the states of the first run."""
        horizon = self._protocol.horizon
        restart = tuple(sorted({1, horizon // 2} - {0}))
        full = tuple(sorted({*restart, *(step + 1 for step in restart), horizon - 1, horizon}))
        folder = self._reference if reference else self._folder / f"run {next(self._numbers)}"
        follow = "" if first or seed else str(self.standard.run.folder)
        loops = self._original.loops
        return variant, Recording(str(folder), full, restart, follow, reference, seed, clock=clock, loops=loops)

    def _part(self, share: float) -> Budget:
        return self.course.budget.part(share * self.course.budget.left)

    def _record(self, jobs: Sequence[Job], budget: Budget | None = None) -> list[Recorded]:
        course = self.course.within(budget) if budget else self.course
        return course.record(jobs, self._protocol.unit, self._horizon, self._patience, self._beside)


class Further:
    """Records of a program beyond the horizon, for so many `seconds`, and its variants' grades by them.

    State may be used, and functions and loops with fixes be left, only there. Only bitwise equal variants can be
    compared: where floats are rounded differently, training is chaotic.
    """

    def __init__(self, course: Course, original: Variant, protocol: Protocol, folder: Path, seconds: float) -> None:
        self._course, self._original, self._protocol, self._folder = course, original, protocol, folder
        self._seconds = seconds
        self._budget: Budget | None = None  # from the horizon on
        marks = itertools.accumulate(range(_MARKS), lambda step, _: math.ceil(_STRIDE * step), initial=protocol.horizon)
        self._marks = tuple(marks)
        self._numbers = itertools.count()
        job = self._job(original)
        (run,) = course.record([job], protocol.unit, protocol.horizon, protocol.patience, further=self._goes_on)
        self.standard = Standard(run)

    def likenesses(self, variants: Sequence[Variant]) -> list[Likeness]:
        jobs = [self._job(variant) for variant in variants]
        if not self.standard.again:
            again, *runs = self._record([self._job(self._original, _CLOCK), *jobs])
            self.standard = replace(self.standard, again=again)
            self.standard = replace(self.standard, own=(self.standard.compared(again),))
        else:
            runs = self._record(jobs)
        return [self._likeness(run) for run in runs]

    def _likeness(self, run: Recorded) -> Likeness:
        before, again, (own,) = self.standard.run, self.standard.again, self.standard.own
        assert again is not None
        itself = likeness(Standard(before, again), again, own)
        if itself.grade is not Grade.BITWISE:
            return Likeness(Grade.UNKNOWN, _of_original(itself))
        compared = self.standard.compared(run)
        found = likeness(self.standard, run, compared)
        if compared.is_bitwise or found.grade is Grade.DIFFERENT:
            return found
        return Likeness(Grade.DIFFERENT, found.evidence[1:])  # so far on, rounding can't be told from anything else

    def _goes_on(self, arrival: Arrival) -> int:
        self._budget = self._budget or Budget(self._seconds)
        later = [mark for mark in self._marks if mark > arrival.step]
        return later[0] if later and self._budget.left else 0

    def _job(self, variant: Variant, clock: int = 1) -> Job:
        folder = self._folder / f"further {next(self._numbers)}"
        return variant, Recording(str(folder), (), (), clock=clock, marks=self._marks, loops=self._original.loops)

    def _record(self, jobs: Sequence[Job]) -> list[Recorded]:
        first, protocol = self.standard.run, self._protocol
        return self._course.record(jobs, protocol.unit, first.last, protocol.patience, first.beside)


def _of_original(itself: Likeness) -> tuple[str, ...]:
    return tuple(f"two runs of the original differ: {each}" for each in itself.evidence)


def beyond_horizon(
    further: Further, exact: Fixes, patched: Callable[[Fixes], Variant], fitting: Callable[[Fixes, str], Variant | None]
) -> tuple[Likeness, dict[str, Likeness]]:
    """How alike the `exact` fixes are there, together as far as they go together, and some by name.

    `patched` makes the variant with some fixes, `fitting` none where they exclude each other.
    """
    together: list[FixVerdict] = []
    for fix in exact:
        if fitting([*together, fix], PATCHED):
            together.append(fix)
    rivals = [fix for fix in exact if fix not in together]
    whole, *others = further.likenesses([patched(fixes) for fixes in (together, *([fix] for fix in rivals))])
    found = dict(zip((fix.name for fix in rivals), others, strict=True))
    if whole.grade in (Grade.DIFFERENT, Grade.ROUNDING):
        alone = further.likenesses([patched([fix]) for fix in together]) if len(together) > 1 else [whole]
        found |= _blamed([fix.name for fix in together], whole, alone)
        rest = [fix for fix in together if found[fix.name].grade is not Grade.DIFFERENT]
        left = further.likenesses([patched(rest)]) if 1 < len(rest) < len(together) else []
        found |= {fix.name: each for each in left if each.grade is Grade.DIFFERENT for fix in rest}
    return whole, found


def _blamed(names: Sequence[str], whole: Likeness, alone: Sequence[Likeness]) -> dict[str, Likeness]:
    found = dict(zip(names, alone, strict=True))
    is_known = any(likeness.grade is whole.grade for likeness in alone)
    return found if is_known else dict.fromkeys(names, whole)


def reach_of(run: Recorded, other: Recorded | None = None) -> Reach:
    if other and other.is_cut and not other.is_lost:
        return Reach(min(run.last, other.last), unseen=run.unseen, elsewhere=run.elsewhere)
    return Reach(run.last, run.code is not None, run.unseen, run.elsewhere)
