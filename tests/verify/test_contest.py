"""Races decide which fixes are kept: each for what it adds to the others, and some for what they gain together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest

from perflint.engine.rule import Safety
from perflint.shim.plan import Plan
from perflint.verify import protocol
from perflint.verify.contest import Contest
from perflint.verify.messages import Variant
from perflint.verify.protocol import Budget, Protocol
from perflint.verify.race import Enough, Race, Room, Start
from perflint.verify.running import Fault
from perflint.verify.settled import Settled, names_of
from perflint.verify.statistics import (
    ORIGINAL,
    ORIGINALS,
    PATCHED,
    WHOLE,
    Samples,
    against_original,
    more,
    only,
    within,
)
from perflint.verify.verdict import FixVerdict, Grade
from tests.verify.races import CALM, ROUGH, Noise, race
from tests.verify.verdicts import fix

FIXES = [fix(number) for number in range(3)]
COMPILED = [replace(each, rule=rule) for each, rule in zip(FIXES[1:], ("compile-graphs", "compile"), strict=True)]
A, B, C = (each.name for each in FIXES)
LONG = 1e6  # seconds
HUNG = "hangs after step 31: it came to no step for 60 s"
Speed = Callable[[frozenset[str]], float]


class Clock:
    """The clock of budgets, which only races move, where a test says how long they take."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Simulated:
    """A course on which a variant is as fast as `speed` says of the names of its fixes; those of `crashes` fail.

    Beside the original there may be another noise.
    """

    def __init__(
        self,
        speed: Speed,
        noise: Noise,
        seed: int,
        crashes: Collection[frozenset[str]],
        room: Room | None = None,
        takes: float = 0.0,
        beside: Noise | None = None,
    ) -> None:
        self._speed, self._noise, self._seed, self._crashes = speed, noise, seed, crashes
        self._beside = beside or noise
        self._room, self._takes = room or Room(), takes
        self.clock = Clock()
        self.races: list[list[str]] = []
        self.variants = 0

    def race(self, variants: Sequence[Variant], protocol: Protocol, enough: Enough, room: Room) -> Race:
        self.races.append([each.name for each in variants if each.name not in ORIGINALS])
        self.variants += len(variants)
        names = {each.name: frozenset(each.plan.files) for each in variants if each.name not in ORIGINALS}
        faults = {name: Fault(name, HUNG) for name, fixes in names.items() if fixes in self._crashes}
        base = next(frozenset(each.plan.files) for each in variants if each.name == ORIGINAL)
        if base in self._crashes:
            raise Fault(ORIGINAL, HUNG)
        usual = self._speed(base) if base else 1.0
        speedups = {name: self._speed(fixes) / usual for name, fixes in names.items() if name not in faults}
        rng = np.random.default_rng((self._seed, len(self.races)))
        samples = Samples()
        if speedups:
            noise = self._noise if base else self._beside
            samples = race(rng, noise, rounds=protocol.rounds, pairs=protocol.pairs, speedups=speedups)
        enough(samples)
        self.clock.now += self._takes * len(variants)
        starts = tuple(Start(name, 1.0, 0, 0) for name in (*ORIGINALS, *speedups))
        return Race(samples, starts, room=self._room, faults=faults)


@dataclass(frozen=True)
class Fixed:
    """A schedule whose races all have the same protocol; there is time for so many `variants` in all of them."""

    course: Simulated
    rounds: int
    pairs: int
    variants: int
    beside: int = 2
    crowded: int = 0  # rounds less for more than four variants

    def protocol(self, variants: int, seconds: float) -> Protocol:
        return Protocol("steps", 4, 10, self.pairs, self.rounds - self.crowded * (variants > 4), 20)

    shortest = protocol

    def of_faster(self, gain: float) -> Fixed:
        assert gain > 0
        return self

    def least(self, variants: int, known: int = 0) -> float:
        """As a share of what is left, which the clock of the test doesn't change."""
        return LONG * 0.99 * variants / max(self.variants - self.course.variants, 1)


