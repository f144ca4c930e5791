"""A verdict comes within its budget: what the time is up for says what it knows by then."""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perflint.verify import protocol, runs
from perflint.verify.compare import compare
from perflint.verify.examine import unfound
from perflint.verify.judge import Standard, likeness
from perflint.verify.messages import CALLS, OPTIMIZER, Arrival, Platform, Variant
from perflint.verify.protocol import Budget, Ledger, Look, Passage, Protocol, Schedule, TimeUp, deadline
from perflint.verify.race import race
from perflint.verify.running import NoProgress, Running
from perflint.verify.runs import Course
from perflint.verify.statistics import ORIGINALS
from perflint.verify.summary import advice, sentence
from perflint.verify.verdict import NO_TIME, Grade
from tests.verify.courses import PROGRAMS, bench, original, verify

PROTOCOL = Protocol("steps", warm_up=4, window=2, pairs=5, rounds=8)


@dataclass
class Hand:
    """A clock that is moved by hand."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


class Slow:
    """A process that takes `start` seconds to its first step, and `step` for each, by the clock of its `course`."""

    def __init__(self, course: Slowly, name: str) -> None:
        self._course, self._name, self._step, self.folder, self.platforms = course, name, 0, "none", ()
        self.output = SimpleNamespace(so_far=lambda: "")

    def __enter__(self) -> Slow:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left of it."""

    def advance(self, until: int, patience: float, *, observed: bool = False) -> Arrival:
        course, hand = self._course, self._course.hand
        needed = (0 if self._step else course.start) + (until - self._step) * course.step
        if needed > min(patience, course.budget.left):
            hand.now += min(patience, course.budget.left)
            raise TimeUp if not course.budget.left else NoProgress(self._name, "hangs")
        hand.now += needed
        self._step = until
        return Arrival(until, course.kind, needed, 0, 0, 0, Platform(0, 1, "CPU", {}))

    def pause(self) -> None:
        """It stands still anyway."""


@dataclass(frozen=True)
class Slowly(Course):
    """A course whose processes take time by a clock that is moved by hand."""

    hand: Hand = field(default_factory=Hand)
    start: float = 1.0
    step: float = 0.1
    kind: str = OPTIMIZER

    def running(self, variant: Variant, unit: str, **orders: Any) -> Running:
        return cast(Running, Slow(self, variant.name))


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    """The hand of the clock by which budgets and looks are timed."""
    made = Hand()
    for module in (protocol, runs):
        monkeypatch.setattr(module, "time", made)
    return made


def slowly(folder: Path, hand: Hand, seconds: float, **how: Any) -> Slowly:
    guardian = cast(Any, SimpleNamespace(journal=folder / "journal"))
    program = cast(Any, SimpleNamespace(kind=None))
    return Slowly(program, guardian, budget=Budget(seconds), hand=hand, **how)


def test_a_part_of_a_budget_ends_with_the_whole(hand: Hand) -> None:
    whole = Budget(10.0)
    part = whole.part(4.0)
    hand.now = 7.0
    assert (whole.left, part.left, whole.part(5.0).left) == (3.0, 0.0, 3.0)
    assert Budget(math.inf).part(2.0).left == 2.0


def test_what_takes_longer_than_its_budget_is_stopped_whatever_it_handles() -> None:
    def work() -> None:
        while True:
            with suppress(Exception):
                time.monotonic()

    with pytest.raises(TimeUp), deadline(Budget(0.01)):
        work()
    with deadline(Budget(60.0)):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_where_fixes_are_not_found_in_time_the_first_line_says_to_take_longer() -> None:
    found = unfound("train.py", Budget(50.0))
    assert advice(found) == "Verify again with --budget 2m, or less data."
    assert sentence(found).startswith("No verdict: looking for fixes in all that it imports takes more than 30 s; ")


def test_where_the_time_goes_is_known_by_parts(hand: Hand) -> None:
    ledger = Ledger()
    for part, seconds in (("look", 2.0), ("race", 5.0), ("look", 1.0)):
        ledger.enter(part)
        hand.now += seconds
        ledger.started(0.5)
    assert [(each.part, each.seconds, each.starts) for each in ledger.spent] == [("look", 3.0, 2), ("race", 5.0, 1)]
    assert [each.starting for each in ledger.spent] == [1.0, 0.5]


def test_starts_beside_each_other_take_no_longer_than_their_part(hand: Hand) -> None:
    ledger = Ledger()
    ledger.enter("race")
    for seconds in (4.0, 4.5, 5.0):
        hand.now += 5.0 if seconds == 4.0 else 0.5
        ledger.started(seconds)
    hand.now += 1.0
    assert [(each.seconds, each.starts, each.starting) for each in ledger.spent] == [(7.0, 3, 5.0)]


