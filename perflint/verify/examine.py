"""Verifies a program: what its patch computes against the original, how fast it is, and which fixes earn it."""

from __future__ import annotations

import datetime
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from perflint import __version__
from perflint.verify.contest import Contest
from perflint.verify.decide import decided
from perflint.verify.disturbance import Monitor, disturbances, facts
from perflint.verify.grade import Grade, Likeness
from perflint.verify.hunks import hunks
from perflint.verify.judge import Standard, likeness
from perflint.verify.orders import Recording
from perflint.verify.protocol import Look, Protocol, choose
from perflint.verify.race import Course, Job, Race, Recorded
from perflint.verify.running import NoProgress, ProgramEnded
from perflint.verify.same import compare, losses
from perflint.verify.samples import AGAIN, ORIGINAL, PATCHED, Samples
from perflint.verify.spec import Variant
from perflint.verify.statistics import step_seconds
from perflint.verify.variants import FixKey, Variants
from perflint.verify.verdict import FixVerdict, Hunk, Side, Verdict
from perflint.verify.wording import count

_FIRST_LOOK = 0.1  # of the time there is
FIRST_STEP = 600.0  # seconds that a program may take to come to its first step: it may prepare its data
_AT_ONCE = 3  # runs that are recorded side by side

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Examination:
    """One verification: the program and its variants, the seconds there are, a folder for records, and who listens.

    `asked` holds the fields of protocols that the user has chosen.
    """

    course: Course
    variants: Variants
    budget: float
    folder: Path
    tell: Tell
    monitor: Monitor
    asked: Mapping[str, int] = field(default_factory=dict)

    def protocol(self, look: Look, variants: int, seconds: float) -> Protocol:
        """How so many variants are raced in so many seconds."""
        return replace(choose(look, variants, seconds), **self.asked)  # type: ignore[arg-type]

    def verdict(self) -> Verdict:
        """The verdict, whatever the program does."""
        blank = Verdict(
            str(self.course.program),
            datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "",
            {"perflint": __version__},
            "",
            0,
            Samples(),
            Likeness(Grade.UNKNOWN),
            Likeness(Grade.UNKNOWN),
            Side(0.0),
            Side(0.0),
        )
        if not self.variants.fixes:
            return blank
        try:
            return _Case(self, blank).verdict()
        except (ProgramEnded, NoProgress) as error:
            return replace(blank, failure=str(error))


