"""Looks further than the first steps: what is kept may be used later, and functions and loops with fixes be left.

Only what is bitwise the same so far can be compared there: where floats are rounded otherwise, training is chaos.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path

from perflint.verify.agent.gate import Arrival
from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.compare.judge import Standard, likeness
from perflint.verify.compare.same import compare
from perflint.verify.measure.protocol import Protocol
from perflint.verify.measure.race import Course, Job, Recorded
from perflint.verify.run.orders import Recording
from perflint.verify.spec import Variant

HURRY = 10  # times as fast do clocks run, for moments, in the original's second run: what is printed of them differs
_STRIDE = 1.25  # times as far is each step at which something is written as the one before
_MARKS = 64  # such steps


class Further:
    """Runs of one program in a folder, the first of which goes on behind the horizon for so many `seconds` at most."""

    def __init__(self, course: Course, original: Variant, protocol: Protocol, folder: Path, seconds: float) -> None:
        self._course, self._original, self._protocol, self._folder = course, original, protocol, folder
        self._seconds, self._end = seconds, math.inf
        self._marks = tuple(itertools.accumulate(range(_MARKS), _next, initial=protocol.horizon))
        self._numbers = itertools.count()
        job = self._job(original)
        (run,) = course.record([job], protocol.unit, protocol.horizon, protocol.patience, further=self._goes_on)
        self.standard = Standard(run)

    def likenesses(self, variants: Sequence[Variant]) -> list[Likeness]:
        """How alike variants are to the original as far as that went; unknown where its runs differ themselves."""
        jobs = [self._job(variant) for variant in variants]
        if not self.standard.again:
            again, *runs = self._record([self._job(self._original, HURRY), *jobs])
            self.standard = Standard(self.standard.run, again, (compare(self.standard.run.folder, again.folder),))
        else:
            runs = self._record(jobs)
        return [self._likeness(run) for run in runs]

    def _likeness(self, run: Recorded) -> Likeness:
        before, again, (own,) = self.standard.run, self.standard.again, self.standard.own
        assert again is not None
        itself = likeness(Standard(before, again), again, own)
        if itself.grade is not Grade.BITWISE:
            evidence = tuple(f"two runs of the original differ: {each}" for each in itself.evidence)
            return Likeness(Grade.UNKNOWN, evidence)
        found = likeness(self.standard, run, compare(before.folder, run.folder))
        if found.grade in (Grade.ROUNDING, Grade.ALIKE):  # so far on, neither can be told from any other difference
            return Likeness(Grade.DIFFERENT, found.evidence[1:])
        return found

    def _goes_on(self, arrival: Arrival) -> int:
        """The next step to look at, 0 for none as the time is over."""
        now = time.monotonic()
        self._end = min(self._end, now + self._seconds)
        later = [mark for mark in self._marks if mark > arrival.step]
        return later[0] if later and now < self._end else 0

    def _job(self, variant: Variant, clock: int = 1) -> Job:
        folder = self._folder / f"further {next(self._numbers)}"
        return variant, Recording(str(folder), (), (), clock=clock, marks=self._marks, loops=self._original.loops)

    def _record(self, jobs: Sequence[Job]) -> list[Recorded]:
        """Record runs that go as far as the first one did."""
        first, protocol = self.standard.run, self._protocol
        return self._course.record(jobs, protocol.unit, first.last, protocol.patience, first.beside)


def _next(step: int, _: int) -> int:
    return math.ceil(_STRIDE * step)