def settled(
    speed: Speed,
    fixes: Sequence[FixVerdict] = FIXES,
    *,
    noise: Noise = CALM,
    seed: int = 0,
    crashes: Collection[frozenset[str]] = (),
    rivals: frozenset[str] = frozenset(),
    needed: frozenset[str] = frozenset(),
    size: tuple[int, int] = (5, 5),
    variants: int = 10**6,
    room: Room | None = None,
    takes: float = 0.0,
    crowded: int = 0,
    beside: Noise | None = None,
    before: Settled | None = None,
) -> tuple[Settled, list[list[str]]]:
    """What comes of a contest, and the variants of each of its races; no two of the
    `rivals` can be had together, and B not without the `needed`. What was settled `before` is improved.
    """

    def patched(fixes: Sequence[FixVerdict], name: str) -> Variant | None:
        files = {each.name: None for each in fixes}
        plan = Plan("", cast(Any, files), (), (), {}, False, False, "")
        is_made = len(rivals & files.keys()) <= 1 and (B not in files or needed <= files.keys())
        return Variant(name, plan) if is_made else None

    course = Simulated(speed, noise, seed, crashes, room, takes, beside)
    schedule = cast(Any, Fixed(course, *size, variants, crowded=crowded))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "time", course.clock)
        contest = Contest(course.race, patched, schedule, Budget(LONG), lambda _: None, lambda: None)
        return contest.improved(before) if before else contest.settle(fixes), course.races


def kept(result: Settled) -> list[str]:
    return [each.name for each in result.fixes if each.kept]


def reasons(result: Settled) -> Mapping[str, str]:
    return {each.name: each.reason for each in result.fixes}


def ratio_of(result: Settled) -> float:
    estimate = against_original(result.race.samples, PATCHED)
    assert estimate is not None
    return estimate.ratio


def gains(a: float = 1.0, b: float = 1.0, c: float = 1.0) -> Speed:
    """Fixes whose gains multiply."""
    return lambda names: math.prod(gain for name, gain in zip((A, B, C), (a, b, c), strict=True) if name in names)


def test_a_fix_is_kept_for_what_it_adds_to_those_that_gain_more() -> None:
    result, races = settled(gains(1.5, 1.2, 1.0))
    assert kept(result) == [A, B]
    assert races[0] == [only(A), only(B), only(C)]
    assert ratio_of(result) == pytest.approx(1.8, rel=0.05)
    assert "1.5" in reasons(result)[A] and "1.2" in reasons(result)[B]
    assert reasons(result)[C].startswith("no gain was measured: ")
    assert [each.name for each in result.patch] == [A, B]


def test_fixes_that_compile_are_raced_beside_each_other_on_top_of_the_others() -> None:
    result, races = settled(gains(1.5, 1.2, 1.6), (FIXES[0], *COMPILED), rivals=frozenset((B, C)))
    assert races == [[only(A)], ["the fixes kept so far", more(B), more(C)], [PATCHED]]
    assert kept(result) == [A, C]
    assert reasons(result)[B].startswith("another candidate is faster")


def test_where_programs_run_one_after_the_other_the_first_that_compiles_and_gains_is_kept() -> None:
    result, races = settled(
        gains(1.5, 1.6, 1.2), (FIXES[0], *COMPILED), rivals=frozenset((B, C)), room=Room(1, "they have no room")
    )
    assert races == [[only(A)], ["the fixes kept so far", more(B)], [PATCHED]]
    assert kept(result) == [A, B]
    assert reasons(result)[C].startswith("another candidate was raced first, and gains: ")


def test_on_top_of_what_gains_only_together_that_is_compiled_which_gains_most() -> None:
    fixes = [*FIXES[:2], COMPILED[1]]
    together = frozenset((A, B))
    result, races = settled(lambda names: (1.8 if together <= names else 1.0) * (1.5 if C in names else 1.0), fixes)
    assert races == [[only(A), only(B)], [more("the others together")], ["the fixes kept so far", more(C)], [PATCHED]]
    assert kept(result) == [A, B, C]
    assert [each.is_joint for each in result.fixes] == [True, True, False]
    assert "together with the others that gain little alone" in reasons(result)[A]


