"""Which fixes are raced, and what is said of those that are kept and those that aren't."""

from __future__ import annotations

import math

import pytest

from perflint.engine.rule import Safety
from perflint.verify.statistics import Estimate
from perflint.verify.summary import merit, too_little, wrong
from perflint.verify.verdict import Grade, Likeness
from tests.verify.verdicts import fix

GAIN, LOSS, NOISE = (Estimate(ratio, ratio - 0.05, ratio + 0.05, 50, 5) for ratio in (1.3, 0.8, 1.0))
WIDE = Estimate(7.83, 0.07, 831.0, 12, 3)
SHORT = Estimate(2.6, 0.0, math.inf, 4, 1)


@pytest.mark.parametrize(
    ("promise", "grade", "own", "is_raced"),
    [
        (Safety.EXACT, Grade.BITWISE, Grade.BITWISE, True),
        (Safety.EXACT, Grade.ROUNDING, Grade.BITWISE, False),
        (Safety.EXACT, Grade.ROUNDING, Grade.ROUNDING, True),
        (Safety.EXACT, Grade.ALIKE, Grade.ROUNDING, False),
        (Safety.ROUNDING, Grade.ROUNDING, Grade.BITWISE, True),
        (Safety.ROUNDING, Grade.ALIKE, Grade.BITWISE, False),
        (Safety.ROUNDING, Grade.ALIKE, Grade.ALIKE, True),
        (Safety.BEHAVIOUR, Grade.ALIKE, Grade.BITWISE, True),
        (Safety.BEHAVIOUR, Grade.DIFFERENT, Grade.BITWISE, False),
        (Safety.BEHAVIOUR, Grade.UNKNOWN, Grade.BITWISE, False),
        (Safety.EXACT, Grade.BITWISE, Grade.DIFFERENT, False),
        (Safety.EXACT, Grade.BITWISE, Grade.UNKNOWN, False),
    ],
)
def test_a_fix_has_to_be_as_same_as_it_promised_or_as_the_original_is_to_itself(
    promise: Safety, grade: Grade, own: Grade, is_raced: bool
) -> None:
    assert (not wrong(fix(safety=promise, likeness=Likeness(grade)), own)) is is_raced


def test_a_fix_that_breaks_its_promise_is_dropped_with_the_evidence() -> None:
    likeness = Likeness(Grade.DIFFERENT, ("the gradient of lstm.weight differs by 0.3 at step 1", "more"))
    words = "it promised exact results, but the gradient of lstm.weight differs by 0.3 at step 1"
    assert wrong(fix(likeness=likeness), Grade.BITWISE) == words


def test_a_fix_that_never_ran_is_dropped() -> None:
    assert wrong(fix(activations=0), Grade.BITWISE) == "it never ran"
    assert wrong(fix(activations=0, reason="it is scripted"), Grade.BITWISE) == "it is scripted"


@pytest.mark.parametrize(
    ("alone", "on_top", "words"),
    [
        (GAIN, None, "1.30x (1.25 to 1.35) alone"),
        (LOSS, GAIN, "0.80x (0.75 to 0.85) alone, 1.30x (1.25 to 1.35) on top of the others, gains more beside the"),
        (GAIN, NOISE, "gains less beside the others"),
    ],
)
def test_of_a_fix_that_is_kept_all_that_it_gains_is_said(alone: Estimate, on_top: Estimate | None, words: str) -> None:
    assert words in merit(fix(alone=alone, on_top=on_top))


@pytest.mark.parametrize(
    ("alone", "on_top", "last", "was_chosen", "words"),
    [
        (NOISE, None, None, False, "a gain can't be told from noise: 1.00x (0.95 to 1.05)"),
        (GAIN, NOISE, None, False, "a gain can't be told from noise: 1.00x (0.95 to 1.05)"),
        (WIDE, None, None, False, "a gain can't be told from noise: 7.83x (0.07 to 831)"),
        (LOSS, None, None, False, "no gain was measured: 0.80x (0.75 to 0.85)"),
        (GAIN, LOSS, None, False, "the patch is faster without it: 0.80x (0.75 to 0.85)"),
        (GAIN, None, NOISE, True, "its gain was not seen again: 1.00x (0.95 to 1.05)"),
        (None, None, NOISE, False, "a gain can't be told from noise: 1.00x (0.95 to 1.05)"),
        (GAIN, None, SHORT, True, "there was no time for enough rounds: 2.60x (from 1 round only)"),
        (None, None, SHORT, False, "there was no time for enough rounds: 2.60x (from 1 round only)"),
        (None, None, None, False, "there was no time to race it"),
    ],
)
def test_of_a_fix_that_is_dropped_the_race_that_decided_it_is_said(
    alone: Estimate | None, on_top: Estimate | None, last: Estimate | None, was_chosen: bool, words: str
) -> None:
    assert too_little(fix(alone=alone, on_top=on_top), last, was_chosen=was_chosen) == words
