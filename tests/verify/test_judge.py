"""Differences between two runs are graded by how large they are against rounding, and never excused where unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from perflint.verify.grade import Grade
from perflint.verify.judge import Standard, likeness
from perflint.verify.race import Recorded
from perflint.verify.same import Comparison, Difference

RUN = Recorded(Path(), None, "loss 0.5\n", "")
NEAR = Difference(2, "gradient 0.0", 1e-7, is_close=True, reference=1e-7, changed=1.1e-7)


def graded(*differences: Difference, own: tuple[Difference, ...] = (), referenced: bool = True) -> Grade:
    compared = Comparison(6, 90, (), differences, referenced)
    return likeness(Standard(RUN, RUN, (Comparison(6, 90, (), own),)), RUN, compared).grade


def test_no_difference_is_bitwise_and_a_near_one_is_rounding() -> None:
    assert graded() is Grade.BITWISE
    assert graded(NEAR) is Grade.ROUNDING


@pytest.mark.parametrize("error", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["gradient 0.0", "parameter 0.0"])
def test_what_is_not_finite_or_has_another_shape_is_different(error: float, name: str) -> None:
    assert graded(replace(NEAR, name=name, error=error, reference=None, changed=None)) is Grade.DIFFERENT


def test_digests_tell_that_runs_are_not_bitwise_equal_and_no_more() -> None:
    assert graded(replace(NEAR, error=None, is_close=False, reference=None, changed=None)) is Grade.ROUNDING


def test_an_error_of_several_times_the_originals_own_is_different_also_where_values_are_close() -> None:
    assert graded(replace(NEAR, reference=1e-6, changed=2e-6)) is Grade.ROUNDING
    assert graded(replace(NEAR, reference=1e-6, changed=2e-5)) is Grade.DIFFERENT


def test_what_is_derived_from_gradients_is_judged_by_double_precision_where_there_is_any() -> None:
    stepped = Difference(1, "parameter 0.0", 1e-4, is_close=False)
    assert graded(stepped) is Grade.ROUNDING
    assert graded(stepped, referenced=False) is Grade.DIFFERENT


def test_the_largest_spread_of_the_original_is_what_excuses() -> None:
    large = Difference(3, "gradient 0.0", 1e-2, is_close=False)
    spread = (replace(large, error=9e-3), replace(large, step=5, error=1e-9))
    assert graded(large) is Grade.DIFFERENT
    assert graded(large, own=spread) is Grade.ALIKE
    assert graded(replace(large, error=9e-2), own=spread) is Grade.DIFFERENT
