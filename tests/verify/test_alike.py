"""Programs that draw other random numbers are told from programs that compute something else.

A program that differs by chance alone is found alike in 98 of 100, in 3 of 4 if it shares nothing with the original but
its level; one worse by the margin in 6 of 100 at most, by twice as much in none.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from perflint.verify.seeds import SEEDS, Traits, alike
from perflint.verify.verdict import Grade

TRIALS = 200
CHANCE, HALF, NOTHING_SHARED = 0.1, 0.7, 1.0  # of the spread from seed to seed: what is of each program's own dice
FEW = SEEDS[0]


def grades(*, worse: float, own: float) -> list[Grade]:
    """How programs are graded of which the second is worse by so many times the spread from seed to seed."""
    rng = np.random.default_rng(0)
    return [_answer(rng, worse, own) for _ in range(TRIALS)]


def _answer(rng: np.random.Generator, worse: float, own: float) -> Grade:
    level = rng.normal(2.0, math.sqrt(1 - own**2), SEEDS[-1])
    runs = [[{"the loss": float(each)} for each in level + rng.normal(by, own, SEEDS[-1])] for by in (0.0, worse)]
    answers = (alike(runs[0][:seeds], runs[1][:seeds]).grade for seeds in SEEDS)
    return next((grade for grade in answers if grade is not Grade.UNKNOWN), Grade.UNKNOWN)


@pytest.mark.parametrize(("own", "least"), [(CHANCE, 0.97), (HALF, 0.93), (NOTHING_SHARED, 0.7)])
def test_other_random_numbers_are_alike(own: float, least: float) -> None:
    found = grades(worse=0.0, own=own)
    assert found.count(Grade.ALIKE) >= least * TRIALS
    assert found.count(Grade.DIFFERENT) <= 0.03 * TRIALS


@pytest.mark.parametrize("own", [CHANCE, HALF, NOTHING_SHARED])
def test_what_is_worse_by_as_much_as_seeds_make_is_not_alike(own: float) -> None:
    assert grades(worse=1.0, own=own).count(Grade.ALIKE) <= 0.07 * TRIALS
    assert grades(worse=2.0, own=own).count(Grade.DIFFERENT) >= 0.99 * TRIALS


def test_no_difference_that_was_found_is_no_sameness() -> None:
    before, after = ([{"the loss": each} for each in values] for values in ((1.0, 2.0, 3.0), (3.0, 2.0, 1.5)))
    found = alike(before, after)
    assert found.grade is Grade.UNKNOWN
    assert found.evidence[0].endswith("and from seed to seed by 1, which is too little to tell")


def test_what_has_no_numbers_cannot_be_told() -> None:
    empty: list[Traits] = [{}] * FEW
    assert alike(empty, empty).grade is Grade.UNKNOWN


def test_what_is_not_finite_is_different() -> None:
    found = alike([{"the loss": 1.0}] * FEW, [{"the loss": math.nan}] * FEW)
    assert found.grade is Grade.DIFFERENT
    assert found.evidence == (f"over {FEW} seeds the loss is not always finite",)


def test_without_any_chance_the_least_difference_counts() -> None:
    same = [{"the loss": 1.0}] * FEW
    assert alike(same, same).grade is Grade.ALIKE
    assert alike(same, [{"the loss": 1.01}] * FEW).grade is Grade.DIFFERENT


@pytest.mark.parametrize(
    ("name", "level", "by", "grade"),
    [
        ("the loss", 4.0, 0.002, Grade.ALIKE),
        ("the loss", 4.0, 0.2, Grade.DIFFERENT),
        ("how far weights move", 0.0, 0.001, Grade.ALIKE),
        ("how far weights move", 0.0, -0.1, Grade.DIFFERENT),
        ("the share of weights that move", 1.0, -0.001, Grade.ALIKE),
        ("the share of weights that move", 1.0, -0.02, Grade.DIFFERENT),
    ],
)
def test_another_format_may_shift_a_trait_by_what_it_rounds_off(
    name: str, level: float, by: float, grade: Grade
) -> None:
    before = [level + spread for spread in (0.0, 1e-3, -1e-3, 5e-4, 0.0, -5e-4)]
    runs = [[{name: each + shift} for each in before] for shift in (0.0, by)]
    assert alike(*runs, formats=True).grade is grade
    assert alike(*runs).grade is Grade.DIFFERENT  # other random numbers may not
