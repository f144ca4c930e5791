"""What a contest has come to: the fixes it keeps, the patch raced last, and its race."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perflint.engine.rule import Safety
from perflint.verify import statistics
from perflint.verify.race import Race
from perflint.verify.statistics import KEPT, ORIGINALS, PATCHED, Estimate, Outcome
from perflint.verify.verdict import FixVerdict, Grade

Fixes = Sequence[FixVerdict]


@dataclass(frozen=True)
class Settled:
    """All fixes, with reasons; the `patch` raced last, and its race.

    It `is_confirmed` if raced again after the race that chose it. `hope` is a patch that may gain more, which couldn't
    be told. `each` variant took so many seconds for enough rounds.
    """

    fixes: Fixes
    patch: Fixes
    race: Race
    is_confirmed: bool = True
    hope: Fixes = ()
    each: float = 0.0

    @property
    def won(self) -> Fixes:
        return [fix for fix in self.fixes if fix.kept]

    def seen(self, fixes: Fixes) -> Settled | None:
        """The race with what a recording of its patch shows of `fixes`; those with a reason are not right.

        None where one of these took effect: then another program was raced.
        """
        if any(fix.reason and fix.activations for fix in fixes):
            return None
        raced, idle = {fix.name: fix for fix in self.fixes}, [fix for fix in fixes if fix.reason]
        right = [
            replace(raced[fix.name], activations=fix.activations, likeness=fix.likeness, safety=fix.safety)
            for fix in fixes
            if not fix.reason
        ]
        raced_as, promised = (classes(patch, are_wanted=True) for patch in (self.patch, right))
        changed = {name for name, part in raced_as.items() if {*names_of(part)} != {*names_of(promised.get(name, ()))}}
        return replace(self, fixes=[*idle, *right], patch=right, race=self.race.less(changed))

    @property
    def is_open(self) -> bool:
        gain = statistics.against_original(self.race.samples, PATCHED)
        return not self.fault and gain is not None and says(gain, self.race) is Outcome.UNSURE

    @property
    def fault(self) -> str:
        faults = (fix.reason for fix in self.fixes if fix.likeness.grade is Grade.DIFFERENT)
        return "" if self.patch and PATCHED not in self.race.faults else next(faults, "it could not be raced")


def names_of(fixes: Fixes) -> list[str]:
    return [fix.name for fix in fixes]


def classes(patch: Fixes, are_wanted: bool) -> dict[str, Fixes]:
    order = list(Safety)
    kinds = sorted({fix.safety for fix in patch}, key=order.index)[:-1] if are_wanted else []
    return {
        statistics.within(str(kind)): [fix for fix in patch if order.index(fix.safety) <= order.index(kind)]
        for kind in kinds
    }


def says(estimate: Estimate | None, race: Race) -> Outcome:
    floor = statistics.noise_floor(statistics.itself(race.samples))
    return statistics.speed(estimate, floor) if estimate else Outcome.UNSURE


def without(chosen: Fixes, fixes: Fixes) -> list[FixVerdict]:
    return [fix for fix in fixes if fix.name not in names_of(chosen)]


def undecided(race: Race, patches: Mapping[str, Fixes]) -> Iterator[tuple[float, Fixes]]:
    """Patches that hold their rival in the race, if any, and may gain more than it, with what they seem to gain."""
    rival = next((each for each in (KEPT, PATCHED) if each in patches), None)
    least = {*names_of(patches[rival])} if rival else set()
    for name, fixes in patches.items():
        if name != rival and least <= {*names_of(fixes)}:
            rivals = [rival] if rival else ORIGINALS
            more_, gain = (statistics.speedup(race.samples, before, [name]) for before in (rivals, ORIGINALS))
            if more_ and gain and says(more_, race) is Outcome.UNSURE:
                yield gain.ratio, fixes
