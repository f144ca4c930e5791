"""The statistics of a race, on races whose truth is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from perflint.verify.statistics import (
    AGAIN,
    ORIGINAL,
    ORIGINALS,
    PATCHED,
    Estimate,
    Outcome,
    Samples,
    Window,
    against_original,
    is_decided,
    is_faster,
    is_slower,
    itself,
    noise_floor,
    speed,
    speedup,
    step_seconds,
)
from tests.verify.races import CALM, NOISES, NOISY_PATCH, ROUGH, STEP, Noise, race

RACES = 100
WILD = Noise(window=0.1, process=0.3)


def _speed(samples: Samples) -> Outcome:
    estimate, aa = against_original(samples, PATCHED), itself(samples)
    assert estimate is not None
    assert aa is not None
    return speed(estimate, noise_floor(aa))


def _speeds(noise: Noise, rounds: int, pairs: int, speedup: float, races: int = RACES) -> Counter[Outcome]:
    """What so many races say."""
    rng = np.random.default_rng(0)
    return Counter(
        _speed(race(rng, noise, rounds=rounds, pairs=pairs, speedups={PATCHED: speedup})) for _ in range(races)
    )


@pytest.mark.parametrize("rounds", [3, 6])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_identical_programs_are_called_faster_in_at_most_one_race_of_a_hundred(noise: Noise, rounds: int) -> None:
    speeds = _speeds(noise, rounds, 10, 1.0, races=1000)
    assert speeds[Outcome.FASTER] <= 10
    assert speeds[Outcome.SLOWER] <= 10


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_ending_races_as_soon_as_they_are_clear_calls_hardly_any_of_them_faster(noise: Noise) -> None:
    rng = np.random.default_rng(0)
    ends = Counter(_first_decision(race(rng, noise, rounds=8, pairs=5)) for _ in range(300))
    assert ends[Outcome.FASTER] <= 1
    assert ends[Outcome.SLOWER] <= 1


def _first_decision(samples: Samples) -> Outcome | None:
    for rounds in range(1, 9):
        seen = Samples(tuple(window for window in samples.windows if window.round < rounds))
        estimate, aa = against_original(seen, PATCHED), itself(seen)
        assert estimate is not None
        assert aa is not None
        if is_decided(estimate, noise_floor(aa)):
            return speed(estimate, noise_floor(aa))
    return None


@pytest.mark.parametrize(("noise", "rounds", "pairs"), [(CALM, 4, 5), (ROUGH, 8, 10)], ids=["calm", "rough"])
def test_five_percent_of_a_short_step_are_found_either_way(noise: Noise, rounds: int, pairs: int) -> None:
    assert _speeds(noise, rounds, pairs, 1.05)[Outcome.FASTER] >= 95
    assert _speeds(noise, rounds, pairs, 1 / 1.05)[Outcome.SLOWER] >= 95


def test_races_too_short_for_five_percent_say_that_they_cannot_tell() -> None:
    speeds = _speeds(ROUGH, 3, 3, 1.05)
    assert speeds[Outcome.UNSURE] >= 50
    assert speeds[Outcome.LEVEL] + speeds[Outcome.SLOWER] <= 5


def test_a_program_with_nothing_to_gain_is_told_from_one_that_nobody_knows_about() -> None:
    assert speed(Estimate(1.0, 0.98, 1.04, 100, 5), 0) is Outcome.LEVEL
    assert speed(Estimate(1.0, 0.9, 1.06, 100, 5), 0) is Outcome.UNSURE


def test_noise_that_could_hide_a_gain_leaves_nothing_ruled_out() -> None:
    found = Estimate(0.9, 0.8, 1.02, 100, 5)
    assert speed(found, 0.02) is Outcome.LEVEL
    assert speed(found, 0.04) is Outcome.UNSURE
    assert speed(found, 2.15) is Outcome.UNSURE


@pytest.mark.parametrize("noise", [ROUGH, NOISY_PATCH], ids=["rough", "noisy patch"])
@pytest.mark.parametrize("rounds", [3, 8])
def test_the_interval_covers_the_truth_as_often_as_it_says_with_few_rounds_too(rounds: int, noise: Noise) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        estimate = against_original(race(rng, noise, rounds=rounds, pairs=5, speedups={PATCHED: 1.3}), PATCHED)
        assert estimate is not None
        covered += estimate.low <= 1.3 <= estimate.high
    assert 0.93 <= covered / 400 <= 0.995


def test_rounds_that_are_alike_by_chance_are_not_believed_where_the_original_differs_from_itself() -> None:
    assert _speed(_rounds(again=[1.0, 1.0, 1.0])) is Outcome.FASTER
    assert _speed(_rounds(again=[1.3, 1.0, 0.77])) is Outcome.UNSURE


def _rounds(again: Sequence[float]) -> Samples:
    """A race in which the patch takes 0.87 of what the originals take in every round, however these differ."""
    return Samples(
        tuple(
            Window(name, round_, 0, seconds, 1)
            for round_, factor in enumerate(again)
            for name, seconds in ((ORIGINAL, 1.0), (AGAIN, factor), (PATCHED, 0.87 * factor**0.5))
        )
    )


@pytest.mark.parametrize(("rounds", "unsure", "clear"), [(1, 2.0, 4.0), (2, 1.3, 2.0)])
def test_few_rounds_decide_only_what_no_two_processes_differ_by(rounds: int, unsure: float, clear: float) -> None:
    for gain, outcomes in ((unsure, (Outcome.UNSURE,) * 2), (clear, (Outcome.FASTER, Outcome.SLOWER))):
        rng = np.random.default_rng(0)
        races = [race(rng, CALM, rounds=rounds, pairs=50, speedups={PATCHED: each}) for each in (gain, 1 / gain)]
        assert tuple(map(_speed, races)) == outcomes
    samples = race(np.random.default_rng(0), CALM, rounds=1, pairs=1, speedups={PATCHED: 10})
    estimate = against_original(samples, PATCHED)
    assert estimate and (estimate.low, estimate.high) == (0, math.inf)


@pytest.mark.parametrize("noise", [*NOISES.values(), WILD], ids=[*NOISES, "wild"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_call_identical_programs_faster_in_at_most_one_race_of_a_hundred(rounds: int, noise: Noise) -> None:
    speeds = _speeds(noise, rounds, 3, 1.0, races=500)
    assert speeds[Outcome.FASTER] <= 5 and speeds[Outcome.SLOWER] <= 5


def test_a_gain_below_two_percent_is_none_however_sure() -> None:
    assert not is_faster(Estimate(1.015, 1.014, 1.016, 1000, 20), 0)
    assert is_faster(Estimate(1.03, 1.021, 1.04, 1000, 20), 0)


def test_a_gain_has_to_exceed_what_the_same_program_gains_over_itself() -> None:
    estimate = Estimate(1.1, 1.05, 1.15, 100, 5)
    assert is_faster(estimate, noise_floor(Estimate(1.04, 0.9, 1.2, 100, 5)))
    assert not is_faster(estimate, noise_floor(Estimate(1.06, 0.9, 1.2, 100, 5)))
    assert not is_faster(estimate, noise_floor(Estimate(1 / 1.06, 0.9, 1.2, 100, 5)))


def test_a_loss_is_judged_as_a_gain_turned_round() -> None:
    assert is_slower(Estimate(1 / 1.1, 1 / 1.15, 1 / 1.05, 100, 5), 0.04)
    assert not is_slower(Estimate(1 / 1.1, 1 / 1.15, 1 / 1.05, 100, 5), 0.06)


def test_only_windows_of_the_same_steps_are_compared() -> None:
    samples = Samples(
        (
            *(Window(name, 0, 0, 4.0, 2) for name in ORIGINALS),
            Window(PATCHED, 0, 0, 1.0, 1),
            Window(PATCHED, 0, 1, 100.0, 2),
            *(Window(name, 1, 7, 4.0, 2) for name in ORIGINALS),
            Window(PATCHED, 1, 7, 1.0, 2),
            Window(ORIGINAL, 2, 0, 100.0, 2),
            Window(PATCHED, 2, 0, 1.0, 2),
        )
    )
    estimate = against_original(samples, PATCHED)
    assert estimate is not None
    assert estimate.ratio == pytest.approx(math.sqrt(2 * 4))
    assert (estimate.pairs, estimate.rounds) == (2, 2)


def test_a_race_ends_early_for_what_is_clear_only() -> None:
    assert is_decided(Estimate(1.3, 1.2, 1.4, 30, 3), 0.01)
    assert is_decided(Estimate(0.7, 0.6, 0.8, 30, 3), 0.01)
    assert not is_decided(Estimate(1.3, 1.2, 1.4, 30, 3), 0.25)
    assert not is_decided(Estimate(1.06, 1.04, 1.08, 30, 3), 0.01)
    assert not is_decided(Estimate(1.0, 0.99, 1.01, 30, 3), 0.01)


def test_variants_that_never_meet_have_no_ratio() -> None:
    samples = Samples((Window(ORIGINAL, 0, 0, 1.0, 1), Window(PATCHED, 1, 0, 1.0, 1)))
    assert speedup(samples, [ORIGINAL], [PATCHED]) is None
    assert itself(Samples()) is None


def test_exchanging_the_sides_inverts_the_ratio_and_its_interval() -> None:
    samples = race(np.random.default_rng(3), ROUGH, rounds=4, pairs=6, speedups={PATCHED: 1.4})
    there, back = speedup(samples, [ORIGINAL], [PATCHED]), speedup(samples, [PATCHED], [ORIGINAL])
    assert there is not None
    assert back is not None
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.low == pytest.approx(1 / there.high)
    assert back.high == pytest.approx(1 / there.low)


def test_a_stall_in_some_windows_does_not_move_the_ratio() -> None:
    stalls = replace(CALM, stalls=0.2)
    estimate = against_original(
        race(np.random.default_rng(1), stalls, rounds=6, pairs=20, speedups={PATCHED: 1.5}), PATCHED
    )
    assert estimate is not None
    assert estimate.ratio == pytest.approx(1.5, rel=0.02)


def test_the_time_of_a_step_is_the_median_of_its_windows() -> None:
    samples = race(np.random.default_rng(0), CALM, rounds=3, pairs=9)
    assert step_seconds(samples, [ORIGINAL, AGAIN]) == pytest.approx(STEP, rel=0.05)
    assert step_seconds(samples, ["another"]) is None
