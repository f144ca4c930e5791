"""Verifies a program: records what its patch computes, races it, and says which fixes earn the gain."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path

from perflint.engine.rule import Safety
from perflint.project.cores import available_cores
from perflint.report.words import count
from perflint.verify.agent.steps import OPTIMIZER
from perflint.verify.budget import Budget, Share, TimeUp, deadline
from perflint.verify.contest import Contest, Settled, wrong
from perflint.verify.further import beyond_horizon
from perflint.verify.grade import NO_TIME, Grade, Likeness, worst
from perflint.verify.judge import said_otherwise
from perflint.verify.late import Shortcut, is_evaluation, shortcut
from perflint.verify.messages import EVALUATION, SHORT, Variant
from perflint.verify.monitor import Monitor, disturbances, facts
from perflint.verify.protocol import HORIZON, Look, Protocol, Schedule
from perflint.verify.race import race
from perflint.verify.recordings import Further, Records, Tell
from perflint.verify.running import Fault, ProgramEnded
from perflint.verify.runs import Course, Recorded
from perflint.verify.sides import left_out, reach_of, side_of
from perflint.verify.statistics import AGAIN, ORIGINAL, PATCHED
from perflint.verify.summary import seconds
from perflint.verify.variants import FixKey, Variants, hunks
from perflint.verify.verdict import FixVerdict, Hunk, Verdict, begun, weakest

_SLOW_START = 0.1  # of the budget
_NOT_TOGETHER = "what the kept fixes compute together: there was no time to record it"


class Examination:
    """One verification: a program, its variants, the budget, a folder for records, and a callback for progress.

    `asked` holds the fields of protocols that the user has set.
    """

    def __init__(
        self,
        course: Course,
        variants: Variants,
        budget: Budget,
        folder: Path,
        tell: Tell,
        monitor: Monitor,
        asked: Mapping[str, int] | None = None,
        *,
        by_class: bool = False,
    ) -> None:
        self.by_class = by_class
        self._course, self._variants, self._budget, self._folder = course, variants, budget, folder
        self.tell, self._monitor, self._asked = tell, monitor, asked or {}
        self._whole = budget
        self._original, self._first, self._period = variants.with_fixes(ORIGINAL, ()), 1, 1
        self._keys: dict[str, FixKey] = {}  # by the names of the fixes
        self._left_out: list[str] = []  # for want of time
        self._known = begun(str(course.program))

    @property
    def fixes(self) -> tuple[FixKey, ...]:
        """All fixes that are examined."""
        return self._variants.fixes

    def late(self) -> tuple[tuple[FixKey, ...], Shortcut]:
        """The fixes that don't run within the horizon, and what to shorten so that they do; raises Fault and TimeUp."""
        if not self._variants.fixes or "horizon" in self._asked:
            return (), Shortcut()
        look = self._look
        keys = self._variants.late(look.ran) if not look.is_whole else ()
        places = {key: (os.path.realpath(key.path), key.line) for key in keys}
        found = shortcut(look.frames, places.values(), self._variants.paths) if keys else Shortcut()
        return tuple(key for key, place in places.items() if place in found.reached), found

    def has_room(self, fixes: int, share: Share) -> bool:
        """Whether it is enough for so many fixes to have this share of the time that is left."""
        return self._schedule.enough(fixes) <= share * self._budget.left

    @property
    def has_time(self) -> bool:
        """Whether there is time to start the program once more, and to come to some steps."""
        return self._look.until(HORIZON // 2) < self._budget.left

    def part(self, keys: Collection[FixKey], share: Share, shortened: Shortcut | None = None) -> Examination:
        """The examination of some fixes within a share of the time that is left, in a shortened copy if so asked."""
        made = copy(self)
        made._budget = self._budget.part(share * self._budget.left)
        made._course = self._course.within(made._budget)
        made._variants = self._variants.only(keys, shortened or Shortcut())
        made._original, made._left_out = made._variants.with_fixes(ORIGINAL, ()), []
        if shortened:
            made._folder, made._period = self._folder / "shortened", SHORT
            made._folder.mkdir()
            made._course.ledger.within = "shortened copy: "
            made._first = 1 + len(self._variants.fixes)
            del made._look, made._schedule  # which are of the whole program
        return made

    def unreached(self, key: FixKey, reason: str) -> FixVerdict:
        """The verdict on a fix that did not run."""
        return self._variants.verdict(f"{key.rule} {key.path}:{key.line}", key, 0, reason)

    def verdict(self) -> Verdict:
        """The verdict, whatever the program does."""
        if not self._variants.fixes:
            return self._known
        try:
            look = self._look
            environment = {**self._known.environment, **look.versions}
            self._known = replace(self._known, device=look.device, environment=environment)
            with deadline(Budget(self._whole.left + self._whole.of(Share.OVER))):
                verdict = self._reached(self._known)
            more = self._whole.longer(self._schedule.enough(len(verdict.fixes)))
            return replace(verdict, excluded=(*verdict.excluded, *self._left_out), longer=more)
        except (Fault, TimeUp) as failure:
            return self.failed(failure)

    def failed(self, failure: Fault | TimeUp) -> Verdict:
        """The verdict where the original fails, or by what is known when the time is up.

        All other faults have been dealt with.
        """
        known = self._known
        if isinstance(failure, Fault):
            return replace(known, failure=str(failure))
        if not known.device:
            words = f"the program came to no step within {self._whole.seconds:.0f} s"
            return replace(known, failure=words, longer=self._whole.longer())
        if not known.fixes:
            known = replace(known, fixes=tuple(self._unrecorded()), likeness=Likeness(Grade.UNKNOWN, (NO_TIME,)))
        late = "there was no time to race it"
        known = replace(known, fixes=tuple(replace(fix, reason=fix.reason or late) for fix in known.fixes))
        takes = f"it takes {seconds(self._look.start)} to its first step, and {seconds(self._look.usual)} for a step"
        if any(fix.kept for fix in known.fixes):
            self._left_out.append(_NOT_TOGETHER)
        more = self._whole.longer(self._schedule.enough(1))
        return replace(known, excluded=(*known.excluded, takes, *self._left_out), longer=more)

    def _unrecorded(self) -> Iterator[FixVerdict]:
        """The fixes in what a first look has loaded, of which nothing else is known."""
        ran = self._look.ran
        for number, key in enumerate(self._variants.loaded(ran), self._first):
            is_late = key in self._variants.late(ran)
            reason = "it did not run in a first look" if is_late else "there was no time to record it"
            yield self._variants.verdict(f"{key.rule} {number}", key, 0, reason)

    def _reached(self, blank: Verdict) -> Verdict:
        everything = self._variants.with_fixes(PATCHED, self._variants.fixes)
        self._course.prepared(recording=True)
        self._enter("recording", "recording what the original and the patch compute")
        if self._records.standard.run.is_lost:
            raise TimeUp
        (whole,) = self._records.add([everything])
        if whole.is_lost:
            raise TimeUp
        fixes = self._seen(everything, whole)
        own = self._records.own
        later = self._wrong_later([fix for fix in fixes if not wrong(fix, own.grade)])
        fixes = [replace(fix, likeness=later.get(fix.name, fix.likeness)) for fix in fixes]
        fixes = [replace(fix, reason=wrong(fix, own.grade)) for fix in fixes]
        right = [fix for fix in fixes if not fix.reason]
        shared = replace(blank, own=own, reach=self._reach)
        graded = worst([own, *(fix.likeness for fix in right)])
        self._known = replace(shared, fixes=tuple(fixes), likeness=graded)
        together = [fix for fix in fixes if fix.activations and self._variants.holds(everything, self._keys[fix.name])]
        if not right:
            likeness = next(iter(later.values()), None) or self._graded(together, whole)
            effects = [self._variants.effect(self._keys[fix.name], everything, whole) for fix in fixes]
            is_idle = all(each.obstacle and not each.times for each in effects)
            return replace(shared, likeness=likeness, fixes=tuple(fixes), is_idle=is_idle)
        self._course.ledger.enter("race")
        reserve = self._reserve(len(right))
        budget = self._budget.part(self._budget.left - reserve)
        hold, look_around = partial(race, self._course.within(budget)), self._monitor.look_around
        contest = Contest(hold, self._together, self._schedule, budget, self.tell, look_around, self.by_class)
        settled = contest.settle(right)
        known = {fix.name: fix for fix in settled.fixes}
        shared = replace(shared, fixes=tuple(known.get(fix.name, fix) for fix in fixes), earlier=settled.earlier)
        self._known = replace(shared, likeness=graded, samples=settled.race.samples)
        if settled.fault:
            return replace(shared, likeness=Likeness(Grade.DIFFERENT, (settled.fault,)))
        is_whole = {fix.name for fix in settled.patch} == {fix.name for fix in together}
        self._course.ledger.enter("recording")
        self._records.course = self._course
        final = whole if is_whole else self._records.add([self._patched(settled.patch)])[0]
        return self._timed(shared, settled, final)

    def _reserve(self, fixes: int) -> float:
        """The seconds to leave for a recording of those fixes that are kept, where there is time to choose."""
        needed = 1.5 * self._records.one
        races = self._schedule.least(2 + fixes) + self._schedule.least(3)
        return needed if fixes > 1 and races + needed <= self._budget.left else 0.0

    def _timed(self, verdict: Verdict, settled: Settled, final: Recorded) -> Verdict:
        """The verdict with the results of the last race, and of the recording of its patch."""
        race, first = settled.race, self._records.standard.run
        likeness, reach = self._graded(settled.patch, final), self._reach
        if final.is_lost:
            self._left_out.append(_NOT_TOGETHER)
            likeness = worst(fix.likeness for fix in settled.patch)
        if likeness.grade is not Grade.BITWISE or (final.is_cut and final.last):
            reach = reach_of(first, final)
        else:
            later = (fix.likeness for fix in settled.patch if fix.likeness.grade is Grade.ROUNDING)
            likeness = worst([likeness, *later, *said_otherwise(race.printed)])
        is_kept = likeness.keeps(weakest(settled.patch), self._records.own.grade)
        if not is_kept and likeness.grade is not Grade.UNKNOWN:
            lost = next(iter(likeness.evidence), "the results differ")
            fixes = tuple(replace(fix, kept=False, reason=lost) if fix.kept else fix for fix in verdict.fixes)
            return replace(verdict, likeness=likeness, fixes=fixes)
        before, after = side_of(race, ORIGINAL, first), side_of(race, PATCHED, final)
        gpus, read = self._look.gpus, self._monitor.readings(self._look.gpus, race.since)
        excluded = (*left_out(race, gpus, (before, after)), *disturbances(self._monitor.load, gpus, read))
        return replace(
            verdict,
            environment={**verdict.environment, **facts(read)},
            unit=race.protocol.unit or "whole runs",
            warm_up=race.protocol.warm_up,
            samples=race.samples,
            likeness=likeness,
            reach=reach,
            before=before,
            after=after,
            again=side_of(race, AGAIN, first),
            hunks=tuple(self._hunks(settled.patch)),
            excluded=(*reach.notes, *excluded),
            readings=read,
            strangers=self._monitor.strangers(gpus),
        )

    def _hunks(self, fixes: Sequence[FixVerdict]) -> Iterator[Hunk]:
        """The patch by `fixes`."""
        after = self._patched(fixes).plan.files
        for path, file in self._original.plan.files.items():
            alone = {fix.name: self._patched([fix]).plan.files[path].text for fix in fixes if fix.path == path}
            yield from hunks(os.path.relpath(path), file.text, after[path].text, alone)

    @cached_property
    def _look(self) -> Look:
        self._monitor.look_around()
        with ThreadPoolExecutor(1) as meanwhile:
            meanwhile.submit(import_module, "torch")  # which comparing needs
            self._course.prepared()
            self._enter("first look", "taking a first look at the program")
            watched = self._variants.watched()
            try:
                look = self._course.look(watched, self._budget.of(Share.LOOK), self._period)
            except ProgramEnded:
                if not self._course.covers:
                    raise
                self.tell("the program fails with a copy of its folder: what is not written by Python stays in that")
                self._course = replace(self._course, covers=False)
                look = self._course.look(watched, self._budget.of(Share.LOOK), self._period)
        if look.start > _SLOW_START * self._budget.seconds:
            given = f"{self._budget.seconds:.0f} s"
            self.tell(f"it takes {look.start:.0f} s to its first step, so that few starts fit into {given}")
        self._course = self._course.after(look)
        places = [(key.path, key.line) for key in self.fixes] if self._variants.shortened else []
        evaluating, training = (look.places.get(kind, ()) for kind in (EVALUATION, OPTIMIZER))
        if is_evaluation(places, evaluating, training, self._variants.paths):
            self._period = 1
            return replace(look, chosen=EVALUATION, period=1)
        return look

    @cached_property
    def _schedule(self) -> Schedule:
        return Schedule(self._look, self._asked, available_cores())

    @cached_property
    def _protocol(self) -> Protocol:
        """The protocol of recordings."""
        return self._schedule.recordings(self._comparing.left)

    @cached_property
    def _comparing(self) -> Budget:
        """The time there is to compare results: races need some, too."""
        left = self._budget.left
        kept = min(self._schedule.least(3), Share.RACE * left, max(0.0, left - self._schedule.recorded))
        return self._budget.part(left - kept)

    @cached_property
    def _records(self) -> Records:
        for_seeds, course = self._budget.of(Share.SEEDS), self._course.within(self._comparing)
        return Records(course, self._original, self._protocol, self._folder, for_seeds, self.tell)

    def _graded(self, fixes: Sequence[FixVerdict], run: Recorded) -> Likeness:
        """How alike a run with these fixes is to the original; it may differ by what they have promised."""
        return self._records.graded(self._patched(fixes), run, weakest(fixes))

    def _seen(self, everything: Variant, whole: Recorded) -> list[FixVerdict]:
        """The fixes that the program reaches, each graded by a run with all, with some, or with it alone."""
        of = self._variants
        keys = [key for key in of.fixes if of.effect(key, everything, whole).is_reached]
        self._keys = {f"{key.rule} {number}": key for number, key in enumerate(keys, self._first)}
        fixes = [self._fix(name, key, everything, whole) for name, key in self._keys.items()]
        held = {name for name, key in self._keys.items() if of.holds(everything, key)}
        is_cut_off = bool(whole.code)  # by one of them, before others could run
        tried = [fix for fix in fixes if fix.activations or is_cut_off or fix.name not in held]
        if len(tried) == 1:
            graded = {tried[0].name: self._alone(tried[0], whole)}
            return [graded.get(fix.name, fix) for fix in fixes]
        graded = self._by_promise([fix for fix in tried if fix.activations], whole)
        rest = [fix for fix in tried if fix.name not in graded]
        runs: Sequence[Recorded | None] = [None] * len(rest)
        if rest and self._records.seconds(len(rest)) <= self._comparing.left:
            self.tell(f"recording what each of {count(len(rest), 'fix', 'fixes')} changes alone")
            runs = [None if run.is_lost else run for run in self._records.add([self._patched([fix]) for fix in rest])]
        if None in runs:
            self._left_out.append("what some fixes change alone: there was no time to record it")
        for fix, run in zip(rest, runs, strict=True):
            if run:
                graded[fix.name] = self._alone(fix, run)
            elif fix.activations:
                graded[fix.name] = _among(self._alone(fix, whole))
            else:
                graded[fix.name] = replace(fix, reason="there was no time to record it")
        return [graded.get(fix.name, fix) for fix in fixes]

    def _by_promise(self, fixes: Sequence[FixVerdict], whole: Recorded) -> dict[str, FixVerdict]:
        """Those of `fixes`, all together in the run `whole`, that need no run alone.

        They keep their promise in a run with all that promise no less: what is kept in the end is compared once more.
        """
        if not fixes:
            return {}
        promises = [safety for safety in Safety if any(fix.safety is safety for fix in fixes)]
        groups = [[fix for fix in fixes if fix.safety in promises[:number]] for number in range(1, len(promises))]
        together = self._graded(fixes, whole)
        if together.grade is Grade.BITWISE:
            return {fix.name: replace(fix, likeness=together) for fix in fixes}
        if self._records.seconds(len(groups)) > self._comparing.left:
            return {}
        pairs = zip(groups, self._records.add([self._patched(group) for group in groups]), strict=True)
        unknown = Likeness(Grade.UNKNOWN)
        likenesses = [unknown if run.is_lost else self._graded(group, run) for group, run in pairs]
        found: dict[str, FixVerdict] = {}
        for promise, likeness in zip(promises, [*likenesses, together], strict=True):
            if likeness.keeps(promise, self._records.own.grade):
                found |= {fix.name: replace(fix, likeness=likeness) for fix in fixes if fix.safety is promise}
        return found

    def _alone(self, fix: FixVerdict, run: Recorded) -> FixVerdict:
        """The fix, graded by a run with it alone."""
        if not fix.activations:  # the first candidate of its finding was run in its place
            fix = self._fix(fix.name, self._keys[fix.name], self._patched([fix]), run)
        return replace(fix, likeness=self._graded([fix], run)) if fix.activations else fix

    def _fix(self, name: str, key: FixKey, variant: Variant, run: Recorded) -> FixVerdict:
        """What a run of a variant with a fix shows of it."""
        effect = self._variants.effect(key, variant, run)
        reason = effect.obstacle
        if not effect.times and not reason and run.code is None:
            larger = "--horizon" if self._protocol.horizon >= HORIZON or "horizon" in self._asked else "--budget"
            reason = f"it did not run in the first {count(run.last, 'step')}: a larger {larger} may reach it"
        return self._variants.verdict(name, key, effect.times, reason)

    def _wrong_later(self, right: Sequence[FixVerdict]) -> Mapping[str, Likeness]:
        """Of fixes that are bitwise the same over the first steps, how alike those are that are not so beyond them."""
        first = self._records.standard.run
        self._reach = reach_of(first)
        exact = [fix for fix in right if fix.likeness.grade is Grade.BITWISE]
        if not exact or first.code is not None or self._period > 1:  # in short epochs, all of one was recorded
            return {}
        longer = self._budget.of(Share.FURTHER)
        if first.is_cut or 3 * (self._records.one + longer) > self._comparing.left:  # the original twice, and the patch
            self._left_out.append(f"results after step {first.last}: there was no time to record them")
            return {}
        self._enter("looking further", f"looking further than step {first.last}")
        course = self._course.within(self._comparing)
        further = Further(course, self._original, self._protocol, self._folder, longer)
        whole, found = beyond_horizon(further, exact, self._patched, self._together)
        if whole.grade is not Grade.UNKNOWN:
            self._reach = reach_of(further.standard.run)
        return {name: alike for name, alike in found.items() if alike.grade in (Grade.DIFFERENT, Grade.ROUNDING)}

    def _enter(self, part: str, telling: str) -> None:
        """Begin a part of the verification."""
        self._course.ledger.enter(part)
        self.tell(telling)

    def _patched(self, fixes: Iterable[FixVerdict], name: str = PATCHED) -> Variant:
        return self._variants.with_fixes(name, [self._keys[fix.name] for fix in fixes])

    def _together(self, fixes: Iterable[FixVerdict], name: str) -> Variant | None:
        """The variant with these fixes, if none excludes another."""
        variant = self._patched(fixes, name)
        return variant if all(self._variants.holds(variant, self._keys[fix.name]) for fix in fixes) else None


def _among(fix: FixVerdict) -> FixVerdict:
    """A fix that was graded by a run with others, too: what differs there need not be its doing."""
    evidence = tuple(f"together with the others {each}" for each in fix.likeness.evidence)
    return replace(fix, likeness=replace(fix.likeness, evidence=evidence))