class _Case:
    """A program that has fixes, step by step through its examination."""

    def __init__(self, examination: Examination, blank: Verdict) -> None:
        self._of, self._blank = examination, blank
        self._course, self._variants = examination.course, examination.variants
        self._original = self._variants.with_fixes(ORIGINAL, ())
        self._runs = itertools.count()
        self._follow = ""  # the folder of the records whose states other runs go on from
        self._end = time.monotonic() + examination.budget

    def verdict(self) -> Verdict:
        everything = self._variants.with_fixes(PATCHED, self._variants.fixes)
        self._standard, whole = self._recorded(everything)
        keys = [key for key in self._variants.fixes if self._variants.is_loaded(key, everything, whole)]
        fixes = [self._seen(number, key, everything, whole) for number, key in enumerate(keys, 1)]
        self._keys = dict(zip((fix.name for fix in fixes), keys, strict=True))
        active = [fix for fix in fixes if fix.activations]
        graded = {fix.name: fix for fix in self._alone(active, whole)}
        fixes = [graded.get(fix.name, fix) for fix in fixes]
        right = [fix for fix in graded.values() if fix.likeness.keeps(fix.safety, self._own.grade)]
        shared = replace(
            self._blank,
            device=self._look.device,
            environment={**self._blank.environment, **self._look.versions},
            own=self._own,
        )
        if not right:
            return replace(shared, likeness=self._graded(whole), fixes=decided(fixes, self._own.grade, 0.0))
        contest = self._contest()
        settled, race = contest.settle(fixes, right)
        kept = [fix for fix in settled if fix.kept]
        final = (
            whole if len(kept or right) == len(active) else self._record([self._job(self._patched(kept or right))])[0]
        )
        read = self._of.monitor.readings(self._look.gpus, contest.since)
        return replace(
            shared,
            environment={**shared.environment, **facts(read)},
            unit=race.protocol.unit or "whole runs",
            warm_up=race.protocol.warm_up,
            samples=race.samples,
            likeness=self._graded(final),
            before=_side(race, ORIGINAL, self._standard.run),
            after=_side(race, PATCHED, final),
            again=_side(race, AGAIN, self._standard.run),
            fixes=tuple(settled),
            hunks=tuple(self._hunks(kept or right)),
            excluded=(*_excluded(race), *disturbances(self._of.monitor.load, self._look.gpus, read)),
            readings=read,
            strangers=self._of.monitor.strangers(self._look.gpus),
        )

    def _contest(self) -> Contest:
        def protocol(variants: int, seconds: float) -> Protocol:
            return self._of.protocol(self._look, variants, seconds)

        return Contest(
            self._course,
            self._original,
            self._patched,
            protocol,
            self._own.grade,
            self._end,
            self._of.tell,
            self._of.monitor.look_around,
        )

    def _hunks(self, fixes: Sequence[FixVerdict]) -> Iterator[Hunk]:
        """The patch by `fixes`."""
        after = self._patched(fixes).plan.files
        for path, file in self._original.plan.files.items():
            alone = {fix.name: self._patched([fix]).plan.files[path].text for fix in fixes if fix.path == path}
            yield from hunks(os.path.relpath(path), file.text, after[path].text, alone)

    @cached_property
    def _look(self) -> Look:
        self._of.monitor.look_around()
        self._of.tell("taking a first look at the program")
        return self._course.look(self._original, self._of.budget * _FIRST_LOOK, max(FIRST_STEP, self._of.budget))

    @cached_property
    def _protocol(self) -> Protocol:
        return self._of.protocol(self._look, 3, self._of.budget / 2)

    def _recorded(self, everything: Variant) -> tuple[Standard, Recorded]:
        """The original, recorded twice and in double precision, and the whole patch."""
        first = self._job(self._original)
        self._of.tell("recording what the original and the patch compute")
        (run,) = self._record([first])
        self._follow = str(run.folder)
        reference = self._job(self._original, self._reference)
        again, whole, _ = self._record([self._job(self._original), self._job(everything), reference])
        return Standard(run, again, compare(run.folder, again.folder, self._reference)), whole

    @cached_property
    def _own(self) -> Likeness:
        standard = self._standard
        assert standard.again is not None and standard.own is not None
        graded = likeness(Standard(standard.run), standard.again, standard.own)
        if graded.grade is Grade.DIFFERENT:
            return Likeness(
                Grade.UNKNOWN, tuple(f"two runs of the original differ: {each}" for each in graded.evidence)
            )
        return graded

    @property
    def _reference(self) -> Path:
        return self._of.folder / "reference"

    def _graded(self, run: Recorded) -> Likeness:
        standard = self._standard
        return likeness(standard, run, compare(standard.run.folder, run.folder, self._reference))

    def _job(self, variant: Variant, reference: Path | None = None) -> Job:
        horizon = self._protocol.horizon
        restart = tuple(sorted({1, horizon // 2} - {0}))
        full = tuple(sorted({*restart, *(step + 1 for step in restart), horizon}))
        folder = reference or self._of.folder / f"run {next(self._runs)}"
        return variant, Recording(str(folder), full, restart, self._follow, reference is not None)

    def _record(self, jobs: Sequence[Job]) -> list[Recorded]:
        protocol, runs = self._protocol, []
        for start in range(0, len(jobs), _AT_ONCE):
            some = jobs[start : start + _AT_ONCE]
            runs += self._course.record(some, protocol.unit, protocol.horizon, protocol.patience)
        return runs

    def _alone(self, active: Sequence[FixVerdict], whole: Recorded) -> Iterator[FixVerdict]:
        """The fixes, each with how alike the original is to itself with that fix alone."""
        runs = [whole]
        if len(active) > 1:
            self._of.tell(f"recording what each of {len(active)} fixes changes alone")
            runs = self._record([self._job(self._patched([fix])) for fix in active])
        for fix, run in zip(active, runs, strict=True):
            yield replace(fix, likeness=self._graded(run))

    def _patched(self, fixes: Iterable[FixVerdict], name: str = PATCHED) -> Variant:
        return self._variants.with_fixes(name, [self._keys[fix.name] for fix in fixes])

    def _seen(self, number: int, key: FixKey, everything: Variant, whole: Recorded) -> FixVerdict:
        return FixVerdict(
            f"{key.rule} {number}",
            f"{key.path}:{key.line}:{key.rule}",
            key.rule,
            key.path,
            key.line,
            key.title,
            key.safety,
            self._variants.fingerprint(key),
            Likeness(Grade.UNKNOWN),
            self._variants.activations(key, everything, whole),
            reason=self._variants.obstacle(key, whole),
            at_run_time=key.at_run_time,
        )


def _side(race: Race, variant: str, recorded: Recorded) -> Side:
    starts = [start for start in race.starts if start.variant == variant]
    seen = next((start.timeline for start in starts if start.timeline), None)
    step = step_seconds(race.samples, [variant])
    return Side(
        next((start.seconds for start in starts if not math.isnan(start.seconds)), 0.0),
        max(start.device_bytes for start in starts),
        max(start.host_bytes for start in starts),
        losses=losses(recorded.folder),
        timeline=seen.scaled(step) if seen and step else None,
    )


def _excluded(race: Race) -> tuple[str, ...]:
    unsteady = f"{count(race.unsteady, 'pair')} of windows in which something was compiled or captured"
    apart = f"the programs ran one after the other, for they have no room beside each other: {race.apart}"
    return (*([unsteady] if race.unsteady else ()), *([apart] if race.apart else ()))
