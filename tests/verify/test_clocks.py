"""Clocks that are upset tell other times than in other runs, and never run away."""

from __future__ import annotations

import itertools
import time

import pytest

from perflint.verify.agent import determinism

TIMES = 10
NAMES = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
SECONDS = [each / 64 for each in range(64 * 20)]


class Hand:
    """A clock that is moved by hand, as the seconds since it began."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return 1000.0 + self.seconds

    def nanoseconds(self) -> int:
        return int(self() * 1e9)


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    """The hand of all clocks, which are upset."""
    made = Hand()
    for name in NAMES:
        monkeypatch.setattr(time, name, made)
        monkeypatch.setattr(time, f"{name}_ns", made.nanoseconds)
    determinism.distort_clocks(TIMES)
    return made


def told(hand: Hand, seconds: float, name: str = "time") -> float:
    hand.seconds = seconds
    return float(getattr(time, name)() - 1000.0)


@pytest.mark.parametrize("name", NAMES)
def test_all_clocks_are_upset_alike(hand: Hand, name: str) -> None:
    for seconds in (0.0, 0.04, 3.0, 60.0):
        assert told(hand, seconds, name) == pytest.approx(told(hand, seconds))
        whole = getattr(time, f"{name}_ns")()
        assert type(whole) is int
        assert whole == pytest.approx(getattr(time, name)() * 1e9)


def test_short_times_are_longer_and_long_ones_shorter(hand: Hand) -> None:
    assert told(hand, 0.04) == pytest.approx(0.4)
    for seconds in (5.0, 60.0, 3600.0):
        assert told(hand, seconds) == pytest.approx(seconds / 2, rel=0.05)


def test_no_limit_is_reached_sooner_by_more_than_a_second(hand: Hand) -> None:
    assert all(told(hand, each) - each < 1.0 for each in SECONDS)


def test_time_goes_on_and_never_back(hand: Hand) -> None:
    assert all(told(hand, later) > told(hand, each) for each, later in itertools.pairwise(SECONDS))


def test_a_clock_of_a_process_that_was_forked_may_begin_anew(hand: Hand) -> None:
    assert told(hand, -3.0) < told(hand, -2.9) < told(hand, 0.0)


def test_a_clock_that_a_class_holds_is_not_taken_for_a_method(hand: Hand) -> None:
    class Timer:
        now = time.perf_counter

    assert Timer().now() == 1000.0  # type: ignore[misc]
