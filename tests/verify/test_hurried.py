"""Where there is no time for both, what was seen to run is raced before it is recorded, unless it gains nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest

from perflint.engine.rule import Safety
from perflint.verify import examine
from perflint.verify.examine import Examination
from perflint.verify.messages import OPTIMIZER, Platform, Variant
from perflint.verify.protocol import Budget, Look, Passage, Schedule, TimeUp
from perflint.verify.race import Race
from perflint.verify.runs import Recorded
from perflint.verify.statistics import PATCHED, Outcome
from perflint.verify.summary import advice, sentence
from perflint.verify.verdict import Grade, Likeness, Reach, Side, Verdict
from tests.verify.races import CALM, race
from tests.verify.verdicts import BITWISE, fix

RUN = Recorded(Path(), None, "", "", last=6)
STEPS = tuple(Passage(OPTIMIZER, 0.5) for _ in range(30))
LOOK = Look(1.0, STEPS, is_whole=False, platforms=(Platform(0, 1, "CPU", {}),))


class Variants:
    """Two fixes that were loaded, of which the second ran late; a run shows that the first took effect."""

    fixes = loaded_ = tuple(SimpleNamespace(rule=rule, safety=Safety.EXACT) for rule in ("early", "late"))
    times = 3

    def loaded(self, _: object) -> Any:
        return self.loaded_

    def late(self, _: object) -> Any:
        return self.loaded_[1:]

    def with_fixes(self, name: str, _: object) -> Variant:
        return Variant(name, cast(Any, SimpleNamespace(files={})))

    def holds(self, *_: object) -> bool:
        return True

    def verdict(self, name: str, key: Any, times: int, reason: str) -> Any:
        return fix(name=name, rule=key.rule, likeness=Likeness(Grade.UNKNOWN), activations=times, reason=reason)

    def effect(self, *_: object) -> Any:
        return SimpleNamespace(is_reached=True, times=self.times, obstacle="")


class Records:
    """Records that show results of one grade, or that there is no time for."""

    def __init__(self, grade: Grade | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.standard, self.own, self.one = SimpleNamespace(run=RUN), BITWISE, 99.0
        self._grade = grade
        monkeypatch.setattr(examine, "reach_of", lambda *_: Reach())

    def add(self, _: object) -> list[Recorded]:
        if self._grade is None:
            raise TimeUp
        return [RUN]

    def graded(self, *_: object) -> Likeness:
        assert self._grade is not None
        return replace(BITWISE, grade=self._grade)


def verdict(
    monkeypatch: pytest.MonkeyPatch, speedup: float, grade: Grade | None, times: int = 3, **how: Any
) -> Verdict:
    """The verdict after a race in which the patch is so many times as fast, and what was recorded then."""
    samples = race(np.random.default_rng(0), CALM, rounds=4, pairs=4, speedups={PATCHED: speedup})
    monkeypatch.setattr(examine, "race", lambda *_: Race(samples))
    monkeypatch.setattr(examine, "side_of", lambda *_: Side())
    monitor = Mock(readings=lambda *_: (), strangers=lambda *_: (), load=0.0)
    variants = Variants()
    vars(variants).update(times=times, **how)
    examination = Examination(*cast(Any, (Mock(), variants, Budget(40.0), Path(), lambda _: None, monitor)))
    vars(examination).update(_look=LOOK, _schedule=Schedule(LOOK), _records=Records(grade, monkeypatch))
    return examination.verdict()


@pytest.mark.parametrize(
    ("speedup", "grade", "times", "outcome", "words"),
    [
        (1.0, None, 3, Outcome.LEVEL, "Nothing to gain: the patched program was raced first, and not compared, and is"),
        (0.7, None, 3, Outcome.SLOWER, "Rejected: the patched program was raced first, and not compared, but is only"),
        (1.4, Grade.BITWISE, 3, Outcome.FASTER, "Faster: the patched program gives bitwise the same results"),
        (1.4, Grade.DIFFERENT, 3, Outcome.DIFFERENT, "Rejected: the patch changes the results"),
        (1.4, None, 3, Outcome.UNCHECKED, "Can't tell: the patched program is 1."),
        (1.4, Grade.BITWISE, 0, Outcome.UNCHECKED, "Can't tell: the patched program is 1."),
    ],
    ids=["no gain", "slower", "faster", "wrong", "no time to record", "recorded where it did not run"],
)
def test_what_may_gain_is_compared_after_its_race(
    monkeypatch: pytest.MonkeyPatch, speedup: float, grade: Grade | None, times: int, outcome: Outcome, words: str
) -> None:
    found = verdict(monkeypatch, speedup, grade, times)
    assert (found.outcome, sentence(found)[: len(words)]) == (outcome, words)
    assert [each.kept for each in found.fixes] == [outcome is Outcome.FASTER, False]
    assert found.fixes[1].reason.startswith("it did not run in a first look: --budget ")
    assert ("--budget" in advice(found)) == (outcome is Outcome.UNCHECKED)


def test_where_no_file_with_fixes_is_loaded_nothing_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(monkeypatch, 1.0, None, loaded_=())
    assert (found.outcome, advice(found)) == (Outcome.UNFIXED, "Keep the program as it is.")
    assert sentence(found) == "Nothing to fix: the program comes to nothing that perflint has fixes for."
