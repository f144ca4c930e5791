"""Races the fixes of a patch that are right, and keeps one after the other what makes it faster still."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perflint.verify.compare.grade import Grade, Likeness
from perflint.verify.measure.decide import joint_merit, merit, too_little
from perflint.verify.measure.protocol import Schedule
from perflint.verify.measure.race import Course, Race
from perflint.verify.measure.samples import AGAIN, KEPT, ORIGINAL, ORIGINALS, PATCHED, WHOLE, Samples, more, only
from perflint.verify.measure.statistics import (
    Estimate,
    against_original,
    compare,
    is_decided,
    itself,
    noise_floor,
    speed,
)
from perflint.verify.outcome import Outcome
from perflint.verify.spec import Variant
from perflint.verify.verdict import FixVerdict

Fixes = Sequence[FixVerdict]

_FOR_EACH = 0.4  # of the time there is, to race each fix alone
_AT_ONCE = 6  # fixes in one race
_PAIR = len(ORIGINALS) + 2  # variants in the race of a patch with something more against it


@dataclass(frozen=True)
class Settled:
    """The fixes, each kept or not and why, and the last race: that of the `patch`, whether its fixes are kept or not.

    The samples of the races before it are `earlier`.
    """

    fixes: Fixes
    patch: Fixes
    race: Race
    earlier: tuple[Samples, ...]

    @property
    def fault(self) -> str:
        """What the patch came to grief by; empty where it was timed."""
        faults = (fix.reason for fix in self.fixes if fix.likeness.grade is Grade.DIFFERENT)
        return "" if self.patch and PATCHED not in self.race.faults else next(faults, "it could not be raced")


@dataclass
class Contest:
    """The races of one program until `end`, by the monotonic clock.

    `patched` makes the variant with some fixes by a name; None where they can't be had together. Behind each round
    `look_around` is called.
    """

    course: Course
    patched: Callable[[Fixes, str], Variant | None]
    schedule: Schedule
    end: float
    tell: Callable[[str], None]
    look_around: Callable[[], object]
    _fixes: dict[str, FixVerdict] = field(default_factory=dict, init=False)  # with what is known of them by now
    _said: dict[str, Outcome] = field(default_factory=dict, init=False)  # of fixes, by the last race of each
    _races: list[Race] = field(default_factory=list, init=False)

    def settle(self, right: Fixes) -> Settled:
        """Choose among the fixes that are `right`.

        The first is the one that gains most alone, by the lower end of its interval. Each other is raced on top of
        those that are chosen by then, and joins them if it makes them faster. The patch that they make is raced once
        more, and has to be faster again; so is that by all fixes, for some gain nothing but beside each other.
        """
        self._fixes = {fix.name: fix for fix in right}
        if len(right) > 1:
            self._race_each()
        return self._confirmed(self._chosen())

    def _race_each(self) -> None:
        """Race each fix alone, judged by the noise of its own race, if there is time for it."""
        fixes = [fix for fix in self._fixes.values() if self.patched([fix], only(fix.name))]
        groups = [fixes[start : start + _AT_ONCE] for start in range(0, len(fixes), _AT_ONCE)]
        if not self._has_time(*(len(ORIGINALS) + len(group) for group in groups), _PAIR):
            self.tell("there is no time to race each fix")
            return
        end = time.monotonic() + _FOR_EACH * self._left
        for number, group in enumerate(groups):
            seconds = max(0.0, end - time.monotonic()) * len(group) / sum(map(len, groups[number:]))
            race = self._race({only(fix.name): [fix] for fix in group}, seconds)
            for fix in group:
                alone = against_original(race.samples, only(fix.name))
                self._note(fix, alone=alone)
                self._judge(fix, race, only(fix.name), alone)

    def _chosen(self) -> Fixes:
        """The fixes that gain alone, or on top of those that were chosen before them; the best comes first."""
        ordered = sorted(self._sound, key=lambda fix: fix.alone.low if fix.alone else 0.0, reverse=True)
        chosen = [fix for fix in ordered if self._said.get(fix.name) is Outcome.FASTER][:1]
        rest = [fix for fix in ordered if chosen and fix is not chosen[0]]
        for number, fix in enumerate(rest):
            if rival := self._rival(fix, chosen):
                self._note(fix, reason=f"another candidate is faster: {rival.title}")
            elif not self._has_time(_PAIR, _PAIR):
                self._note(fix, reason="there was no time to race it on top of what is kept")
            else:
                name = more(fix.name)
                race = self._race({KEPT: chosen, name: [*chosen, fix]}, self._left / (len(rest) - number + 1))
                if KEPT in race.faults:
                    self._blame(race, KEPT, chosen)
                    return []
                on_top = compare(race.samples, [KEPT], [name])
                self._note(fix, on_top=on_top)
                self._judge(fix, race, name, on_top)
                if self._said[fix.name] is Outcome.FASTER:
                    chosen.append(fix)
        return chosen

    def _confirmed(self, chosen: Fixes) -> Settled:
        """What comes of the last race, of the patch by the chosen fixes and of that by all."""
        earlier = tuple(race.samples for race in self._races)
        whole = self._together(chosen)
        patch, race = chosen or whole, Race()
        if patch:
            race = self._race({PATCHED: patch} | ({WHOLE: whole} if len(whole) > len(patch) else {}), self._left)
            self._blame(race, PATCHED, patch)
        joint = compare(race.samples, [PATCHED], [WHOLE])
        if _says(joint, race) is Outcome.FASTER:
            patch, race = whole, race.renamed(WHOLE, PATCHED)
        self._conclude(patch, chosen, race, joint)
        return Settled(list(self._fixes.values()), patch, race, earlier)

    def _conclude(self, patch: Fixes, chosen: Fixes, race: Race, joint: Estimate | None) -> None:
        """Keep the fixes of a patch that won its race, some for the `joint` gain beyond the chosen; drop all others."""
        gain, names = against_original(race.samples, PATCHED), {fix.name for fix in patch}
        if gain and len(patch) == 1:
            self._note(patch[0], alone=gain)
        for fix in list(self._fixes.values()):
            was_chosen = fix.name in {each.name for each in chosen}
            if fix.name not in names or _says(gain, race) is not Outcome.FASTER:
                last = gain if fix.name in names else None
                self._note(fix, reason=fix.reason or too_little(fix, last, was_chosen=was_chosen))
            elif was_chosen or len(patch) == 1:
                self._note(fix, kept=True, reason=merit(fix))
            else:
                self._note(fix, kept=True, is_joint=True, reason=joint_merit(fix, joint if chosen else gain))

    def _together(self, chosen: Fixes) -> Fixes:
        """The chosen fixes and all others that can be had beside them, but for what surely makes the program slower."""
        together = list(chosen)
        others = [fix for fix in self._sound if fix.name not in {each.name for each in chosen}]
        better = [fix for fix in others if self._said.get(fix.name) is not Outcome.SLOWER]
        for fix in better if chosen else better or others:
            if self.patched([*together, fix], WHOLE):
                together.append(fix)
        return together

    def _rival(self, fix: FixVerdict, chosen: Fixes) -> FixVerdict | None:
        """That of the chosen fixes which can't be had beside this one, as both rewrite the same; None if all can."""
        if self.patched([*chosen, fix], WHOLE):
            return None
        return next((each for each in chosen if not self.patched([each, fix], WHOLE)), chosen[0])

    def _judge(self, fix: FixVerdict, race: Race, variant: str, gain: Estimate | None) -> None:
        """Note what a race says of a fix, by its gain in a variant, and whether that came to grief."""
        self._said[fix.name] = _says(gain, race)
        self._blame(race, variant, [fix])

    def _blame(self, race: Race, variant: str, fixes: Fixes) -> None:
        """Lay it on fixes if their variant came to grief."""
        if fault := race.faults.get(variant):
            evidence = f"with {'the fix' if len(fixes) == 1 else 'these fixes'} the program {fault.words}"
            for fix in fixes:
                self._note(fix, likeness=Likeness(Grade.DIFFERENT, (evidence,)), reason=evidence)

    def _note(self, fix: FixVerdict, **known: Any) -> None:
        self._fixes[fix.name] = replace(self._fixes[fix.name], **known)

    @property
    def _sound(self) -> list[FixVerdict]:
        """The fixes that no race has found fault with."""
        return [fix for fix in self._fixes.values() if fix.likeness.grade is not Grade.DIFFERENT]

    @property
    def _left(self) -> float:
        return max(0.0, self.end - time.monotonic())

    def _has_time(self, *variants: int) -> bool:
        """Whether there is time for races of so many variants each, the shortest that there are."""
        return sum(map(self.schedule.least, variants)) <= self._left

    def _race(self, patches: Mapping[str, Fixes], seconds: float) -> Race:
        """Race the original, twice, and the patches by some fixes, each by its name, in so many seconds."""
        named = {ORIGINAL: (), AGAIN: (), **patches}
        variants = [variant for name, fixes in named.items() if (variant := self.patched(fixes, name))]
        protocol = self.schedule.protocol(len(variants), seconds)
        self.tell(f"racing {len(variants)} variants, {protocol.rounds} rounds at most")
        end = time.monotonic() + seconds

        def is_enough(samples: Samples) -> bool:
            self.look_around()
            return time.monotonic() > end or _is_decided(samples, list(patches))

        race = self.course.race(variants, protocol, is_enough, self._races[-1].apart if self._races else "")
        self._races.append(race)
        if race.apart:
            self.schedule = replace(self.schedule, beside=1)
        return race


def _is_decided(samples: Samples, names: Sequence[str]) -> bool:
    """Whether it is beyond doubt how fast each variant is, against the original and against what it is on top of."""
    pairs: list[tuple[Sequence[str], str]] = [(ORIGINALS, name) for name in names]
    if names[0] in (KEPT, PATCHED):
        pairs += [([names[0]], name) for name in names[1:]]
    estimates = [estimate for before, after in pairs if (estimate := compare(samples, before, [after]))]
    return bool(estimates) and all(is_decided(each, _floor(samples)) for each in estimates)


def _says(estimate: Estimate | None, race: Race) -> Outcome:
    return speed(estimate, _floor(race.samples)) if estimate else Outcome.UNSURE


def _floor(samples: Samples) -> float:
    aa = itself(samples)
    return noise_floor(aa) if aa else 0.0
