"""Races what is right of a patch, as a whole and in parts, and decides which fixes earn their place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from perflint.verify.decide import attributed, decided, gained_together, gains_nothing
from perflint.verify.grade import Grade
from perflint.verify.protocol import Protocol
from perflint.verify.race import Course, Race
from perflint.verify.samples import AGAIN, ORIGINALS, PATCHED, Samples, only, without
from perflint.verify.spec import Variant
from perflint.verify.statistics import against_original, compare, is_decided, itself, noise_floor
from perflint.verify.verdict import FixVerdict

Fixes = Sequence[FixVerdict]

_FOR_PARTS = 0.6  # of what is left, to tell fixes apart; the rest goes to the race of those that are kept
_AT_ONCE = 3  # fixes that are raced at once, each of them alone and left out
_WINNERS = "what gains alone"


@dataclass
class Contest:
    """The races of one program until `end`, by the monotonic clock.

    `protocol` says how so many variants are raced in so many seconds, and `patched` makes the variant with some fixes
    by a name. Two runs of the original are alike by the grade `own`. Behind each round `look_around` is called. `apart`
    is why programs are kept apart, and `since` the time, in seconds since 1970, at which the last race began.
    """

    course: Course
    original: Variant
    patched: Callable[[Iterable[FixVerdict], str], Variant]
    protocol: Callable[[int, float], Protocol]
    own: Grade
    end: float
    tell: Callable[[str], None]
    look_around: Callable[[], object]
    apart: str = ""
    since: float = 0.0

    def settle(self, fixes: Fixes, right: Fixes) -> tuple[Fixes, Race]:
        """All `fixes`, each kept or not, and the race of the patch that they make.

        Those that are `right` are measured. Where nothing is kept, it is the race of all of them.
        """
        fixes, race = self._by_themselves(fixes, right)
        kept = [fix for fix in fixes if fix.kept]
        loose = gains_nothing(fixes, self.own, _floor(race.samples))
        if not loose:
            return fixes, self._race([self.patched(kept, PATCHED)]) if kept and len(kept) < len(right) else race
        if kept or len(loose) < len(right):
            winners = [self.patched(kept, _WINNERS)] if kept else []
            race = self._race([self.patched([*kept, *loose], PATCHED), *winners])
        gain = compare(race.samples, [_WINNERS] if kept else ORIGINALS, [PATCHED])
        if gain and gain.low > 1 + _floor(race.samples):
            return gained_together(fixes, loose, gain), race
        return fixes, race.renamed(_WINNERS, PATCHED) if kept else race

    def _by_themselves(self, fixes: Fixes, right: Fixes) -> tuple[Fixes, Race]:
        """The fixes, each kept or not by what it gains alone and on top of the others, and the last race."""
        known = {fix.name: fix for fix in fixes}
        race, share = Race(), _FOR_PARTS if len(right) > 1 else 1.0
        for start in range(0, len(right), _AT_ONCE):
            group = right[start : start + _AT_ONCE]
            left = len(right) - start  # fixes that share what is left of the time
            race = self._race([self.patched(right, PATCHED), *self._parts(group, right)], share * len(group) / left)
            known |= {fix.name: fix for fix in attributed(group, race.samples)}
        return decided(list(known.values()), self.own, _floor(race.samples)), race

    def _parts(self, group: Fixes, right: Fixes) -> Iterator[Variant]:
        """Each fix of a group alone, and all that are right without it, where that isn't the whole patch."""
        for fix in group if len(right) > 1 else ():
            yield self.patched([fix], only(fix.name))
            yield self.patched([other for other in right if other is not fix], without(fix.name))

    def _race(self, others: Sequence[Variant], share: float = 1.0) -> Race:
        """Race the original, twice, and others, in a share of the time that is left."""
        seconds = share * max(0.0, self.end - time.monotonic())
        protocol = self.protocol(len(others) + 2, seconds)
        self.tell(f"racing {len(others) + 2} variants, {protocol.rounds} rounds at most")
        end, self.since = time.monotonic() + seconds, time.time()

        def is_enough(samples: Samples) -> bool:
            self.look_around()
            return time.monotonic() > end or all(_is_decided(samples, variant.name) for variant in others)

        variants = [self.original, replace(self.original, name=AGAIN), *others]
        race = self.course.race(variants, protocol, is_enough, self.apart)
        self.apart = race.apart
        return race


def _is_decided(samples: Samples, variant: str) -> bool:
    estimate = against_original(samples, variant)
    return estimate is not None and is_decided(estimate, _floor(samples))


def _floor(samples: Samples) -> float:
    aa = itself(samples)
    return noise_floor(aa) if aa else 0.0
