"""Verifies a program: records what its patch computes, races it, and says which fixes earn the gain.

What runs late is verified in a shortened copy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

from perflint.engine import count
from perflint.verify.compare import losses
from perflint.verify.contest import Contest
from perflint.verify.judge import said_otherwise
from perflint.verify.messages import SHORT, Variant
from perflint.verify.planned import Planned
from perflint.verify.processes import disturbances, facts
from perflint.verify.protocol import HORIZON, Budget, Share, TimeUp, deadline
from perflint.verify.race import Race, race
from perflint.verify.recordings import Further, beyond_horizon, reach_of
from perflint.verify.running import Fault
from perflint.verify.runs import Recorded
from perflint.verify.settled import Settled, names_of
from perflint.verify.statistics import AGAIN, LEAST_ROUNDS, ORIGINAL, PATCHED, Outcome, step_seconds
from perflint.verify.summary import duration, seconds, wrong
from perflint.verify.variants import FixKey, Shortcut
from perflint.verify.verdict import NO_TIME, FixVerdict, Grade, Hunk, Likeness, Side, Verdict, begun, weakest, worst

_ALONE = 3  # variants in the race of a patch: the original is there twice
_NOT_TOGETHER = "what the kept fixes compute together: there was no time to record it"


class Examination(Planned):
    """One verification."""

    def part(self, keys: Collection[FixKey], share: Share, shortened: Shortcut | None = None) -> Examination:
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
            del made._look, made._schedule
        return made

    def unreached(self, key: FixKey, reason: str) -> FixVerdict:
        return self._variants.verdict(f"{key.rule} {key.path}:{key.line}", key, 0, reason)

    def verdict(self) -> Verdict:
        if not self._variants.fixes:
            return self._known
        try:
            look = self._look
            environment = {**self._known.environment, **look.versions}
            self._known = replace(self._known, device=look.device, environment=environment)
            is_far = look.is_whole or len(look.steps) >= HORIZON
            if is_far and not self._variants.loaded(look.ran):
                return replace(self._known, is_idle=True)
            with deadline(Budget(self._whole.left + self._whole.of(Share.OVER))):
                verdict = self._reached(self._known)
            more = self._whole.longer(self._schedule.enough(len(verdict.fixes)))
            ends = [f"the program ends with exit code {look.code}"] if look.code else []
            excluded = (*verdict.excluded, *ends, *self._left_out)
            return replace(verdict, excluded=excluded, longer=more, load=self._monitor.load)
        except (Fault, TimeUp) as failure:
            return self.failed(failure)

    def failed(self, failure: Fault | TimeUp) -> Verdict:
        known = replace(self._known, load=self._monitor.load)
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
        late, loaded = self._variants.late(self._look.ran), self._variants.loaded(self._look.ran)
        more = duration(self._whole.longer(self._schedule.enough(len(loaded))))
        for number, key in enumerate(loaded, self._first):
            unseen = f"it did not run in a first look: --budget {more} may reach it"
            reason = unseen if key in late else "there was no time to record it"
            yield self._variants.verdict(f"{key.rule} {number}", key, 0, reason)

    def _reached(self, blank: Verdict) -> Verdict:
        self._leave_out_slow()
        if not self._raced_first:
            return self._by_recordings(blank)
        rest = list(self._unrecorded())
        keys = dict(zip(names_of(rest), self._variants.loaded(self._look.ran), strict=True))
        fixes = [replace(fix, reason="") for fix in rest if keys[fix.name] in self._raced_first]
        unknown = Likeness(Grade.UNKNOWN, (NO_TIME,))
        return self._by_race(replace(blank, fixes=tuple(rest), likeness=unknown), fixes, keys)

    def _by_recordings(self, blank: Verdict) -> Verdict:
        everything = self._variants.with_fixes(PATCHED, self._variants.fixes)
        whole = self._recorded(everything)
        keys = [key for key in self._variants.fixes if self._variants.effect(key, everything, whole).is_reached]
        self._keys = {f"{key.rule} {number}": key for number, key in enumerate(keys, self._first)}
        fixes = self._seen(everything, whole)
        return self._compared(replace(blank, fixes=tuple(fixes)), fixes, everything, whole)

    def _by_race(self, known: Verdict, fixes: Sequence[FixVerdict], keys: Mapping[str, FixKey]) -> Verdict:
        """The verdict on a race of these fixes, and on what their patch computes, unless it gains nothing.

        Wrong fixes may have hidden what others gain: these are raced again.
        """
        self._known, self._keys = known, {fix.name: keys[fix.name] for fix in fixes}
        settled = self._settled(fixes, self._for_proof)
        if settled.fault and len(settled.patch) > 1 and self._can_race_again:
            self._known = known  # which blames none: recordings tell which of them fails
            return self._by_recordings(replace(known, fixes=()))
        if settled.fault:
            return replace(self._known, likeness=Likeness(Grade.DIFFERENT, (settled.fault,)))
        raced = self._timed(self._known, settled)
        if raced.outcome in (Outcome.SLOWER, Outcome.LEVEL):
            return raced
        self._known = raced.having(replace(fix, kept=False, reason=NO_TIME) for fix in settled.won)
        self._budget, self._course = self._whole, self._course.until(self._whole)
        patched = self._patched(settled.patch)
        self._keys = {fix.name: keys[fix.name] for fix in settled.patch}
        run = self._recorded(patched)
        seen = self._seen(patched, run)
        idle = (fix for fix in seen if not fix.activations and (run.is_cut or not fix.at_run_time))
        if any(not self._variants.effect(keys[fix.name], patched, run).obstacle for fix in idle):
            return self._known  # not all that was raced ran within the steps that there was time for
        reasons = {fix.name: wrong(fix, self._records.own.grade) for fix in seen if fix.activations}
        failed = [replace(fix, reason=reasons[fix.name]) for fix in seen if reasons.get(fix.name)]
        others = [fix for fix in fixes if not reasons.get(fix.name)]
        if failed and others and self._can_race_again:
            return self._by_race(known.having(failed), self._soon(others), keys)
        verdict = self._compared(raced, seen, patched, run, settled)
        return self._improved(verdict, settled, keys) if verdict.outcome is Outcome.FASTER else verdict

    def _improved(self, verdict: Verdict, settled: Settled, keys: Mapping[str, FixKey]) -> Verdict:
        """The verdict on a patch that gains more than the proved one and is right, if there is one; else the same."""
        proved = {fix.name for fix in verdict.fixes if fix.kept}
        if proved != {*names_of(settled.won)} or proved != {*names_of(settled.patch)}:
            return verdict
        keys_before, self._keys = self._keys, {fix.name: keys[fix.name] for fix in settled.fixes}
        noted, self._left_out = self._left_out, []
        try:
            better = self._contest(2 * self._records.one).improved(settled)
            told = verdict.having(fix for fix in better.fixes if fix.name not in names_of(better.patch))
            if names_of(better.patch) == names_of(settled.patch):
                verdict = told
            else:
                self._keys = {fix.name: keys[fix.name] for fix in better.patch}
                patched = self._patched(better.patch)
                run = self._recorded(patched)
                seen = self._seen(patched, run)
                found = self._compared(replace(told, samples=better.race.samples), seen, patched, run, better)
                if found.outcome is Outcome.FASTER:
                    return found
        except (Fault, TimeUp):
            pass
        self._keys, self._left_out = keys_before, noted
        return verdict

    def _compared(
        self,
        blank: Verdict,
        fixes: Sequence[FixVerdict],
        everything: Variant,
        whole: Recorded,
        raced: Settled | None = None,
    ) -> Verdict:
        own = self._records.own
        fixes = [replace(fix, reason=wrong(fix, own.grade)) for fix in fixes]
        right = [fix for fix in fixes if not fix.reason]
        shared = replace(blank, own=own, reach=self._reach).having(fixes)
        together = [fix for fix in fixes if fix.activations and self._variants.holds(everything, self._keys[fix.name])]
        if not right:
            effects = [self._variants.effect(self._keys[fix.name], everything, whole) for fix in fixes]
            is_idle = all(each.obstacle and not each.times for each in effects)
            is_known = not any(fix.likeness.is_crowded for fix in fixes)
            likeness = self._graded(together, whole) if is_known else Likeness(Grade.UNKNOWN, (NO_TIME,))
            return replace(shared, likeness=likeness, is_idle=is_idle)
        self._known = replace(shared, likeness=worst([own, *(fix.likeness for fix in right)]))
        settled = raced.seen(fixes) if raced else None
        settled = settled or self._settled(right, self._reserve(right))
        settled = self._raced_on(settled, together)
        self._known = replace(self._known.having(settled.fixes), samples=settled.race.samples)
        while later := self._wrong_later(settled):
            self._known = self._known.having(_disproved(fix, later) for fix in settled.fixes if fix.name in later)
            right = [fix for fix in right if fix.name not in later]
            if not right:
                return replace(self._known, likeness=worst(later.values()))
            settled = self._settled(right, self._reserve(right))
        if not settled.is_confirmed:
            self._left_out.append("another race of what is kept: there was no time for it")
        if settled.fault:
            return replace(self._known, likeness=Likeness(Grade.DIFFERENT, (settled.fault,)))
        first, is_whole = self._records.standard.run, {*names_of(settled.patch)} == {*names_of(together)}
        if not settled.won:
            shared = replace(self._known, likeness=worst(fix.likeness for fix in settled.patch), reach=self._reach)
            return self._timed(shared, settled, first, whole if is_whole else None)
        self._course.ledger.enter("recording")
        self._records.course = self._course
        return self._proved(settled, whole if is_whole else self._records.add([self._patched(settled.patch)])[0])

    def _recorded(self, variant: Variant) -> Recorded:
        self._course.prepared(recording=True)
        self._enter("recording", "recording what the original and the patch compute")
        if self._records.standard.run.is_lost:
            raise TimeUp
        (run,) = self._records.add([variant])
        if run.is_lost:
            raise TimeUp
        self._reach = reach_of(self._records.standard.run)
        return run

    def _settled(self, right: Sequence[FixVerdict], reserve: float) -> Settled:
        settled = self._contest(reserve).settle(right)
        self._known = replace(self._known, samples=settled.race.samples).having(settled.fixes)
        return settled

    def _raced_on(self, settled: Settled, recorded: Sequence[FixVerdict]) -> Settled:
        reserve = 0.0 if {*names_of(settled.patch)} == {*names_of(recorded)} else self._records.one
        rounds = len({window.round for window in settled.race.samples.windows})
        has_time = self._schedule.least(_ALONE, rounds) <= self._budget.left - reserve
        is_open = settled.is_open or (bool(settled.won) and rounds < LEAST_ROUNDS)
        return self._contest(reserve).further(settled) if has_time and is_open else settled

    def _contest(self, reserve: float) -> Contest:
        self._course.ledger.enter("race")
        budget = self._budget.part(self._budget.left - reserve)
        hold, look_around = partial(race, self._course.within(budget)), self._monitor.look_around
        return Contest(hold, self._together, self._schedule, budget, self.tell, look_around, self.by_class)

    def _proved(self, settled: Settled, final: Recorded) -> Verdict:
        likeness, reach, first = self._graded(settled.patch, final), self._reach, self._records.standard.run
        if final.is_lost:
            self._left_out.append(_NOT_TOGETHER)
            likeness = worst(fix.likeness for fix in settled.patch)
        if likeness.grade is not Grade.BITWISE or (final.is_cut and final.last):
            reach = reach_of(first, final)
        else:
            later = (fix.likeness for fix in settled.patch if fix.likeness.grade is Grade.ROUNDING)
            likeness = worst([likeness, *later, *said_otherwise(settled.race.printed)])
        verdict = replace(self._known, likeness=likeness, reach=reach)
        if likeness.keeps(weakest(settled.patch), self._records.own.grade) or likeness.grade is Grade.UNKNOWN:
            return self._timed(verdict, settled, first, final)
        lost = next(iter(likeness.evidence), "the results differ")
        return verdict.having(replace(fix, kept=False, reason=lost) for fix in verdict.fixes if fix.kept)

    def _timed(
        self, verdict: Verdict, settled: Settled, first: Recorded | None = None, final: Recorded | None = None
    ) -> Verdict:
        held = settled.race
        before, after = side_of(held, ORIGINAL, first), side_of(held, PATCHED, final)
        gpus, read = self._look.gpus, self._monitor.readings(self._look.gpus, held.since)
        excluded = (*left_out(held, gpus, (before, after)), *disturbances(self._monitor.load, gpus, read))
        return replace(
            verdict,
            environment={**verdict.environment, **facts(read)},
            unit=held.protocol.unit or "whole runs",
            warm_up=held.protocol.warm_up,
            before=before,
            after=after,
            again=side_of(held, AGAIN, first),
            hunks=tuple(self._hunks(settled.patch)),
            excluded=(*verdict.reach.notes, *excluded),
            readings=read,
            strangers=self._monitor.strangers(gpus),
        )

    def _hunks(self, fixes: Sequence[FixVerdict]) -> Iterator[Hunk]:
        after = self._patched(fixes).plan.files
        for path, file in self._original.plan.files.items():
            alone = {fix.name: self._patched([fix]).plan.files[path].text for fix in fixes if fix.path == path}
            yield from Hunk.between(os.path.relpath(path), file.text, after[path].text, alone)

    def _wrong_later(self, settled: Settled) -> Mapping[str, Likeness]:
        """Fixes that won and were bitwise the same over the first steps, but not beyond."""
        first = self._records.standard.run
        exact = [fix for fix in settled.won if fix.likeness.grade is Grade.BITWISE]
        if not exact or first.code is not None or self._period > 1:  # in short epochs, all of one was recorded
            return {}
        if first.is_cut or self._further > self._budget.left:
            self._left_out.append(f"results after step {first.last}: there was no time to record them")
            return {}
        self._enter("looking further", f"looking further than step {first.last}")
        longer = self._budget.of(Share.FURTHER)
        further = Further(self._course.within(self._budget), self._original, self._protocol, self._folder, longer)
        whole, found = beyond_horizon(further, exact, self._patched, self._together)
        if whole.grade is not Grade.UNKNOWN:
            self._reach = reach_of(further.standard.run)
        return {name: alike for name, alike in found.items() if alike.grade in (Grade.DIFFERENT, Grade.ROUNDING)}


def _disproved(fix: FixVerdict, later: Mapping[str, Likeness]) -> FixVerdict:
    found = replace(fix, kept=False, likeness=later[fix.name])
    return replace(found, reason=wrong(found, Grade.BITWISE))


def side_of(race: Race, variant: str, recorded: Recorded | None) -> Side:
    starts = [start for start in race.starts if start.variant == variant]
    seen = next((start.timeline for start in starts if start.timeline), None)
    step = step_seconds(race.samples, [variant])
    return Side(
        next((start.seconds for start in starts if not math.isnan(start.seconds)), 0.0),
        max((start.device_bytes for start in starts), default=0),
        max((start.host_bytes for start in starts), default=0),
        losses=losses(recorded.folder) if recorded else (),
        timeline=seen.scaled(step) if seen and step else None,
    )


def left_out(race: Race, gpus: Sequence[str], sides: Iterable[Side]) -> Iterator[str]:
    if race.unsteady:
        yield f"{count(race.unsteady, 'pair')} of windows in which something was compiled or captured"
    if most := race.room.processes:
        yield f"only {most} of the programs ran at a time, for more have no room: {race.room.reason}"
    if gpus and any(side.busy is None for side in sides):
        yield "how busy the GPU was: it could not be observed"


def verified(examination: Examination) -> Verdict:
    try:
        late, shortcut = examination.late()
    except (Fault, TimeUp) as failure:
        return examination.failed(failure)
    if not shortcut:
        return examination.verdict()
    early = [key for key in examination.fixes if key not in late]
    share = Share.EARLY if examination.has_room(len(early), Share.EARLY) else Share.LATE
    first = examination.part(early, share).verdict() if early else None
    if first and not examination.has_time:
        return _left_open(first, [examination.unreached(key, _too_late(first)) for key in late])
    notes = tuple(shortcut.notes)
    for note in notes:
        examination.tell(note)
    second = examination.part(late, Share.LATE, shortcut).verdict()
    if second.failure and not first:
        return examination.verdict()
    fixes = (*second.fixes, *_unseen(examination, late, second))
    told = () if second.failure else notes
    second = replace(second, fixes=fixes, excluded=(*told, *second.excluded), is_shortened=True)
    return _merged(first, second) if first and first.fixes else second


def unfound(program: str, budget: Budget) -> Verdict:
    failure = f"looking for fixes in all that it imports takes more than {budget.of(Share.FINDING):.0f} s"
    return begun(program, failure=f"{failure}; what was found by then is kept", longer=budget.longer())


def _unseen(examination: Examination, late: Sequence[FixKey], verdict: Verdict) -> list[FixVerdict]:
    known = {(fix.path, fix.line, fix.rule, fix.title) for fix in verdict.fixes}
    missing = [key for key in late if (key.path, key.line, key.rule, key.title) not in known]
    reason = "it never ran, not in a shortened copy of the program either"
    if verdict.failure and verdict.longer:
        reason = _too_late(verdict)
    elif verdict.failure:
        reason = f"it runs late, and in a shortened copy {verdict.failure}"
    return [examination.unreached(key, reason) for key in missing]


def _too_late(verdict: Verdict) -> str:
    return f"it runs late, and there was no time to reach it: --budget {duration(verdict.longer)} may"


def _left_open(first: Verdict, late: Sequence[FixVerdict]) -> Verdict:
    if first.is_idle:
        first = replace(first, is_idle=False, likeness=Likeness(Grade.UNKNOWN, (NO_TIME,)))
    return replace(first, fixes=(*first.fixes, *late))


def _merged(first: Verdict, second: Verdict) -> Verdict:
    """The verdict on both; the shortened copy leads where it alone gains."""
    is_second = first.is_idle or (second.outcome is Outcome.FASTER and first.outcome is not Outcome.FASTER)
    lead = second if is_second else first
    fixes = [replace(fix, reason=f"{fix.reason}, in the shortened copy") if fix.kept else fix for fix in second.fixes]
    hunks = tuple(hunk for each in (first, second) if each.outcome is Outcome.FASTER for hunk in each.hunks)
    excluded = dict.fromkeys((*second.excluded, *first.excluded))
    return replace(
        lead,
        fixes=(*first.fixes, *fixes),
        hunks=hunks or lead.hunks,
        excluded=tuple(excluded),
        longer=max(first.longer, second.longer),
    )
