"""Plans a verification from a first look at the program: what there is time for, and in which order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

from perflint.engine.rule import Safety
from perflint.project.cores import available_cores
from perflint.shim.settings import starts_slowly
from perflint.verify.budget import Budget, Share
from perflint.verify.grade import Likeness
from perflint.verify.late import Shortcut, is_evaluation, shortcut
from perflint.verify.messages import EVALUATION, OPTIMIZER
from perflint.verify.monitor import Monitor
from perflint.verify.protocol import HORIZON, Look, Protocol, Schedule
from perflint.verify.recordings import Records, Tell
from perflint.verify.running import ProgramEnded
from perflint.verify.runs import Course
from perflint.verify.statistics import ORIGINAL
from perflint.verify.variants import FixKey, Variants
from perflint.verify.verdict import FixVerdict, begun

_RUNS_FURTHER = 3  # the original twice, and the patch
_SLOW_START = 0.1  # of the budget
_SURE = (Safety.EXACT, Safety.ROUNDING)  # promises that a recording of a few steps can prove


class Planned:
    """A program, its variants, the budget, a folder for records, and a callback for progress.

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
        self._grades: dict[tuple[frozenset[str], Path, Safety], Likeness] = {}  # of fixes in a run, by their promise
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
        """The protocol of recordings."""
        return self._schedule.recordings(self._comparing.left)

    @cached_property
    def _comparing(self) -> Budget:
        """The time there is to compare results: races that come after that need some, too."""
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
        """The fixes to race before anything is recorded: those that were seen to run, in tuning or where time is short.

        What gains nothing need not be compared: of what tuning tries that is most, and seeds take longest.
        """
        if self._asked or not (self.by_class or self._is_tight):
            return ()
        ran = self._look.ran
        late, provable = self._variants.late(ran), _SURE if self._is_tight else tuple(Safety)
        return tuple(key for key in self._variants.loaded(ran) if key.safety in provable and key not in late)

    @property
    def _for_proof(self) -> float:
        """The seconds to leave for recordings of what wins a race, beside those of the whole that are no part of this.

        Where time is short, they are those of two runs.
        """
        of_two = self._schedule.recorded / 2
        enough = of_two if self._is_tight else max(of_two, Share.PROOF * self._whole.left)
        return max(0.0, enough - (self._whole.left - self._budget.left))

    def _take_all_time(self) -> None:
        """Have what has won a race be proved, even if late fixes are not reached for that."""
        self._budget, self._course = self._whole, self._course.until(self._whole)

    @cached_property
    def _is_tight(self) -> bool:
        """Whether there is hardly time to record and to race, after a first look."""
        return self._schedule.is_tight(self._budget.left)

    @property
    def _can_race_again(self) -> bool:
        """Whether there is time for the shortest race of one more patch, and to record that."""
        return self._schedule.least(3) + self._schedule.recorded / 2 <= self._budget.left

    def _reserve(self, right: Sequence[FixVerdict]) -> float:
        """The seconds to leave for recordings of those fixes that are kept, where there is time to choose."""
        races = self._schedule.least(3) + (self._schedule.least(2 + len(right)) if len(right) > 1 else 0.0)
        together = 1.5 * self._records.one if len(right) > 1 else 0.0
        room = self._budget.left - races
        return next((each for each in (together + self._further, together) if each <= room), 0.0)

    @property
    def _further(self) -> float:
        """About how many seconds it takes to look further: twice at the original, and at its patch."""
        return _RUNS_FURTHER * (self._records.one + self._budget.of(Share.FURTHER))

    def _leave_out_slow(self) -> None:
        """Where time is short, leave out settings that compile: all others would wait for that."""
        names = [key.rule for key in self.fixes if starts_slowly(key.rule)]
        rest = [key for key in self.fixes if key.rule not in names]
        if names and rest and self.by_class and self._is_tight:
            self._variants = self._variants.only(rest, self._variants.shortened)
            self._left_out.append(f"{', '.join(names)}: there was no time to compile")

    def _enter(self, part: str, telling: str) -> None:
        """Begin a part of the verification."""
        self._course.ledger.enter(part)
        self.tell(telling)