def test_without_time_to_compile_the_patch_anew_the_race_that_chose_it_is_the_last() -> None:
    result, races = settled(gains(1.5, 1.6), (FIXES[0], COMPILED[0]), takes=LONG / 6)
    assert races == [[only(A)], ["the fixes kept so far", more(B)]]
    assert not result.is_confirmed and kept(result) == [A, B]
    assert ratio_of(result) == pytest.approx(2.4, rel=0.05)


def test_what_compiles_and_seems_to_gain_most_is_raced_again_where_its_rounds_were_too_few_to_tell() -> None:
    result, races = settled(gains(1.0, 1.0, 1.4), [*FIXES[:2], COMPILED[1]], size=(2, 5))
    assert races[-1] == [PATCHED] and names_of(result.patch) == [C]


def test_fixes_that_fail_together_are_told_before_anything_is_compiled() -> None:
    fixes, together = [*FIXES[:2], COMPILED[1]], frozenset((A, B))
    result, races = settled(gains(1.5, 1.2, 1.3), fixes, crashes=[together], variants=10)
    assert races == [[more("the others together")]]
    assert names_of(result.patch) == [A, B] and result.fault.startswith("with these fixes the program hangs")


def test_what_compiles_and_gains_nothing_for_sure_is_not_raced_again_with_the_others() -> None:
    fixes = [*FIXES[:2], COMPILED[1]]
    result, races = settled(gains(1.0, 1.0, 1.0), fixes, variants=12)
    assert races == [[more("the others together")], [more(C)], [PATCHED]]
    assert names_of(result.patch) == [A, B]


def test_where_nothing_else_gains_what_compiles_is_raced_against_the_original() -> None:
    compiled = replace(FIXES[1], rule="compile")
    result, races = settled(gains(1.0, 1.4), (FIXES[0], compiled))
    assert races == [[only(A)], [more(B)], [PATCHED, WHOLE]]
    assert kept(result) == [B]


def test_without_time_for_one_after_the_other_those_that_gain_alone_are_raced_together() -> None:
    result, races = settled(gains(1.5, 1.2, 1.3), variants=14)
    assert races[:2] == [[only(A), only(B), only(C)], ["the fixes kept so far", more("the others together")]]
    assert kept(result) == [A, B, C]


SHORT_WINDOWS = Noise(window=0.15, process=0.02)


def test_what_gains_little_beside_the_original_is_raced_on_top_of_what_is_far_faster_in_its_place() -> None:
    result, races = settled(gains(11.0, 1.1, 1.0), beside=SHORT_WINDOWS)
    assert races[1] == [more(B), more(C), more("the others together")]
    assert kept(result) == [A, B] and "on top of the others" in reasons(result)[B]
    assert reasons(result)[C].startswith("no gain was measured: ")
    assert ratio_of(result) == pytest.approx(12.1, rel=0.2)


@pytest.mark.parametrize(("gain", "found"), [(1.1, range(95, 101)), (1.0, range(2))])
def test_what_was_left_open_is_found_by_further_rounds_and_what_gains_nothing_is_not(gain: float, found: range) -> None:
    hits = 0
    for seed in range(100):
        first, _ = settled(gains(11.0, gain), FIXES[:2], variants=8, beside=SHORT_WINDOWS, seed=seed)
        result, races = settled(gains(11.0, gain), before=first, beside=SHORT_WINDOWS, seed=seed)
        assert B in kept(first) or races[:1] == [[more(B)]]
        hits += B in kept(result)
    assert hits in found


def test_what_gains_only_together_on_top_of_what_is_far_faster_is_kept_together() -> None:
    result, _ = settled(lambda names: (11.0 if A in names else 1.0) * (1.1 if {A, B, C} <= names else 1.0))
    assert kept(result) == [A, B, C]
    assert [each.is_joint for each in result.fixes] == [False, True, True]


def test_a_patch_that_fails_as_others_are_raced_on_top_of_it_stays_as_it_was_settled() -> None:
    first, _ = settled(gains(11.0, 1.1), FIXES[:2], variants=8)
    result, _ = settled(gains(11.0, 1.1), before=first, crashes=[frozenset([A])])
    assert result == first


def test_fixes_that_crash_together_are_not_blamed_each() -> None:
    result, _ = settled(gains(1.5, 1.2, 1.3), variants=16, crashes=[frozenset((A, B, C))])
    assert all(each.likeness.grade is not Grade.DIFFERENT for each in result.fixes)
    assert A in kept(result)


