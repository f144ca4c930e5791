"""Selects fixes by racing them, says why each is kept or dropped, and what is left open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perflint.engine.rule import Safety
from perflint.shim.settings import starts_slowly
from perflint.verify import statistics
from perflint.verify.messages import Variant
from perflint.verify.protocol import AT_ONCE, Budget, Protocol, Schedule
from perflint.verify.race import Enough, Race, Room
from perflint.verify.statistics import KEPT, ORIGINALS, PATCHED, WHOLE, Estimate, Outcome, Samples, more, only
from perflint.verify.summary import joint_merit, merit, too_little
from perflint.verify.verdict import FixVerdict, Grade, Likeness

Fixes = Sequence[FixVerdict]


@dataclass(frozen=True)
class Settled:
    """All fixes, with reasons; the `patch` raced last, and its race.

    It `is_confirmed` if raced again after the race that chose it. `hope` is a patch that may gain more, which couldn't
    be told.
    """

    fixes: Fixes
    patch: Fixes
    race: Race
    is_confirmed: bool = True
    hope: Fixes = ()

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


Hold = Callable[[Sequence[Variant], Protocol, Enough, Room], Race]

_FOR_EACH = 0.4  # of the time that is left, to race each fix alone
_FAST = 0.5  # of the time that is left for races, where others compile
_OTHERS, _HOPE = "the others together", "what seems to gain most"
_COMPILING = 0.8  # of what is left then, to race those that compile
_PAIR = len(ORIGINALS) + 2  # variants in the race of a patch with something more against it


class _FailTogether(Exception):
    def __init__(self, fixes: Fixes, race: Race) -> None:
        super().__init__()
        self.fixes, self.race = fixes, race


@dataclass
class Contest:
    """The races of one program within a budget.

    `patched` makes the variant with some fixes by a name, None where they exclude each other. `look_around` is called
    after each round. `by_class`: the last race shows each class of promise, too.
    """

    hold: Hold
    patched: Callable[[Fixes, str], Variant | None]
    schedule: Schedule
    budget: Budget
    tell: Callable[[str], None]
    look_around: Callable[[], object]
    by_class: bool = False
    _fixes: dict[str, FixVerdict] = field(default_factory=dict, init=False)
    _said: dict[str, Outcome] = field(default_factory=dict, init=False)  # of fixes, by the last race of each
    _room: Room = field(default_factory=Room, init=False)
    _each: float = field(default=0.0, init=False)  # seconds that each variant of the last race took for enough rounds
    _choices: dict[str, Race] = field(default_factory=dict, init=False)  # the races that showed fixes alone to gain
    _choice: Race = field(default_factory=Race, init=False)  # that showed what is chosen to gain, as its patch
    _joint: Estimate | None = field(default=None, init=False)  # what several gained that were chosen together
    _hopes: list[tuple[float, Fixes]] = field(default_factory=list, init=False)  # patches, by what each seemed to gain

    def settle(self, right: Fixes) -> Settled:
        """Choose among the fixes that are `right`.

        The first gains most alone, of those that surely gain. Each other is raced on top of those chosen, and joins
        them if it gains; without time for that, all that gain alone are raced together. Fixes that compile start
        slowly: they are raced on top of what the others make together, unless those gain nothing. The resulting patch
        is raced again and has to win, if there is time to compile it anew; so is that of all fixes, for some gain only
        together.
        """
        self._fixes = {fix.name: fix for fix in right}
        if len(right) == 1:
            return self._confirmed([])
        slow = [fix for fix in right if starts_slowly(fix.rule)]
        fast = [fix for fix in right if fix not in slow]
        budget = self.budget.part((_FAST if slow else 1.0) * self.budget.left)
        self._race_each(fast, budget)
        try:
            chosen = self._chosen(fast, budget, in_haste=bool(slow))
        except _FailTogether as failed:
            return Settled(list(self._fixes.values()), failed.fixes, failed.race)
        return self._confirmed(self._compiled(chosen, slow) if slow else chosen)

    def further(self, settled: Settled) -> Settled:
        raced = names_of(settled.patch)
        self._fixes = {fix.name: replace(fix, reason="") if fix.name in raced else fix for fix in settled.fixes}
        before = settled.race if settled.is_confirmed else Race()
        parts = {PATCHED: settled.patch, **classes(settled.patch, self.by_class)}
        race = self._race(parts, self.budget.left, before)
        self._blame(race, PATCHED, settled.patch)
        self._conclude(settled.patch, [], race, None)
        return Settled(list(self._fixes.values()), settled.patch, race)

    def instead(self, settled: Settled) -> Settled | None:
        self._fixes = {fix.name: replace(fix, reason="", kept=False) for fix in settled.fixes}
        parts = classes(settled.hope, self.by_class)
        race = self._race({KEPT: settled.patch, PATCHED: settled.hope, **parts}, self.budget.left)
        gain = statistics.speedup(race.samples, [KEPT], [PATCHED])
        if says(gain, race) is not Outcome.FASTER or PATCHED in race.faults:
            return None
        self._conclude(settled.hope, [], race, None)
        return Settled(list(self._fixes.values()), settled.hope, race)

    def _race_each(self, fixes: Fixes, budget: Budget) -> None:
        fixes = [fix for fix in fixes if self.patched([fix], only(fix.name))]
        groups = [fixes[start : start + AT_ONCE] for start in range(0, len(fixes), AT_ONCE)]
        if not self._has_time(budget, *(len(ORIGINALS) + len(group) for group in groups), _PAIR):
            self.tell("there is no time to race each fix")
            return
        alone = budget.part(_FOR_EACH * budget.left)
        for number, group in enumerate(groups):
            share = len(group) / sum(map(len, groups[number:]))
            race = self._race({only(fix.name): [fix] for fix in group}, share * alone.left)
            for fix in group:
                gain = statistics.against_original(race.samples, only(fix.name))
                self._note(fix, alone=gain)
                self._judge(fix, race, only(fix.name), gain)
                self._choices[fix.name] = race.renamed(only(fix.name), PATCHED)

    def _chosen(self, fixes: Fixes, budget: Budget, *, in_haste: bool) -> list[FixVerdict]:
        sound = [fix for fix in self._sound if fix.name in names_of(fixes)]
        ordered = sorted(sound, key=lambda fix: fix.alone.ratio if fix.alone else 0.0, reverse=True)
        chosen = [fix for fix in ordered if self._said.get(fix.name) is Outcome.FASTER][:1]
        self._choice = self._choices[chosen[0].name] if chosen else Race()
        hope = [] if chosen or in_haste else self._promising([])
        if hope and self._has_time(budget, _PAIR, _PAIR):
            whole = [] if self._has_time(budget, *[_PAIR] * len(ordered), _PAIR) else self._together([])
            is_more = not {*names_of(whole)} <= {*names_of(hope)}
            self._join(chosen, {more(_HOPE): hope, **({more(_OTHERS): whole} if is_more else {})}, budget.left / 2)
        rest = _without(chosen, ordered) if chosen else []
        has_time = self._has_time(budget, *[_PAIR] * (1 if in_haste else 2))
        if has_time and (in_haste or not self._has_time(budget, *[_PAIR] * len(rest), _PAIR)):
            others = [fix for fix in _without(chosen, ordered) if self._may_gain(fix, chosen, in_haste=in_haste)]
            fitting = self._fitting(chosen, others)
            seconds = budget.left if in_haste else budget.left / 2
            is_new = len(chosen) + len(fitting) > 1 or any(fix.name not in self._said for fix in fitting)
            if is_new and self._join(chosen, {more(_OTHERS): fitting}, seconds) is None:
                return []
        rest = _without(chosen, rest)
        for number, fix in enumerate(rest):
            added = _without(chosen, self._with_needed(fix))
            if rival := self._rival(added, chosen):
                self._note(fix, reason=f"another candidate is faster: {rival.title}")
            elif added and not self._has_time(budget, _PAIR, _PAIR):
                self._note(fix, reason="there was no time to race it on top of the fastest")
            elif added and self._join(chosen, {more(fix.name): added}, budget.left / (len(rest) - number + 1)) is None:
                return []
        return chosen

    def _may_gain(self, fix: FixVerdict, chosen: Fixes, *, in_haste: bool) -> bool:
        """Fixes of one rule may gain only together: what stays eager beside a captured step pays for it."""
        said, alone = self._said.get(fix.name), self._fixes[fix.name].alone
        seems = said is Outcome.UNSURE and alone is not None and alone.ratio > statistics.SOUGHT_GAIN
        may = in_haste and said is not Outcome.SLOWER
        return said is Outcome.FASTER or seems or may or fix.rule in {each.rule for each in chosen}

    def _compiled(self, chosen: list[FixVerdict], slow: Fixes) -> Fixes:
        groups = [[fix] for fix in slow] if self._room.processes == 1 else [slow]
        for group in groups:
            together = {more(fix.name): [fix] for fix in group if self.patched([*chosen, fix], WHOLE)}
            if together and self._join(chosen, together, self.budget.left * _COMPILING) is None:
                return []
        for fix in slow:
            if fix not in chosen and (rival := self._rival([fix], chosen)):
                how = "is faster" if fix.name in self._said else "was raced first, and gains"
                self._note(fix, reason=f"another candidate {how}: {rival.title}")
        return chosen

    def _join(self, chosen: list[FixVerdict], added: Mapping[str, Fixes], seconds: float) -> list[FixVerdict] | None:
        """Race fixes on top of the chosen, by their variants' names; the fastest join them.

        None where the chosen ones fail. Which of several fixes fails, nobody knows.
        """
        kept = {KEPT: chosen} if chosen else {}
        race = self._race({**kept, **{name: [*chosen, *fixes] for name, fixes in added.items()}}, seconds)
        if KEPT in race.faults:
            self._blame(race, KEPT, chosen)
            return None
        best: tuple[float, Fixes] = (0.0, ())
        if says(statistics.against_original(race.samples, KEPT), race) is Outcome.FASTER:
            self._choice = race.renamed(KEPT, PATCHED)
        for name, fixes in added.items():
            if name in race.faults and len(fixes) > 1 and len(race.faults) == len(added) and not chosen:
                self._blame(race, name, fixes)
                raise _FailTogether(fixes, race.renamed(name, PATCHED))
            gain = statistics.speedup(race.samples, [KEPT] if chosen else ORIGINALS, [name])
            if len(fixes) == 1:
                self._note(fixes[0], **{"on_top" if chosen else "alone": gain})
                self._judge(fixes[0], race, name, gain)
            if gain and says(gain, race) is Outcome.FASTER and gain.low > best[0]:
                best, self._choice = (gain.low, fixes), race.renamed(name, PATCHED)
                self._joint = gain if len(fixes) > 1 else self._joint
        chosen += best[1]
        return chosen

    def _confirmed(self, chosen: Fixes) -> Settled:
        """Race the patch of the chosen fixes, and that of all; without time, the race that chose them counts."""
        if chosen and not self._can_start(_PAIR - 1):
            self._conclude(chosen, chosen, self._choice, None)
            hope = self._promising(chosen)
            return Settled(list(self._fixes.values()), chosen, self._choice, is_confirmed=False, hope=hope)
        hope = self._promising(chosen)
        whole = hope or self._together(chosen)
        patch, race = chosen or whole, Race()
        if patch:
            is_more = {*names_of(whole)} != {*names_of(patch)}
            parts = {**({WHOLE: whole} if is_more else {}), **classes(patch, self.by_class)}
            parts = parts if self._can_start(_PAIR - 1 + len(parts)) else {}
            race = self._race({PATCHED: patch, **parts}, self.budget.left)
            self._blame(race, PATCHED, patch)
        joint = statistics.speedup(race.samples, [PATCHED], [WHOLE])
        if says(joint, race) is Outcome.FASTER:
            patch, race = whole, race.renamed(WHOLE, PATCHED)
        self._conclude(patch, chosen, race, joint)
        self._choice = race
        hope = self._promising(patch) if self._can_start(_PAIR) else ()
        return Settled(list(self._fixes.values()), patch, race, hope=hope)

    def _promising(self, chosen: Fixes) -> Fixes:
        gain = statistics.against_original(self._choice.samples, PATCHED) if chosen else None
        wrong = {fix.name for fix in self._fixes.values()} - {*names_of(self._sound)}
        hopes = [(ratio, fixes) for ratio, fixes in self._hopes if wrong.isdisjoint(names_of(fixes))]
        ratio, fixes = max(hopes, key=lambda hope: hope[0], default=(0.0, ()))
        return fixes if ratio > statistics.SOUGHT_GAIN * (gain.ratio if gain else 1.0) else ()

    def _can_start(self, variants: int) -> bool:
        return variants * self._each <= self.budget.left

    def _conclude(self, patch: Fixes, chosen: Fixes, race: Race, joint: Estimate | None) -> None:
        """Keep the fixes of a patch that won, some for the `joint` gain beyond the chosen; drop the others."""
        gain, names = statistics.against_original(race.samples, PATCHED), names_of(patch)
        if gain and len(patch) == 1:
            self._note(patch[0], alone=gain)
        for fix in list(self._fixes.values()):
            was_chosen = fix.name in names_of(chosen)
            if fix.name not in names or says(gain, race) is not Outcome.FASTER:
                last = gain if fix.name in names else None
                self._note(fix, reason=fix.reason or too_little(fix, last, was_chosen=was_chosen))
            elif len(patch) == 1 or (was_chosen and self._said.get(fix.name) is Outcome.FASTER):
                self._note(fix, kept=True, reason=merit(fix))
            else:
                together = self._joint if was_chosen else joint if chosen else gain
                self._note(fix, kept=True, is_joint=True, reason=joint_merit(fix, together))

    def _together(self, chosen: Fixes) -> Fixes:
        others = _without(chosen, self._sound)
        fast = [fix for fix in others if not starts_slowly(fix.rule)]
        others = fast if chosen else fast or others
        better = [fix for fix in others if self._may_gain(fix, chosen, in_haste=True)]
        return [*chosen, *self._fitting(chosen, better if chosen else better or others)]

    def _fitting(self, chosen: Fixes, others: Fixes) -> list[FixVerdict]:
        fitting: list[FixVerdict] = []
        for fix in others:
            added = _without([*chosen, *fitting], self._with_needed(fix))
            if added and self.patched([*chosen, *fitting, *added], WHOLE):
                fitting += added
        return fitting

    def _with_needed(self, fix: FixVerdict) -> Fixes:
        """The fix, after the one that makes it possible, if it can't be had alone."""
        pairs = ([each, fix] for each in self._sound if each.name != fix.name)
        return [fix] if self.patched([fix], WHOLE) else next((e for e in pairs if self.patched(e, WHOLE)), [fix])

    @property
    def _sound(self) -> list[FixVerdict]:
        return [fix for fix in self._fixes.values() if fix.likeness.grade is not Grade.DIFFERENT]

    def _rival(self, fixes: Fixes, chosen: Fixes) -> FixVerdict | None:
        if self.patched([*chosen, *fixes], WHOLE):
            return None
        return next((each for each in chosen if not self.patched([each, *fixes], WHOLE)), next(iter(chosen), None))

    def _judge(self, fix: FixVerdict, race: Race, variant: str, gain: Estimate | None) -> None:
        self._said[fix.name] = says(gain, race)
        self._blame(race, variant, [fix])

    def _blame(self, race: Race, variant: str, fixes: Fixes) -> None:
        if fault := race.faults.get(variant):
            evidence = f"with {'the fix' if len(fixes) == 1 else 'these fixes'} the program {fault.words}"
            for fix in fixes:
                self._note(fix, likeness=Likeness(Grade.DIFFERENT, (evidence,)), reason=evidence)

    def _note(self, fix: FixVerdict, **known: Any) -> None:
        self._fixes[fix.name] = replace(self._fixes[fix.name], **known)

    def _has_time(self, budget: Budget, *variants: int) -> bool:
        return sum(max(self.schedule.least(number), number * self._each) for number in variants) <= budget.left

    def _race(self, patches: Mapping[str, Fixes], seconds: float, before: Race | None = None) -> Race:
        """Race patches by names, counting the rounds of a race `before` of them."""
        named = {**dict.fromkeys(ORIGINALS, ()), **patches}
        variants = [variant for name, fixes in named.items() if (variant := self.patched(fixes, name))]
        protocol = self.schedule.protocol(len(variants), seconds)
        if any(starts_slowly(fix.rule) for fixes in patches.values() for fix in fixes):
            protocol = self.schedule.shortest(len(variants), seconds)  # most of the time goes to compiling
        self.tell(f"racing {len(variants)} variants, {protocol.rounds} rounds at most")
        budget = self.budget.part(seconds)

        def is_enough(samples: Samples) -> bool:
            self.look_around()
            return not budget.left or statistics.are_decided(known.then(samples), list(patches))

        known = before.samples if before else Samples()
        race = self.hold(variants, protocol, is_enough, self._room)
        rounds = len({window.round for window in race.samples.windows})
        self._each = budget.spent / len(variants) / max(rounds, 1) * statistics.LEAST_ROUNDS
        self._room = race.room
        self.schedule = replace(
            self.schedule, beside=min(self.schedule.beside, race.room.processes or self.schedule.beside)
        )
        self._hopes += _open(race, patches)
        return race.following(before) if before else race


def _without(chosen: Fixes, fixes: Fixes) -> list[FixVerdict]:
    return [fix for fix in fixes if fix.name not in names_of(chosen)]


def _open(race: Race, patches: Mapping[str, Fixes]) -> Iterator[tuple[float, Fixes]]:
    rival = next((each for each in (KEPT, PATCHED) if each in patches), None)
    least = {*names_of(patches[rival])} if rival else set()
    for name, fixes in patches.items():
        if name != rival and least <= {*names_of(fixes)}:
            rivals = [rival] if rival else ORIGINALS
            more_, gain = (statistics.speedup(race.samples, before, [name]) for before in (rivals, ORIGINALS))
            if more_ and gain and says(more_, race) is Outcome.UNSURE:
                yield gain.ratio, fixes
