"""What tuning tries is raced before it is recorded: a candidate that fails or is wrong takes no other one with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest.mock import Mock

import pytest

from perflint.engine.rule import Safety
from perflint.shim.plan import Plan
from perflint.verify.contest import Contest
from perflint.verify.examine import Examination
from perflint.verify.messages import Variant
from perflint.verify.protocol import Budget
from perflint.verify.runs import Recorded
from perflint.verify.settled import Settled
from perflint.verify.statistics import Outcome
from perflint.verify.variants import Effect
from perflint.verify.verdict import FixVerdict, Grade, Likeness, Reach, Verdict, begun
from tests.verify.races import CALM, ROUGH
from tests.verify.test_contest import LONG, Fixed, Simulated, Speed
from tests.verify.verdicts import BITWISE, fix

A, B = "compile-break 1", "compile-break 2"
FIXES = [fix(name=name, at_run_time=True) for name in (A, B)]
RUN = Recorded(Path(), None, "", "", last=20)
WRONG = Likeness(Grade.DIFFERENT, ("the loss differs",))


class Key(NamedTuple):
    """A candidate, and the rule that it is named by."""

    name: str
    rule: str = "compile-break"
    safety: Safety = Safety.EXACT


KEYS = (Key(A), Key(B))


class Tuned(Examination):
    """Two candidates: as fast as `speed` says; those of `crashes` fail, alone or together, others are wrong or idle."""

    noise, rounds, contests = CALM, 5, 0

    def __init__(
        self,
        speed: Speed,
        crashes: Sequence[frozenset[str]],
        wrong: Collection[str],
        idle: Collection[str],
        variants: int,
    ) -> None:
        self._speed, self._crashes, self._wrong, self._idle, self._room = speed, crashes, wrong, idle, variants
        known = SimpleNamespace(
            fixes=KEYS,
            loaded=lambda _: [*KEYS],
            late=lambda _: (),
            holds=lambda *_: True,
            with_fixes=lambda name, _: name,
            effect=lambda key, *_: Effect(True, 0 if key.name in idle else 3),
        )
        super().__init__(*cast(Any, (Mock(), known, Budget(LONG), Path(), lambda _: None, Mock())), by_class=True)
        records = SimpleNamespace(own=BITWISE, standard=SimpleNamespace(run=RUN), one=0.0, add=lambda _: [RUN])
        schedule = SimpleNamespace(is_tight=lambda _: False, recorded=0.0, least=lambda *_: 0.0, proved=LONG)
        vars(self).update(
            _look=SimpleNamespace(ran=()), _records=records, _schedule=schedule, _raced_first=KEYS, _reach=Reach()
        )

    def _unrecorded(self) -> Iterator[FixVerdict]:
        return iter([replace(each, activations=0) for each in FIXES])

    def _contest(self, reserve: float) -> Contest:
        def patched(fixes: Sequence[FixVerdict], name: str) -> Variant:
            files = cast(Any, {each.name: None for each in fixes})
            return Variant(name, Plan("", files, (), (), {}, False, False, ""))

        self.contests += 1
        course = Simulated(self._speed, self.noise, self.contests, self._crashes)
        schedule = cast(Any, Fixed(course, self.rounds, 5, self._room))
        return Contest(course.race, patched, schedule, Budget(LONG), lambda _: None, lambda: None)

    def _recorded(self, variant: Variant) -> Recorded:
        return RUN

    def _patched(self, fixes: Any, name: str = "") -> Any:
        return name

    def _seen(self, everything: Variant, whole: Recorded) -> list[FixVerdict]:
        known = (each for each in FIXES if each.name in self._keys)
        seen = [replace(each, likeness=WRONG if each.name in self._wrong else BITWISE) for each in known]
        return [replace(each, activations=0 if each.name in self._idle else 3) for each in seen]

    def _graded(self, fixes: Sequence[FixVerdict], run: Recorded) -> Likeness:
        return WRONG if any(each.name in self._wrong for each in fixes) else BITWISE

    def _wrong_later(self, settled: Settled) -> dict[str, Likeness]:
        return {}

    def _timed(self, verdict: Verdict, settled: Settled, *_: object) -> Verdict:
        return replace(verdict, samples=settled.race.samples)


def verdict(
    monkeypatch: pytest.MonkeyPatch,
    speed: Speed,
    crashes: Sequence[frozenset[str]] = (),
    wrong: Collection[str] = (),
    idle: Collection[str] = (),
    variants: int = 10**6,
) -> Verdict:
    monkeypatch.setattr("perflint.verify.examine.reach_of", lambda *_: Reach())
    return Tuned(speed, crashes, wrong, idle, variants)._reached(begun("p"))


def test_what_gains_beside_a_wrong_winner_is_raced_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(monkeypatch, lambda names: 3.0 if A in names else 1.5 if B in names else 1.0, wrong=[A])
    assert [each.kept for each in found.fixes] == [False, True]
    assert "the loss differs" in found.fixes[0].reason
    assert found.outcome is Outcome.FASTER
    assert found.speed and found.speed.ratio == pytest.approx(1.5, rel=0.05)


def test_what_never_ran_is_dropped_from_a_patch_that_has_won(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(monkeypatch, lambda names: 1.3 if len(names) == 2 else 1.0, idle=[B])
    assert [each.kept for each in found.fixes] == [True, False]
    assert found.outcome is Outcome.FASTER


def test_what_has_won_is_proved_in_the_time_that_was_kept_for_late_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.verify.examine.reach_of", lambda *_: Reach())
    tuned = Tuned(lambda names: 1.5 if A in names else 1.0, (), (), (), 10**6)
    with_late = tuned._for_proof
    tuned._budget = tuned._whole.part(0.8 * LONG)
    assert tuned._for_proof == pytest.approx(with_late - 0.2 * LONG, rel=1e-3)
    left: list[float] = []

    def recorded(_: Variant) -> Recorded:
        left.append(tuned._budget.left)
        return RUN

    monkeypatch.setattr(tuned, "_recorded", recorded)
    assert tuned._reached(begun("p")).outcome is Outcome.FASTER
    assert left == [pytest.approx(LONG, rel=1e-3)]


@pytest.mark.parametrize("gain", [1.2, 3.0])
def test_what_too_few_rounds_leave_open_or_wide_is_raced_on_until_all_rounds_tell(
    gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perflint.verify.examine.reach_of", lambda *_: Reach())
    tuned = Tuned(lambda names: gain if A in names else 1.0, (), (), (B,), 10**6)
    tuned.rounds = 2
    found = tuned._reached(begun("p"))
    assert [each.kept for each in found.fixes] == [True, False]
    assert found.speed and found.speed.rounds == 4 and found.outcome is Outcome.FASTER


def test_what_gains_nothing_is_not_called_faster_by_a_second_race(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.verify.examine.reach_of", lambda *_: Reach())
    outcomes = []
    for seed in range(100):
        tuned = Tuned(lambda _: 1.0, (), (), (), 10**6)
        tuned.noise, tuned.rounds, tuned.contests = ROUGH, 3, 10 * seed
        outcomes.append(tuned._reached(begun("p")).outcome)
        assert tuned.contests - 10 * seed <= 2
    assert outcomes.count(Outcome.FASTER) <= 1


@pytest.mark.parametrize(
    ("gain", "wrong", "kept"), [(2.0, [], [True, True]), (1.5, [], [True, False]), (2.0, [B], [True, False])]
)
def test_what_seemed_to_gain_more_is_raced_beside_what_is_proved_in_the_time_that_is_left(
    gain: float, wrong: list[str], kept: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perflint.verify.examine.reach_of", lambda *_: Reach())
    tuned = Tuned(lambda names: gain if B in names else 1.5 if A in names else 1.0, (), wrong, (), 10**6)
    settle = tuned._settled
    hopeful = [replace(each, activations=0) for each in FIXES]

    def settled(right: Sequence[FixVerdict], reserve: float) -> Settled:
        first = settle(right[:1], reserve)
        return replace(first, fixes=[*first.fixes, hopeful[1]], hope=hopeful)

    monkeypatch.setattr(tuned, "_settled", settled)
    found = tuned._reached(begun("p"))
    assert [each.kept for each in found.fixes] == kept
    assert found.outcome is Outcome.FASTER
    assert found.speed and found.speed.ratio == pytest.approx(2.0 if all(kept) else 1.5, rel=0.05)


def test_without_time_to_race_each_a_crash_is_told_from_the_others_by_recordings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crashes = [frozenset((A,)), frozenset((A, B))]
    found = verdict(monkeypatch, lambda names: 1.5 if B in names else 1.0, crashes, wrong=[A], variants=6)
    assert [each.kept for each in found.fixes] == [False, True]
    assert found.outcome is Outcome.FASTER


@pytest.mark.parametrize(("grade", "kept"), [(Grade.ALIKE, [A, B]), (Grade.DIFFERENT, [])])
def test_what_rounds_beside_what_lowers_the_precision_promises_no_more_than_all_together_keep(
    grade: Grade, kept: list[str]
) -> None:
    tuned = Tuned(lambda _: 1.0, (), (), (), 10**6)
    vars(tuned).update(
        _records=SimpleNamespace(own=BITWISE, seconds=lambda _: LONG),
        _comparing=Budget(1.0),
        _graded=lambda *_: Likeness(grade, ("over 6 seeds the loss is the same",)),
    )
    promised = [
        replace(each, safety=safety) for each, safety in zip(FIXES, (Safety.ROUNDING, Safety.PRECISION), strict=True)
    ]
    found = tuned._by_promise(promised, RUN)
    assert sorted(found) == kept
    assert all(each.safety is Safety.PRECISION and each.likeness.grade is grade for each in found.values())