def test_of_two_ways_to_one_gain_the_better_is_kept() -> None:
    """Each alone makes the program twice as fast, and both together less than one of them."""
    speeds = {frozenset([A]): 2.0, frozenset([B]): 2.1, frozenset([A, B]): 1.5, frozenset(): 1.0}
    result, _ = settled(lambda names: speeds[names], FIXES[:2])
    assert kept(result) == [B]
    assert reasons(result)[A].startswith("the patch is faster without it: 0.7")
    assert ratio_of(result) == pytest.approx(2.1, rel=0.05)


def test_a_gain_that_another_fix_hides_is_found_on_top_of_that() -> None:
    result, _ = settled(lambda names: 1.5 * (1.3 if B in names else 1.0) if A in names else 1.0)
    assert kept(result) == [A, B]
    assert "gains more beside the others" in reasons(result)[B]


def test_fixes_that_gain_something_only_together_are_kept_together() -> None:
    result, races = settled(lambda names: 1.3 if len(names) == 3 else 1.0)
    assert kept(result) == [A, B, C]
    assert all(each.is_joint and "1.3" in each.reason and "together" in each.reason for each in result.fixes)
    assert len(races) == 2


def test_what_gains_together_on_top_of_a_fix_that_gains_alone_is_kept_as_well() -> None:
    result, _ = settled(lambda names: (1.5 if A in names else 1.0) * (1.2 if {B, C} <= names else 1.0))
    assert kept(result) == [A, B, C]
    assert [each.is_joint for each in result.fixes] == [False, True, True]
    assert ratio_of(result) == pytest.approx(1.8, rel=0.05)


@pytest.mark.parametrize("variants", [11, 14, 10**6])
def test_what_makes_the_program_slower_but_beside_another_of_its_rule_is_kept_with_that(variants: int) -> None:
    """Of two steps that share an optimizer both are captured, or the other one pays for it."""

    def speed(names: frozenset[str]) -> float:
        return (4.0 if B in names else 1.5) if A in names else 0.6 if B in names else 1.0

    result, _ = settled(speed, variants=variants)
    assert {A, B} <= {*kept(result)}
    assert ratio_of(result) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("variants", [11, 10**6])
def test_what_only_another_fix_makes_possible_is_raced_with_that(variants: int) -> None:
    """A policy is captured where gradients are off, which by itself gains nothing."""
    result, _ = settled(gains(1.5, 1.4, 1.0), needed=frozenset([C]), variants=variants)
    assert {*kept(result)} == {A, B, C}
    assert ratio_of(result) == pytest.approx(2.1, rel=0.05)


def test_what_makes_the_program_slower_is_left_out_of_the_patch() -> None:
    result, _ = settled(gains(1.5, 0.8))
    assert kept(result) == [A]
    assert ratio_of(result) == pytest.approx(1.5, rel=0.03)


def test_a_patch_that_gains_nothing_is_raced_and_nothing_of_it_kept() -> None:
    result, races = settled(gains())
    assert kept(result) == []
    assert races[-1] == [PATCHED]
    assert [each.name for each in result.patch] == [A, B, C]


def test_the_only_fix_of_a_patch_is_raced_but_once() -> None:
    result, races = settled(gains(1.5), FIXES[:1])
    assert races == [[PATCHED]]
    (only_one,) = result.fixes
    assert only_one.kept
    assert only_one.alone is not None
    assert only_one.reason.count("x (") == 1


def test_the_candidates_of_a_finding_race_and_the_fastest_is_kept() -> None:
    result, _ = settled(gains(1.3, 1.6, 1.2), rivals=frozenset([A, B]))
    assert kept(result) == [B, C]
    assert reasons(result)[A] == f"another candidate is faster: {FIXES[1].title}"


def test_where_time_is_short_the_best_and_the_whole_patch_are_raced_and_it_is_said() -> None:
    """There is time for the race of each fix, and for the last one."""
    result, races = settled(gains(1.5, 1.0, 1.2), variants=9)
    assert races == [[only(A), only(B), only(C)], [PATCHED, "all fixes"]]
    assert kept(result) == [A, B, C]
    assert [each.is_joint for each in result.fixes] == [False, True, True]
    result, _ = settled(gains(1.5, 1.0, 0.5), variants=9)
    assert reasons(result)[C] == "there was no time to race it on top of the fastest"