@pytest.mark.parametrize(
    ("start", "step", "rounds"),
    [(1.0, 0.1, 3), (10.0, 0.1, 1), (10.0, 2.0, 0), (39.0, 0.1, 0)],
    ids=["in time", "starts slowly", "steps slowly", "prepares for too long"],
)
def test_a_race_ends_with_the_budget_and_gives_the_rounds_that_it_has(
    tmp_path: Path, hand: Hand, start: float, step: float, rounds: int
) -> None:
    course, first = slowly(tmp_path, hand, 40.0, start=start, step=step), original(tmp_path)
    found = race(course, [replace(first, name=name) for name in (*ORIGINALS, "fine")], PROTOCOL, lambda _: True)
    assert hand.now <= 40.0
    assert {each.round for each in found.samples.windows} == {*range(rounds)}
    assert not found.faults


def test_of_a_round_that_is_cut_the_whole_pairs_count_but_not_what_was_printed(tmp_path: Path, hand: Hand) -> None:
    course, first = slowly(tmp_path, hand, 36.0, start=10.0), original(tmp_path)
    found = race(course, [replace(first, name=name) for name in ORIGINALS], PROTOCOL, lambda _: False)
    assert {each.round for each in found.samples.windows} == {0}
    assert len(found.printed) == 1
    cut = slowly(tmp_path, Hand(), 21.5, start=10.0)
    hand.now = 0.0
    cut = replace(cut, hand=hand, budget=Budget(21.5))
    found = race(cut, [replace(first, name=name) for name in ORIGINALS], PROTOCOL, lambda _: False)
    assert {each.number for each in found.samples.windows} == {0}
    assert not found.printed


def test_a_race_takes_no_more_than_its_own_part(tmp_path: Path, hand: Hand) -> None:
    course, first = slowly(tmp_path, hand, 1000.0, start=5.0), original(tmp_path)
    race(course, [replace(first, name=name) for name in ORIGINALS], replace(PROTOCOL, seconds=30.0), lambda _: False)
    assert hand.now == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("step", "kind", "seconds"),
    [(0.1, OPTIMIZER, 2.3), (0.1, CALLS, 12.0), (10.0, CALLS, 22.0), (300.0, CALLS, 12.0)],
    ids=["an optimizer's steps", "calls", "slow calls", "next to none"],
)
def test_a_first_look_is_as_long_as_it_takes_to_know_a_step(
    tmp_path: Path, hand: Hand, step: float, kind: str, seconds: float
) -> None:
    course = slowly(tmp_path, hand, 1000.0, start=4.0, step=step, kind=kind)
    look = course.look(original(tmp_path), 12.0)
    assert hand.now - look.start == pytest.approx(seconds, abs=step if step < 1 else 6.0)
    assert look.usual == pytest.approx(min(step, seconds))


def test_a_program_that_comes_to_no_step_takes_the_budget_and_no_more(tmp_path: Path, hand: Hand) -> None:
    with pytest.raises(TimeUp):
        slowly(tmp_path, hand, 40.0, start=100.0).look(original(tmp_path), 4.0)
    assert hand.now == pytest.approx(40.0)


def test_of_slow_steps_fewer_are_compared() -> None:
    def horizon(step: float, **asked: int) -> int:
        passages = [Passage(OPTIMIZER, step) for _ in range(30)]
        return Schedule(Look(2.0, tuple(passages), is_whole=False), asked).recordings(40.0).horizon

    assert [horizon(step) for step in (0.01, 0.4, 10.0)] == [20, 10, 4]
    assert horizon(10.0, horizon=12) == 12


def test_of_records_that_are_cut_the_steps_that_both_have_are_compared(tmp_path: Path) -> None:
    with bench("train.py", tmp_path, "9", steps=6) as program:
        standard = program.records.standard
        assert standard.again is not None
        whole, again = standard.run, standard.again
        for last, grade in ((4, Grade.BITWISE), (0, Grade.UNKNOWN)):
            cut = replace(again, last=last, is_cut=True, code=None, output="", files={})
            known = Standard(whole, cut)
            assert known.common(again) == last
            found = likeness(known, again, compare(whole.folder, again.folder, last=known.common(again)))
            assert found.grade is grade, found.evidence
            assert ("of 4 steps" if last else NO_TIME) in found.evidence[0]
        begun = replace(compare(whole.folder, again.folder, last=1), values=0)  # the first step did not get far
        assert likeness(known, again, begun).evidence == (NO_TIME,)
        (wrong,) = program.records.add([program._change("lr=0.1", "lr=0.2")])
        cut = replace(wrong, last=3, is_cut=True)
        found = likeness(standard, cut, compare(whole.folder, wrong.folder, last=standard.common(cut)))
        assert found.grade is Grade.DIFFERENT


def test_without_a_step_in_time_the_first_line_says_to_take_longer(tmp_path: Path) -> None:
    (tmp_path / "perflint.toml").touch()
    shutil.copy(PROGRAMS / "waits.py", tmp_path)
    os.mkfifo(tmp_path / "pipe")  # which nobody reads from
    result = verify(tmp_path, "--budget", "3s", "-v", "--select", "repeat-not-broadcast", "waits.py", "pipe")
    assert result.returncode == 2, result.stderr
    first, second, *_ = result.stdout.splitlines()
    assert first == "Verify again with --budget 30s, or less data."
    assert second == "No verdict: the program came to no step within 3 s."
    assert "first look: " in result.stderr
