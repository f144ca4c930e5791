"""Differences between two runs are graded by how large they are against rounding, and never excused where unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from perflint.verify.compare import Comparison, Difference
from perflint.verify.judge import Standard, likeness
from perflint.verify.runs import Recorded
from perflint.verify.verdict import Grade, Likeness

RUN = Recorded(Path(), None, "loss 0.5\n", "")
NEAR = Difference(2, "gradient 0.0", 1e-7, is_close=True, reference=1e-7, changed=1.1e-7)


def judged(*differences: Difference, own: tuple[Difference, ...] = (), referenced: bool = True) -> Likeness:
    compared = Comparison(6, 90, (), differences, referenced)
    return likeness(Standard(RUN, RUN, (Comparison(6, 90, (), own),)), RUN, compared)


def graded(*differences: Difference, own: tuple[Difference, ...] = (), referenced: bool = True) -> Grade:
    return judged(*differences, own=own, referenced=referenced).grade


def test_no_difference_is_bitwise_and_a_near_one_is_rounding() -> None:
    assert graded() is Grade.BITWISE
    assert graded(NEAR) is Grade.ROUNDING


def test_rounding_that_was_not_held_against_double_precision_says_so() -> None:
    assert "double precision" not in " ".join(judged(NEAR).evidence)
    assert "double precision" in " ".join(judged(NEAR, referenced=False).evidence)


@pytest.mark.parametrize("error", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["gradient 0.0", "parameter 0.0"])
def test_what_is_not_finite_or_has_another_shape_is_different(error: float, name: str) -> None:
    assert graded(replace(NEAR, name=name, error=error, reference=None, changed=None)) is Grade.DIFFERENT


def test_digests_tell_that_runs_are_not_bitwise_equal_and_no_more() -> None:
    digest = replace(NEAR, step=1, error=None, is_close=False, reference=None, changed=None)
    assert graded(digest) is Grade.ROUNDING
    assert judged(digest).evidence[0].endswith("equal but for rounding")


def test_rounding_is_at_most_the_largest_difference_at_whatever_step() -> None:
    digest = replace(NEAR, step=1, error=None, is_close=False, reference=None, changed=None)
    later = replace(NEAR, step=3, error=3e-7)
    assert judged(digest, NEAR, later).evidence[0].endswith("at most 3e-07 of the value")


def test_an_error_of_several_times_the_originals_own_is_different_also_where_values_are_close() -> None:
    assert graded(replace(NEAR, reference=1e-6, changed=2e-6)) is Grade.ROUNDING
    assert graded(replace(NEAR, reference=1e-6, changed=2e-5)) is Grade.DIFFERENT


def test_an_average_of_an_optimizer_may_err_by_what_single_precision_makes_of_its_rate() -> None:
    squares = replace(NEAR, name="optimizer 0.5.exp_avg_sq", error=1.3e-5, changed=1.3e-5)
    assert graded(squares) is Grade.ROUNDING
    assert graded(replace(squares, changed=1e-4)) is Grade.DIFFERENT
    assert graded(replace(squares, name="parameter 0.5")) is Grade.DIFFERENT
    single = replace(squares, error=1e-4, changed=1e-4, is_coarse=True)
    assert graded(replace(single, of_kind=1e-5)) is Grade.ROUNDING
    assert graded(replace(single, of_kind=5e-5)) is Grade.DIFFERENT


def test_a_gradient_behind_the_step_of_another_optimizer_may_err_by_what_that_steps_rate_does() -> None:
    of_critic = replace(NEAR, is_close=False, error=5.4e-6, reference=7.7e-7, changed=5.4e-6)
    of_actor = replace(of_critic, name="gradient 1.0.0")
    assert graded(of_critic) is Grade.DIFFERENT
    assert graded(of_critic, of_actor) is Grade.ROUNDING
    assert graded(replace(of_critic, changed=1e-4), of_actor) is Grade.DIFFERENT


def test_few_elements_or_digits_may_err_by_more() -> None:
    far = replace(NEAR, is_close=False, reference=1e-6, changed=2.5e-6)
    assert graded(far) is Grade.DIFFERENT
    assert graded(replace(far, is_coarse=True)) is Grade.ROUNDING


def test_what_is_derived_from_gradients_may_drift_where_double_precision_decides_at_other_steps() -> None:
    stepped = Difference(1, "parameter 0.0", 0.3, is_close=False, of_kind=1e-2)
    assert graded(stepped) is Grade.ROUNDING
    assert graded(stepped, referenced=False) is Grade.DIFFERENT
    assert graded(replace(stepped, of_kind=0.3)) is Grade.DIFFERENT


def test_rounding_may_drift_after_a_restart_where_double_precision_draws_other_numbers() -> None:
    other = replace(NEAR, reference=0.5, changed=0.5, of_kind=1e-7)
    far = Difference(10, "gradient 0.0", 5e-5, is_close=False)

    def grade(*differences: Difference) -> Grade:
        compared = Comparison(20, 90, (), differences, referenced=True, restarted=frozenset({2, 11}))
        return likeness(Standard(RUN, RUN, (Comparison(20, 90, (), ()),)), RUN, compared).grade

    assert grade(other, far) is Grade.ROUNDING
    assert grade(other, replace(far, step=11)) is Grade.DIFFERENT
    assert grade(other, replace(far, error=2e-3)) is Grade.DIFFERENT


def test_what_is_next_to_nothing_may_be_rounding_altogether() -> None:
    nothing = Difference(2, "gradient 0.1", 1.2, is_close=False, reference=1.0, changed=1.1, of_kind=1e-8)
    assert graded(nothing) is Grade.ROUNDING


def test_a_reference_by_which_the_original_itself_is_wrong_is_none() -> None:
    wrong = Difference(2, "gradient 0.0", 0.2, is_close=False, reference=0.3, changed=0.4)
    assert graded(wrong) is Grade.DIFFERENT
    drifted = Difference(1, "gradient 0.0", 1e-4, is_close=False)
    assert graded(drifted, replace(NEAR, reference=0.3)) is Grade.DIFFERENT
    assert graded(drifted, NEAR) is Grade.ROUNDING


def test_numbers_of_fewer_digits_may_drift_by_more_in_the_steps_behind_but_not_at_will() -> None:
    drifted = Difference(6, "loss 0", 0.03, is_close=False)
    single, half = (replace(NEAR, name="loss 0", reference=each, changed=each) for each in (1e-7, 4e-3))
    assert graded(drifted, single) is Grade.DIFFERENT
    assert graded(drifted, half) is Grade.ROUNDING
    assert graded(replace(drifted, name="loss 1"), half) is Grade.DIFFERENT
    assert graded(replace(drifted, error=0.11), half) is Grade.DIFFERENT
    before = replace(drifted, name="output before 3.logits")
    assert graded(before, half) is Grade.DIFFERENT
    assert graded(before, replace(half, name="output 0.logits")) is Grade.ROUNDING


def test_the_largest_spread_of_the_original_is_what_excuses() -> None:
    large = Difference(3, "gradient 0.0", 1e-2, is_close=False)
    spread = (replace(large, error=9e-3), replace(large, step=5, error=1e-9))
    assert graded(large) is Grade.DIFFERENT
    assert graded(large, own=spread) is Grade.ALIKE
    assert graded(replace(large, error=9e-2), own=spread) is Grade.DIFFERENT
    assert graded(large, own=(replace(large, step=10),)) is Grade.DIFFERENT  # it has drifted for longer


@pytest.mark.parametrize(("ranks", "grade"), [(("rank 1",), Grade.BITWISE), ((), Grade.DIFFERENT)])
def test_ranks_print_in_any_order(ranks: tuple[str, ...], grade: Grade, tmp_path: Path) -> None:
    for rank in ranks:
        (tmp_path / rank).mkdir()
    before = replace(RUN, folder=tmp_path, output="0 is here\n1 too\n")
    after = replace(before, output="1 too\n0 is here\n")
    same = Comparison(6, 90, (), ())
    assert likeness(Standard(before, before, (same,)), after, same).grade is grade