def test_where_there_is_hardly_time_the_whole_patch_is_raced_alone() -> None:
    result, races = settled(gains(1.5, 1.0, 1.2), variants=8)
    assert races == [[PATCHED]]
    assert kept(result) == [A, B, C]
    assert all("there was no time to race each" in each.reason for each in result.fixes)


@pytest.mark.parametrize("crashes", [[frozenset([B])], [frozenset([B]), frozenset([A, B]), frozenset([A, B, C])]])
def test_a_fix_that_fails_in_a_race_is_dropped_and_the_others_race_on(crashes: list[frozenset[str]]) -> None:
    result, _ = settled(gains(1.5, 2.0, 1.2), crashes=crashes)
    assert kept(result) == [A, C]
    assert reasons(result)[B] == f"with the fix the program {HUNG}"
    assert next(each for each in result.fixes if each.name == B).likeness.grade is Grade.DIFFERENT
    assert not result.fault


def test_on_top_of_what_only_seemed_to_gain_at_first_the_others_are_raced_as_well() -> None:
    """Both graphs of a step gain, one of them only beside the other."""

    def speed(names: frozenset[str]) -> float:
        return 1.12 * (1.5 if B in names else 1.0) if A in names else 1.0

    result, races = settled(speed, size=(5, 5), crowded=3)
    assert races[1] == [more("what seems to gain most")]
    assert kept(result) == [A, B]
    result, races = settled(speed, crowded=3, variants=5 + 4 + 4)
    assert races[1] == [more("what seems to gain most"), more("the others together")]
    assert {A, B} <= {*kept(result)}


def test_a_fix_that_fails_beside_another_is_dropped() -> None:
    result, _ = settled(gains(1.5, 1.4, 1.2), crashes=[frozenset([A, B])])
    assert kept(result) == [A, C]
    assert reasons(result)[B] == f"with the fix the program {HUNG}"


def test_a_patch_that_fails_at_last_is_kept_in_no_part() -> None:
    result, _ = settled(gains(1.5, 1.2, 1.0), crashes=[frozenset([A, B])])
    assert kept(result) == [A]
    result, _ = settled(gains(), crashes=[frozenset([A, B, C])])
    assert kept(result) == []
    assert result.fault == f"with these fixes the program {HUNG}"
    result, _ = settled(gains(), FIXES[:1], crashes=[frozenset([A])])
    assert result.fault == f"with the fix the program {HUNG}"


@pytest.mark.parametrize("noise", [CALM, ROUGH], ids=["calm", "rough"])
def test_of_eight_fixes_that_gain_nothing_none_is_kept(noise: Noise) -> None:
    """Each of them, and each race, has a chance to be lucky: what is chosen has to win once more."""
    idle = [fix(number) for number in range(8)]
    counts = Counter(
        len(kept(settled(lambda _: 1.0, idle, noise=noise, seed=seed, size=(3, 3))[0])) for seed in range(100)
    )
    assert counts[0] >= 99


def test_a_class_is_not_timed_by_what_promises_less_once_it_is_recorded() -> None:
    promised = (Safety.EXACT, Safety.ROUNDING, Safety.PRECISION)
    patch = [replace(each, safety=safety) for each, safety in zip(FIXES, promised, strict=True)]
    speeds = {PATCHED: 3.0, within("exact"): 1.2, within("rounding"): 2.0}
    held = Race(race(np.random.default_rng(0), CALM, rounds=3, pairs=3, speedups=speeds))
    settled = Settled(patch, patch, held)
    weaker = [replace(each, safety=safety) for each, safety in zip(patch, promised[:1] + 2 * promised[2:], strict=True)]
    for seen, lost in ((patch, set()), (weaker, {within("rounding")})):
        found = settled.seen(seen)
        assert found and raced(held) - raced(found.race) == lost


def raced(race: Race) -> set[str]:
    return {each.variant for each in race.samples.windows}
