"""Plans a verification after a first look, by the time there is, and grades fixes by recordings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

from perflint.engine import count
from perflint.engine.rule import Safety
from perflint.project import available_cores
from perflint.shim.settings import starts_slowly
from perflint.verify.messages import EVALUATION, OPTIMIZER, Variant
from perflint.verify.processes import Monitor
from perflint.verify.protocol import HORIZON, Budget, Look, Protocol, Schedule, Share
from perflint.verify.recordings import Records, Tell
from perflint.verify.running import ProgramEnded
from perflint.verify.runs import Course, Recorded
from perflint.verify.statistics import ORIGINAL, PATCHED
from perflint.verify.variants import FixKey, Shortcut, Variants, is_evaluation, shortcut
from perflint.verify.verdict import FixVerdict, Grade, Likeness, begun, weakest

_RUNS_FURTHER = 3  # the original twice, and the patch
_SLOW_START = 0.1
_SURE = (Safety.EXACT, Safety.ROUNDING)  # promises that a recording of a few steps can prove


class Planned:
    """A program's verification: its course, variants, budget, folder, and what is known by now.

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
        self._keys: dict[str, FixKey] = {}
        self._left_out: list[str] = []
        self._grades: dict[tuple[frozenset[str], Path, Safety], Likeness] = {}
        self._known = begun(str(course.program))

    @property
    def fixes(self) -> tuple[FixKey, ...]:
        return self._variants.fixes

    def late(self) -> tuple[tuple[FixKey, ...], Shortcut]:
        """Raises Fault and TimeUp."""
        if not self._variants.fixes or "horizon" in self._asked:
            return (), Shortcut()
        look = self._look
        keys = self._variants.late(look.ran) if not look.is_whole else ()
        places = {key: (os.path.realpath(key.path), key.line) for key in keys}
        found = shortcut(look.frames, places.values(), self._variants.paths) if keys else Shortcut()
        return tuple(key for key, place in places.items() if place in found.reached), found

    def has_room(self, fixes: int, share: Share) -> bool:
        return self._schedule.enough(fixes) <= share * self._budget.left

    @property
    def has_time(self) -> bool:
        return self._look.until(HORIZON // 2) < self._budget.left

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
        compiles = any(starts_slowly(key.rule) for key in self.fixes)
        return Schedule(self._look, self._asked, available_cores(), compiles)

    @cached_property
    def _protocol(self) -> Protocol:
        return self._schedule.recordings(self._comparing.left)

    @cached_property
    def _comparing(self) -> Budget:
        left = self._budget.left
        if self._raced_first:
            return self._budget.part(left)
        kept = min(self._schedule.least(3), Share.RACE * left, max(0.0, left - self._schedule.recorded))
        return self._budget.part(left - kept)

    @cached_property
    def _records(self) -> Records:
        course = self._course.within(self._comparing)
        for_seeds = self._comparing.left if self._raced_first else self._budget.of(Share.SEEDS)
        return Records(course, self._original, self._protocol, self._folder, for_seeds, self.tell)

    @cached_property
    def _raced_first(self) -> tuple[FixKey, ...]:
        if self._asked or not (self.by_class or self._is_tight):
            return ()
        ran = self._look.ran
        late, provable = self._variants.late(ran), _SURE if self._is_tight else tuple(Safety)
        return tuple(key for key in self._variants.loaded(ran) if key.safety in provable and key not in late)

    @property
    def _for_proof(self) -> float:
        """Seconds to leave for recordings of what wins a race, beside those of the whole that are no part of this.

        Where time is short, those of two runs.
        """
        of_two = self._schedule.recorded / 2
        enough = of_two if self._is_tight else max(of_two, Share.PROOF * self._whole.left)
        if all(key.safety in _SURE for key in self._raced_first):
            enough = min(enough, max(of_two, self._schedule.proved))
        return max(0.0, enough - (self._whole.left - self._budget.left))

    @cached_property
    def _is_tight(self) -> bool:
        return self._schedule.is_tight(self._budget.left)

    @property
    def _can_race_again(self) -> bool:
        return self._schedule.least(3) + self._schedule.recorded / 2 <= self._budget.left

    def _reserve(self, right: Sequence[FixVerdict]) -> float:
        races = self._schedule.least(3) + (self._schedule.least(2 + len(right)) if len(right) > 1 else 0.0)
        together = 1.5 * self._records.one if len(right) > 1 else 0.0
        room = self._budget.left - races
        return next((each for each in (together + self._further, together) if each <= room), 0.0)

    @property
    def _further(self) -> float:
        return _RUNS_FURTHER * (self._records.one + self._budget.of(Share.FURTHER))

    def _leave_out_slow(self) -> None:
        names = [key.rule for key in self.fixes if starts_slowly(key.rule)]
        rest = [key for key in self.fixes if key.rule not in names]
        if names and rest and self.by_class and self._is_tight:
            self._variants = self._variants.only(rest, self._variants.shortened)
            self._left_out.append(f"{', '.join(names)}: there was no time to compile")

    def _soon(self, fixes: Sequence[FixVerdict]) -> Sequence[FixVerdict]:
        """Where time is short by now, those that don't have to be compiled first, if any."""
        soon = [fix for fix in fixes if not starts_slowly(fix.rule)]
        return soon if soon and self._schedule.is_tight(self._budget.left) else fixes

    def _enter(self, part: str, telling: str) -> None:
        self._course.ledger.enter(part)
        self.tell(telling)

    def _graded(self, fixes: Sequence[FixVerdict], run: Recorded) -> Likeness:
        promise = weakest(fixes)
        if (key := (frozenset(fix.name for fix in fixes), run.folder, promise)) not in self._grades:
            self._grades[key] = self._records.graded(self._patched(fixes), run, promise)
        return self._grades[key]

    def _seen(self, everything: Variant, whole: Recorded) -> list[FixVerdict]:
        of = self._variants
        fixes = [self._fix(name, key, everything, whole) for name, key in self._keys.items()]
        held = {name for name, key in self._keys.items() if of.holds(everything, key)}
        is_cut_off = whole.code not in (None, self._course.code)  # by one of them, before others could run
        tried = [fix for fix in fixes if fix.activations or is_cut_off or fix.name not in held]
        if len(tried) == 1:
            graded = {tried[0].name: self._alone(tried[0], whole)}
            return [graded.get(fix.name, fix) for fix in fixes]
        ran = [fix for fix in tried if fix.activations]
        graded = self._by_promise(ran, whole) if ran else {}
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
                graded[fix.name] = replace(fix, likeness=self._crowded(fix, ran, whole))
            else:
                graded[fix.name] = replace(fix, reason="there was no time to record it")
        return [graded.get(fix.name, fix) for fix in fixes]

    def _by_promise(self, fixes: Sequence[FixVerdict], whole: Recorded) -> dict[str, FixVerdict]:
        """Those of `fixes`, recorded together in `whole`, that need no run alone.

        They keep their promise in a run with all that promise no less; what is kept in the end is compared once more.
        Where some lower the precision, and all together keep that, settings that round promise no more than all do.
        """
        promises = sorted({fix.safety for fix in fixes}, key=list(Safety).index)
        groups = [[fix for fix in fixes if fix.safety in promises[:number]] for number in range(1, len(promises))]
        together = self._graded(fixes, whole)
        if together.grade is Grade.BITWISE:
            return {fix.name: replace(fix, likeness=together) for fix in fixes}
        own, runs = self._records.own.grade, list[Recorded]()
        if self._records.seconds(len(groups)) <= self._comparing.left:
            runs = self._records.add([self._patched(group) for group in groups])
        recorded = ((group, run) for group, run in zip(groups, runs, strict=False) if not run.is_lost)
        known = {weakest(group): self._graded(group, run) for group, run in recorded}
        kept = {each: like for each, like in {**known, promises[-1]: together}.items() if like.keeps(each, own)}
        found = {fix.name: replace(fix, likeness=kept[fix.safety]) for fix in fixes if fix.safety in kept}
        if Safety.PRECISION in kept and promises[-1] is Safety.PRECISION:
            rest = [fix for fix in fixes if fix.safety not in known or (fix.at_run_time and fix.safety != Safety.EXACT)]
            found = {fix.name: replace(fix, likeness=together, safety=Safety.PRECISION) for fix in rest} | found
        return found

    def _alone(self, fix: FixVerdict, run: Recorded) -> FixVerdict:
        if not fix.activations:  # the first candidate of its finding was run in its place
            fix = self._fix(fix.name, self._keys[fix.name], self._patched([fix]), run)
        return replace(fix, likeness=self._graded([fix], run)) if fix.activations else fix

    def _crowded(self, fix: FixVerdict, ran: Sequence[FixVerdict], run: Recorded) -> Likeness:
        """What a run with all of `ran` tells of one: nothing if they differ by what others promised."""
        alike, own = self._graded([fix], run), self._records.own.grade
        if not alike.keeps(fix.safety, own) and self._graded(ran, run).keeps(weakest(ran), own):
            return Likeness(Grade.UNKNOWN, ("there was no time to record it alone",), is_crowded=True)
        return alike.crowded

    def _fix(self, name: str, key: FixKey, variant: Variant, run: Recorded) -> FixVerdict:
        effect = self._variants.effect(key, variant, run)
        reason = effect.obstacle
        if not effect.times and not reason and run.code is None:
            larger = "--horizon" if self._protocol.horizon >= HORIZON or "horizon" in self._asked else "--budget"
            reason = f"it did not run in the first {count(run.last, 'step')}: a larger {larger} may reach it"
        return self._variants.verdict(name, key, effect.times, reason)

    def _patched(self, fixes: Iterable[FixVerdict], name: str = PATCHED) -> Variant:
        return self._variants.with_fixes(name, [self._keys[fix.name] for fix in fixes])

    def _together(self, fixes: Iterable[FixVerdict], name: str) -> Variant | None:
        variant = self._patched(fixes, name)
        return variant if all(self._variants.holds(variant, self._keys[fix.name]) for fix in fixes) else None
