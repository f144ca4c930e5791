"""Programs that draw other random numbers are told from programs that compute something else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perflint.verify.alike import LEAST_SEEDS, MOST_SEEDS, Traits, alike
from perflint.verify.grade import Grade

TRIALS = 300


def runs(rng: np.random.Generator, seeds: int, *, shift: float = 0.0, wider: float = 1.0) -> list[list[Traits]]:
    """Losses of two programs with the same seeds: of the seed, and of the dice of each."""
    level = rng.normal(2.0, 0.2, seeds)
    before, after = level + rng.normal(0, 0.02, seeds), level + rng.normal(shift, 0.02 * wider, seeds)
    return [[{"the loss": float(value)} for value in values] for values in (before, after)]


def share(grade: Grade, seeds: int, **change: float) -> float:
    rng = np.random.default_rng(0)
    grades = [alike(*runs(rng, seeds, **change)).grade for _ in range(TRIALS)]
    return grades.count(grade) / TRIALS


@pytest.mark.parametrize("seeds", [LEAST_SEEDS, MOST_SEEDS])
def test_other_random_numbers_are_alike(seeds: int) -> None:
    assert share(Grade.DIFFERENT, seeds) <= 0.02
    assert share(Grade.ALIKE, seeds) >= 0.98


def test_a_shift_of_half_of_what_seeds_make_is_found() -> None:
    assert share(Grade.DIFFERENT, LEAST_SEEDS, shift=0.1) >= 0.7
    assert share(Grade.DIFFERENT, MOST_SEEDS, shift=0.1) >= 0.99


def test_a_wider_spread_is_found() -> None:
    assert share(Grade.DIFFERENT, MOST_SEEDS, wider=150.0) >= 0.8


def test_programs_that_share_nothing_but_their_level_need_more_seeds() -> None:
    rng = np.random.default_rng(0)
    for seeds, least in ((LEAST_SEEDS, 0.0), (MOST_SEEDS, 0.8)):
        apart = [
            alike(*([{"the loss": float(each)} for each in rng.normal(2, 0.2, seeds)] for _ in range(2))).grade
            for _ in range(TRIALS)
        ]
        assert apart.count(Grade.ALIKE) >= least * TRIALS
        assert apart.count(Grade.DIFFERENT) <= 0.02 * TRIALS


def test_what_cannot_be_told_is_not_said() -> None:
    few = [[{"the loss": 1.0}] * (LEAST_SEEDS - 1)] * 2
    assert alike(*few).grade is Grade.UNKNOWN
    assert alike([{}] * LEAST_SEEDS, [{}] * LEAST_SEEDS).grade is Grade.UNKNOWN


def test_what_is_not_finite_is_different() -> None:
    found = alike([{"the loss": 1.0}] * LEAST_SEEDS, [{"the loss": math.nan}] * LEAST_SEEDS)
    assert found.grade is Grade.DIFFERENT
    assert found.evidence == (f"over {LEAST_SEEDS} seeds the loss is not always finite",)


def test_without_any_chance_the_least_difference_counts() -> None:
    same = [{"the loss": 1.0}] * LEAST_SEEDS
    assert alike(same, same).grade is Grade.ALIKE
    assert alike(same, [{"the loss": 1.01}] * LEAST_SEEDS).grade is Grade.DIFFERENT
