"""Verifies a program: what its patch computes against the original, how fast it is, and which fixes earn it."""

from __future__ import annotations

import datetime
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from perflint import __version__
from perflint.rule import Safety
from perflint.verify.contest import Contest
from perflint.verify.decide import decided
from perflint.verify.disturbance import Monitor, disturbances, facts
from perflint.verify.grade import Grade, Likeness
from perflint.verify.hunks import hunks
from perflint.verify.protocol import Look, Protocol, choose
from perflint.verify.race import Course, Race, Recorded
from perflint.verify.records import Records
from perflint.verify.rounds import Parted
from perflint.verify.running import NoProgress, ProgramEnded
from perflint.verify.same import losses
from perflint.verify.samples import AGAIN, ORIGINAL, PATCHED, Samples
from perflint.verify.spec import Variant
from perflint.verify.statistics import step_seconds
from perflint.verify.variants import FixKey, Variants
from perflint.verify.verdict import FixVerdict, Hunk, Side, Verdict
from perflint.verify.wording import count

_FIRST_LOOK = 0.1  # of the time there is
_FOR_SEEDS = 0.25  # of the time there is, for each variant that has to be run with several
FIRST_STEP = 600.0  # seconds that a program may take to come to its first step: it may prepare its data

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
        self._end = time.monotonic() + examination.budget

    def verdict(self) -> Verdict:
        everything = self._variants.with_fixes(PATCHED, self._variants.fixes)
        self._of.tell("recording what the original and the patch compute")
        (whole,) = self._records.add([everything])
        keys = [key for key in self._variants.fixes if self._variants.is_loaded(key, everything, whole)]
        fixes = [self._seen(number, key, everything, whole) for number, key in enumerate(keys, 1)]
        self._keys = dict(zip((fix.name for fix in fixes), keys, strict=True))
        active = [fix for fix in fixes if fix.activations]
        graded = {fix.name: fix for fix in self._alone(active, whole)}
        fixes = [graded.get(fix.name, fix) for fix in fixes]
        own = self._records.own
        right = [fix for fix in graded.values() if fix.likeness.keeps(fix.safety, own.grade)]
        shared = replace(
            self._blank,
            device=self._look.device,
            environment={**self._blank.environment, **self._look.versions},
            own=own,
        )
        if not right:
            return replace(shared, likeness=self._graded(active, whole), fixes=decided(fixes, own.grade, 0.0))
        contest = self._contest()
        try:
            settled, race = contest.settle(fixes, right)
        except Parted as parted:
            lost = tuple(replace(fix, reason=str(parted)) for fix in fixes)
            return replace(shared, likeness=Likeness(Grade.DIFFERENT, (str(parted),)), fixes=lost)
        kept = [fix for fix in settled if fix.kept]
        chosen = kept or right
        final = whole if len(chosen) == len(active) else self._records.add([self._patched(chosen)])[0]
        before, after = _side(race, ORIGINAL, self._records.standard.run), _side(race, PATCHED, final)
        gpus, read = self._look.gpus, self._of.monitor.readings(self._look.gpus, contest.since)
        return replace(
            shared,
            environment={**shared.environment, **facts(read)},
            unit=race.protocol.unit or "whole runs",
            warm_up=race.protocol.warm_up,
            samples=race.samples,
            likeness=self._graded(chosen, final),
            before=before,
            after=after,
            again=_side(race, AGAIN, self._records.standard.run),
            fixes=tuple(settled),
            hunks=tuple(self._hunks(chosen)),
            excluded=(*_excluded(race, gpus, (before, after)), *disturbances(self._of.monitor.load, gpus, read)),
            readings=read,
            strangers=self._of.monitor.strangers(gpus),
        )

    def _contest(self) -> Contest:
        def protocol(variants: int, seconds: float) -> Protocol:
            return self._of.protocol(self._look, variants, seconds)

        return Contest(
            self._course,
            self._original,
            self._patched,
            protocol,
            self._records.own.grade,
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

    @cached_property
    def _records(self) -> Records:
        of = self._of
        return Records(of.course, self._original, self._protocol, of.folder, _FOR_SEEDS * of.budget, of.tell)

    def _graded(self, fixes: Sequence[FixVerdict], run: Recorded) -> Likeness:
        """How alike the original is to a run with these fixes, which may differ by what they have promised."""
        promise = max((fix.safety for fix in fixes), key=list(Safety).index, default=Safety.EXACT)
        return self._records.graded(self._patched(fixes), run, promise)

    def _alone(self, active: Sequence[FixVerdict], whole: Recorded) -> Iterator[FixVerdict]:
        """The fixes, each with how alike the original is to itself with that fix alone."""
        runs = [whole][: len(active)]
        if len(active) > 1:
            self._of.tell(f"recording what each of {len(active)} fixes changes alone")
            runs = self._records.add([self._patched([fix]) for fix in active])
        for fix, run in zip(active, runs, strict=True):
            yield replace(fix, likeness=self._graded([fix], run))

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


def _excluded(race: Race, gpus: Sequence[str], sides: Iterable[Side]) -> Iterator[str]:
    if race.unsteady:
        yield f"{count(race.unsteady, 'pair')} of windows in which something was compiled or captured"
    if race.apart:
        yield f"the programs ran one after the other, for they have no room beside each other: {race.apart}"
    if gpus and any(side.busy is None for side in sides):
        yield "how busy the GPU was: it could not be observed"
