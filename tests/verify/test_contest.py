"""Races of a whole patch and of its parts decide which fixes are kept, also those that only gain together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from perflint.shim.plan import Plan
from perflint.verify.contest import Contest
from perflint.verify.grade import Grade
from perflint.verify.protocol import Protocol
from perflint.verify.race import Race
from perflint.verify.rounds import Start
from perflint.verify.samples import ORIGINAL, ORIGINALS, PATCHED
from perflint.verify.spec import Variant
from perflint.verify.statistics import against_original
from perflint.verify.verdict import FixVerdict
from tests.verify.races import CALM, race
from tests.verify.verdicts import fix

FIXES = [fix(0), fix(1), fix(2)]
NAMES = [each.name for each in FIXES]
Speed = Callable[[frozenset[str]], float]


class Simulated:
    """A course on which a variant is as fast as `speed` says of the names of its fixes."""

    def __init__(self, speed: Speed) -> None:
        self._speed = speed
        self.races: list[list[str]] = []

    def race(self, variants: Sequence[Variant], protocol: Protocol, enough: object, apart: str) -> Race:
        self.races.append([each.name for each in variants])
        speedups = {each.name: self._speed(frozenset(each.plan.files)) for each in variants}
        others = {name: speedup for name, speedup in speedups.items() if name not in ORIGINALS}
        rng = np.random.default_rng(len(self.races))
        samples = race(rng, CALM, rounds=protocol.rounds, pairs=protocol.pairs, speedups=others)
        return Race(samples, tuple(Start(name, 1.0, 0, 0) for name in speedups))


def settled(speed: Speed) -> tuple[dict[str, FixVerdict], Race, Simulated]:
    def patched(fixes: Iterable[FixVerdict], name: str) -> Variant:
        files = {each.name: None for each in fixes}
        return Variant(name, Plan("", cast(Any, files), (), (), {}, False, False, ""))

    course = Simulated(speed)
    protocol = Protocol("steps", 4, 10, 5, 5, 20, 60.0)
    contest = Contest(
        cast(Any, course),
        patched([], ORIGINAL),
        patched,
        lambda variants, seconds: protocol,
        Grade.BITWISE,
        time.monotonic() + 60,
        lambda line: None,
        lambda: None,
    )
    fixes, result = contest.settle(FIXES, FIXES)
    return {each.name: each for each in fixes}, result, course


def ratio_of(result: Race) -> float:
    estimate = against_original(result.samples, PATCHED)
    assert estimate is not None
    return estimate.ratio


def test_fixes_that_gain_something_only_together_are_kept_together() -> None:
    fixes, result, course = settled(lambda names: 1.3 if len(names) == 3 else 1.0)
    assert all(each.kept for each in fixes.values())
    assert "together" in fixes[NAMES[0]].reason or "on top of the others" in fixes[NAMES[0]].reason
    assert ratio_of(result) == pytest.approx(1.3, rel=0.03)
    assert len(course.races) == 1


def test_two_of_three_that_gain_only_together_are_kept_for_it() -> None:
    """Each alone gains nothing, and the patch without one of them is as fast: they are two ways of one thing."""
    fixes, result, _ = settled(lambda names: 1.3 if len(names) >= 2 else 1.0)
    assert all(each.kept and each.is_joint for each in fixes.values())
    assert "1.3" in fixes[NAMES[0]].reason
    assert ratio_of(result) == pytest.approx(1.3, rel=0.03)


def test_what_gains_nothing_beside_a_fix_that_does_is_dropped() -> None:
    fixes, result, course = settled(lambda names: 1.5 if NAMES[1] in names else 1.0)
    assert [each.kept for each in fixes.values()] == [False, True, False]
    assert ratio_of(result) == pytest.approx(1.5, rel=0.03)
    assert {start.variant for start in result.starts} == {*ORIGINALS, PATCHED}
    assert len(course.races) == 2


def test_what_gains_together_on_top_of_a_fix_that_gains_alone_is_kept_as_well() -> None:
    def speed(names: frozenset[str]) -> float:
        return math.prod([1.5 if NAMES[0] in names else 1.0, 1.2 if {*NAMES[1:]} & names else 1.0])

    def both(names: frozenset[str]) -> float:
        return speed(names) if len(names) != 1 or NAMES[0] in names else 1.0

    fixes, result, _ = settled(both)
    assert all(each.kept for each in fixes.values())
    assert [each.is_joint for each in fixes.values()] == [False, True, True]
    assert ratio_of(result) == pytest.approx(1.8, rel=0.05)


def test_what_makes_the_patch_slower_is_left_out_of_it() -> None:
    def speed(names: frozenset[str]) -> float:
        return math.prod([1.5 if NAMES[0] in names else 1.0, 0.8 if NAMES[1] in names else 1.0])

    fixes, result, _ = settled(speed)
    assert [each.kept for each in fixes.values()] == [True, False, False]
    assert "the patch is faster without it" in fixes[NAMES[1]].reason
    assert ratio_of(result) == pytest.approx(1.5, rel=0.03)
