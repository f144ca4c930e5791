"""Selects fixes by racing them, says why each is kept or dropped, and what is left open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perflint.shim.settings import starts_slowly
from perflint.verify import statistics
from perflint.verify.messages import Variant
from perflint.verify.protocol import AT_ONCE, Budget, Protocol, Schedule
from perflint.verify.race import Enough, Race, Room
from perflint.verify.running import Fault
from perflint.verify.settled import Fixes, Settled, classes, names_of, says, undecided, without
from perflint.verify.statistics import KEPT, ORIGINALS, PATCHED, WHOLE, Estimate, Outcome, Samples, more, only
from perflint.verify.summary import joint_merit, merit, too_little
from perflint.verify.verdict import FixVerdict, Grade, Likeness

Hold = Callable[[Sequence[Variant], Protocol, Enough, Room], Race]

_FOR_EACH = 0.4  # of the time that is left, to race each fix alone
_EASE = 1.2  # times as long as a race should take: its last round counts as much as the first
_FAST = 0.5  # of the time that is left for races, where others compile
_OTHERS, _HOPE = "the others together", "what seems to gain most"
_COMPILING = 0.8  # of what is left then, to race those that compile
_LAST = len(ORIGINALS) + 1  # variants in the race of a patch
_PAIR = _LAST + 1  # and with something more against it


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
    _choice: tuple[list[FixVerdict], Race] = field(default=([], Race()), init=False)  # chosen, and the race of them
    _gain: float = field(default=1.0, init=False)  # of what is chosen, as it seems
    _tried: set[frozenset[str]] = field(default_factory=set, init=False)  # patches that took turns with the chosen
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
        is_blank = {fix.name: fix.name in raced and not fix.kept for fix in settled.fixes}
        self._fixes = {fix.name: replace(fix, reason="") if is_blank[fix.name] else fix for fix in settled.fixes}
        before = settled.race if settled.is_confirmed else Race()
        parts = {PATCHED: settled.patch, **classes(settled.patch, self.by_class)}
        race = self._race(parts, self.budget.left, before)
        self._blame(race, PATCHED, settled.patch)
        self._conclude(settled.patch, [], race, None)
        return Settled(list(self._fixes.values()), settled.patch, race)

    def improved(self, settled: Settled) -> Settled:
        """The settled patch with what turns out to gain on top of it, if anything does.

        No rounds count twice: neither those that left it open, nor, when all is raced at last, those that chose it.
        """
        self._fixes, self._each = {fix.name: fix for fix in settled.fixes}, settled.each
        self._room, patch = settled.race.room, [*settled.patch]
        self._choose(patch, settled.race)
        if not self._extend(patch, self.budget, settled.hope):
            return settled
        raced, race = self._choice
        if names_of(patch) != names_of(raced):
            race = self._race({PATCHED: patch, **classes(patch, self.by_class)}, self.budget.left)
            if says(statistics.against_original(race.samples, PATCHED), race) is not Outcome.FASTER:
                return settled
        self._conclude(patch, patch, race, None)
        return replace(settled, fixes=list(self._fixes.values()), patch=patch, race=race)

    def _race_each(self, fixes: Fixes, budget: Budget) -> None:
        fixes = [fix for fix in fixes if self.patched([fix], only(fix.name))]
        groups = [fixes[start : start + AT_ONCE] for start in range(0, len(fixes), AT_ONCE)]
        least = sum(self._takes(len(ORIGINALS) + len(group)) for group in groups)
        if least + self._takes(_PAIR) > budget.left:
            self.tell("there is no time to race each fix")
            return
        alone = budget.part(max(_FOR_EACH * budget.left, _EASE * least))
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
        self._choose(chosen, self._choices[chosen[0].name] if chosen else Race())
        hope = [] if chosen or in_haste else self._promising([])
        if hope and self._has_time(budget, _PAIR, _PAIR):
            whole = [] if self._has_time(budget, *[_PAIR] * len(ordered), _PAIR) else self._together([])
            is_more = not {*names_of(whole)} <= {*names_of(hope)}
            self._join(chosen, {more(_HOPE): hope, **({more(_OTHERS): whole} if is_more else {})}, budget.left / 2)
        if chosen and self._gain >= statistics.FAR:
            return chosen if self._extend(chosen, budget) else []
        rest = without(chosen, ordered) if chosen else []
        has_time = self._has_time(budget, *[_PAIR] * (1 if in_haste else 2))
        if has_time and (in_haste or not self._has_time(budget, *[_PAIR] * len(rest), _PAIR)):
            others = [fix for fix in without(chosen, ordered) if self._may_gain(fix, chosen, in_haste=in_haste)]
            fitting = self._fitting(chosen, others)
            seconds = budget.left if in_haste else budget.left / 2
            is_new = len(chosen) + len(fitting) > 1 or any(fix.name not in self._said for fix in fitting)
            if is_new and self._join(chosen, {more(_OTHERS): [*chosen, *fitting]}, seconds) is None:
                return []
        rest = without(chosen, rest)
        for number, fix in enumerate(rest):
            added = without(chosen, self._with_needed(fix))
            if not added or self._rival(added, chosen):
                continue
            if not self._has_time(budget, _PAIR, _PAIR):
                self._note(fix, reason="there was no time to race it on top of the fastest")
            else:
                seconds = budget.left / (len(rest) - number + 1)
                if self._join(chosen, {more(fix.name): [*chosen, *added]}, seconds) is None:
                    return []
        return chosen

    def _extend(self, chosen: list[FixVerdict], budget: Budget, hope: Fixes = ()) -> bool:
        """Race on top of the chosen, as the original, what may gain there, while there is time; False if they fail."""
        while patches := self._on_top(chosen, hope):
            for variants in range(len(ORIGINALS) + len(patches), len(ORIGINALS), -1):
                least, left = _EASE * self._takes(variants), budget.left
                if least + _EASE * self._takes(_LAST, self._gain) <= left:
                    break
                patches.popitem()
            if not patches:
                break
            self._tried |= {frozenset(names_of(patch)) for patch in patches.values()}
            seconds = max(least, left - _EASE * self._takes(_LAST))
            if self._join(chosen, patches, seconds, on_top=True) is None:
                return False
        return True

    def _on_top(self, chosen: Fixes, hope: Fixes) -> dict[str, Fixes]:
        """Patches that may be faster than the chosen, by variants' names, what seems to gain most first, all last."""
        fast = (fix for fix in without(chosen, self._sound) if not starts_slowly(fix.rule))
        rest = [fix for fix in fast if self._may_gain_on_top(fix, chosen)]
        rest.sort(key=lambda fix: fix.gain.ratio if fix.gain else 1.0, reverse=True)
        patches: dict[str, Fixes] = {
            more(fix.name): [*chosen, *without(chosen, self._with_needed(fix))] for fix in rest[: AT_ONCE - 1]
        }
        if len(rest) > 1:
            patches[more(_OTHERS)] = [*chosen, *self._fitting(chosen, rest)]
        new = {name: patch for name, patch in patches.items() if frozenset(names_of(patch)) not in self._tried}
        new = {name: patch for name, patch in new.items() if self.patched(patch, WHOLE)}
        is_known = {*names_of(hope)} <= {*names_of(chosen)} or frozenset(names_of(hope)) in self._tried
        return new if new or is_known else {more(_HOPE): hope}

    def _may_gain_on_top(self, fix: FixVerdict, chosen: Fixes) -> bool:
        """What is little beside the original may be much beside a far faster program."""
        gain = fix.on_top or (fix.alone if self._gain < statistics.FAR else None)
        is_slower = bool(fix.gain and statistics.is_slower(fix.gain, 0.0))
        is_none = is_slower or bool(gain and statistics.rules_out(gain, 0.0))
        return not is_none or (not fix.on_top and fix.rule in {each.rule for each in chosen})

    def _may_gain(self, fix: FixVerdict, chosen: Fixes, *, in_haste: bool) -> bool:
        """Fixes of one rule may gain only together: what stays eager beside a captured step pays for it."""
        said, alone = self._said.get(fix.name), self._fixes[fix.name].alone
        seems = said is Outcome.UNSURE and alone is not None and alone.ratio > statistics.SOUGHT_GAIN
        may = in_haste and said is not Outcome.SLOWER
        return said is Outcome.FASTER or seems or may or fix.rule in {each.rule for each in chosen}

    def _compiled(self, chosen: list[FixVerdict], slow: Fixes) -> Fixes:
        groups = [[fix] for fix in slow] if self._room.processes == 1 else [slow]
        for group in groups:
            together = {more(fix.name): [*chosen, fix] for fix in group if self.patched([*chosen, fix], WHOLE)}
            if together and self._join(chosen, together, self.budget.left * _COMPILING) is None:
                return []
        return chosen

    def _join(
        self, chosen: list[FixVerdict], patches: Mapping[str, Fixes], seconds: float, *, on_top: bool = False
    ) -> list[FixVerdict] | None:
        """Race patches against the chosen, by their variants' names; the fastest takes their place.

        `on_top` the chosen are the original: windows are as long as their steps ask for, and what they differ from
        themselves is the noise. None where the chosen fail. Which of several fixes fails, nobody knows.
        """
        kept = {KEPT: chosen} if chosen and not on_top else {}
        try:
            race = self._race({**kept, **patches}, seconds, base=chosen if on_top else ())
        except Fault as fault:
            if not on_top:
                raise
            race = Race(faults={KEPT: fault})
        if KEPT in race.faults:
            self._blame(race, KEPT, chosen)
            return None
        best, gained = "", Estimate(0.0, 0.0, 0.0, 0, 0)
        if says(statistics.against_original(race.samples, KEPT), race) is Outcome.FASTER:
            self._choose(chosen, race.renamed(KEPT, PATCHED))
        for name, patch in patches.items():
            fixes = without(chosen, patch)
            if name in race.faults and len(fixes) > 1 and len(race.faults) == len(patches) and not chosen:
                self._blame(race, name, fixes)
                raise _FailTogether(fixes, race.renamed(name, PATCHED))
            gain = statistics.speedup(race.samples, [*kept] or ORIGINALS, [name])
            if len(fixes) == 1:
                self._note(fixes[0], reason="", **{"on_top" if chosen else "alone": gain})
                self._judge(fixes[0], race, name, gain)
            beyond = statistics.speedup(race.samples, [best], [name]) if best and len(fixes) > 1 else None
            is_more = says(beyond, race) is Outcome.FASTER if beyond else bool(gain and gain.low > gained.low)
            if gain and is_more and (says(gain, race) is Outcome.FASTER or self._is_far(race, name, gain)):
                best, gained = name, gain
                self._joint = gain if len(fixes) > 1 else self._joint
        if best and on_top:
            self._gain *= gained.ratio
        elif best:
            self._choose(patches[best], race.renamed(best, PATCHED))
        chosen[:] = patches[best] if best else chosen
        return chosen

    def _is_far(self, race: Race, name: str, gain: Estimate) -> bool:
        """Whether few rounds show a patch to beat the original, and, as it seems, far more than what is kept does."""
        is_few = gain.rounds < statistics.LEAST_ROUNDS and gain.ratio >= statistics.FAR
        return is_few and says(statistics.against_original(race.samples, name), race) is Outcome.FASTER

    def _confirmed(self, chosen: Fixes) -> Settled:
        """Race the patch of the chosen fixes, and that of all; without time, the race that chose them counts."""
        raced, race = self._choice
        if chosen and not self._can_start(_LAST, 1.0 if names_of(chosen) == names_of(raced) else self._gain):
            self._conclude(raced, raced, race, None)
            hope = self._promising(raced) if names_of(raced) == names_of(chosen) else chosen
            return Settled([*self._fixes.values()], raced, race, is_confirmed=False, hope=hope, each=self._each)
        hope = self._promising(chosen)
        whole = hope or self._together(chosen)
        patch, race = chosen or whole, Race()
        if patch:
            is_more = {*names_of(whole)} != {*names_of(patch)}
            parts = {**({WHOLE: whole} if is_more else {}), **classes(patch, self.by_class)}
            parts = parts if self._can_start(_LAST + len(parts)) else {}
            race = self._race({PATCHED: patch, **parts}, self.budget.left)
            self._blame(race, PATCHED, patch)
        joint = statistics.speedup(race.samples, [PATCHED], [WHOLE])
        if says(joint, race) is Outcome.FASTER:
            patch, race = whole, race.renamed(WHOLE, PATCHED)
        self._conclude(patch, chosen, race, joint)
        self._choose(patch, race)
        hope = self._promising(patch) if self._can_start(_PAIR) else ()
        return Settled([*self._fixes.values()], patch, race, hope=hope, each=self._each)

    def _choose(self, fixes: Fixes, race: Race) -> None:
        gain = statistics.against_original(race.samples, PATCHED)
        self._choice, self._gain = ([*fixes], race), gain.ratio if gain else 1.0

    def _promising(self, chosen: Fixes) -> Fixes:
        wrong = {fix.name for fix in self._fixes.values()} - {*names_of(self._sound)}
        hopes = [(ratio, fixes) for ratio, fixes in self._hopes if wrong.isdisjoint(names_of(fixes))]
        ratio, fixes = max(hopes, key=lambda hope: hope[0], default=(0.0, ()))
        return fixes if ratio > statistics.SOUGHT_GAIN * (self._gain if chosen else 1.0) else ()

    def _can_start(self, variants: int, gain: float = 1.0) -> bool:
        return variants * self._each * statistics.rounds_for(gain) / statistics.LEAST_ROUNDS <= self.budget.left

    def _conclude(self, patch: Fixes, chosen: Fixes, race: Race, joint: Estimate | None) -> None:
        """Keep the fixes of a patch that won, some for the `joint` gain beyond the chosen; drop the others."""
        gain, names = statistics.against_original(race.samples, PATCHED), names_of(patch)
        if gain and len(patch) == 1:
            self._note(patch[0], alone=gain)
        for fix in list(self._fixes.values()):
            was_chosen = fix.name in names_of(chosen)
            if fix.name not in names or says(gain, race) is not Outcome.FASTER:
                last, rival = (gain, None) if fix.name in names else (None, self._rival([fix], patch))
                how = "is faster" if fix.alone or fix.on_top else "was raced first, and gains"
                told = ("" if fix.kept else fix.reason) or (f"another candidate {how}: {rival.title}" if rival else "")
                self._note(fix, kept=False, reason=told or too_little(fix, last, was_chosen=was_chosen))
            elif fix.kept:
                continue  # by an earlier race
            elif len(patch) == 1 or (was_chosen and self._said.get(fix.name) is Outcome.FASTER):
                self._note(fix, kept=True, reason=merit(fix))
            else:
                together = self._joint if was_chosen else joint if chosen else gain
                self._note(fix, kept=True, is_joint=True, reason=joint_merit(fix, together))

    def _together(self, chosen: Fixes) -> Fixes:
        others = without(chosen, self._sound)
        fast = [fix for fix in others if not starts_slowly(fix.rule)]
        others = fast if chosen else fast or others
        better = [fix for fix in others if self._may_gain(fix, chosen, in_haste=True)]
        return [*chosen, *self._fitting(chosen, better if chosen else better or others)]

    def _fitting(self, chosen: Fixes, others: Fixes) -> list[FixVerdict]:
        fitting: list[FixVerdict] = []
        for fix in others:
            added = without([*chosen, *fitting], self._with_needed(fix))
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
        return sum(map(self._takes, variants)) <= budget.left

    def _takes(self, variants: int, gain: float = 1.0) -> float:
        """About the seconds of a race of so many variants that shows such a gain."""
        rounds = statistics.rounds_for(gain)
        each = self._each * rounds / statistics.LEAST_ROUNDS
        return max(self.schedule.least(variants, statistics.LEAST_ROUNDS - rounds), variants * each)

    def _race(self, patches: Mapping[str, Fixes], seconds: float, before: Race | None = None, base: Fixes = ()) -> Race:
        """Race patches by names, with `base` as the original, counting the rounds of a race `before` of them."""
        named = {**dict.fromkeys(ORIGINALS, base), **patches}
        variants = [variant for name, fixes in named.items() if (variant := self.patched(fixes, name))]
        schedule = self.schedule.of_faster(self._gain) if base else self.schedule
        protocol = schedule.protocol(len(variants), seconds)
        if any(starts_slowly(fix.rule) for fixes in patches.values() for fix in fixes):
            protocol = schedule.shortest(len(variants), seconds)  # most of the time goes to compiling
        protocol = protocol if PATCHED in patches else replace(protocol, times_starts=False, observed=0)
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
        self._hopes += [(self._gain * ratio if base else ratio, fixes) for ratio, fixes in undecided(race, patches)]
        return race.following(before) if before else race
