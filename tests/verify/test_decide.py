"""Which fixes are kept, and what is said of those that aren't."""

from __future__ import annotations

import numpy as np
import pytest

from perflint.rule import Safety
from perflint.verify.decide import attributed, decided
from perflint.verify.grade import Grade, Likeness
from perflint.verify.samples import PATCHED, only, without
from perflint.verify.statistics import Estimate
from perflint.verify.verdict import FixVerdict
from tests.verify.races import CALM, race
from tests.verify.verdicts import fix

GAIN, LOSS, NOISE = (Estimate(ratio, ratio - 0.05, ratio + 0.05, 50, 5) for ratio in (1.3, 0.8, 1.0))


def _decided(made: FixVerdict, own: Grade = Grade.BITWISE, floor: float = 0.0) -> tuple[bool, str]:
    (result,) = decided([made], own, floor)
    return result.kept, result.reason


@pytest.mark.parametrize(
    ("promise", "grade", "own", "kept"),
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
    promise: Safety, grade: Grade, own: Grade, kept: bool
) -> None:
    made = fix(safety=promise, likeness=Likeness(grade), alone=GAIN, without=GAIN)
    assert _decided(made, own)[0] is kept


def test_a_fix_that_breaks_its_promise_is_dropped_with_the_evidence() -> None:
    likeness = Likeness(Grade.DIFFERENT, ("the gradient of lstm.weight differs by 0.3 at step 1", "more"))
    kept, reason = _decided(fix(likeness=likeness, alone=GAIN, without=GAIN))
    assert not kept
    assert reason == "it promised exact results, but the gradient of lstm.weight differs by 0.3 at step 1"


def test_a_fix_that_never_ran_is_dropped_whatever_was_measured() -> None:
    assert _decided(fix(activations=0, alone=GAIN, without=GAIN)) == (False, "it never ran")


@pytest.mark.parametrize(
    ("alone", "without", "kept", "words"),
    [
        (GAIN, GAIN, True, "1.30x (1.25 to 1.35) alone"),
        (GAIN, NOISE, True, "gains less beside the others"),
        (NOISE, GAIN, True, "gains more beside the others"),
        (NOISE, NOISE, False, "no gain was measured: 1.00x (0.95 to 1.05)"),
        (LOSS, NOISE, False, "no gain was measured: 0.80x"),
        (GAIN, LOSS, False, "the patch is faster without it: 0.80x"),
        (GAIN, None, True, "1.30x (1.25 to 1.35) alone"),
        (None, GAIN, True, "1.30x (1.25 to 1.35) on top of the others"),
        (None, None, False, "it was not measured"),
    ],
)
def test_a_fix_is_kept_for_a_gain_alone_or_on_top_of_the_others(
    alone: Estimate | None, without: Estimate | None, kept: bool, words: str
) -> None:
    is_kept, reason = _decided(fix(alone=alone, without=without))
    assert is_kept is kept
    assert words in reason


def test_a_gain_within_the_noise_of_the_race_is_none() -> None:
    assert _decided(fix(alone=GAIN, without=GAIN), floor=0.2)[0]
    assert not _decided(fix(alone=GAIN, without=GAIN), floor=0.3)[0]


def test_of_the_candidates_of_one_finding_the_fastest_is_kept() -> None:
    more = Estimate(2.0, 1.9, 2.1, 50, 5)
    candidates = [
        fix(0, finding="a", alone=GAIN, title="write it as one call"),
        fix(1, finding="a", alone=more, title="capture it as a graph"),
        fix(2, finding="a", alone=Estimate(3.0, 2.9, 3.1, 50, 5), activations=0),
        fix(3, finding="b", alone=GAIN),
    ]
    first, second, third, fourth = decided(candidates, Grade.BITWISE, 0.0)
    assert (first.kept, first.reason) == (False, "another candidate is faster: capture it as a graph")
    assert (second.kept, third.kept, fourth.kept) == (True, False, True)


def test_a_race_tells_what_each_fix_gains_alone_and_on_top_of_the_others() -> None:
    fixes = [fix(0), fix(1), fix(2)]
    speedups = {
        PATCHED: 1.5,
        only(fixes[0].name): 1.5,
        without(fixes[0].name): 1.0,
        only(fixes[1].name): 1.0,
        without(fixes[1].name): 1.5,
    }
    samples = race(np.random.default_rng(0), CALM, rounds=5, pairs=5, speedups=speedups)
    winner, idler, unknown = decided(attributed(fixes, samples), Grade.BITWISE, 0.01)
    assert (winner.kept, idler.kept, unknown.kept) == (True, False, False)
    assert winner.alone is not None
    assert winner.without is not None
    assert winner.alone.ratio == pytest.approx(1.5, rel=0.03)
    assert winner.without.ratio == pytest.approx(1.5, rel=0.03)


def test_the_only_fix_of_a_patch_is_the_patch() -> None:
    samples = race(np.random.default_rng(0), CALM, rounds=5, pairs=5, speedups={PATCHED: 1.5})
    (only_one,) = decided(attributed([fix()], samples), Grade.BITWISE, 0.01)
    assert only_one.kept
    assert only_one.reason.count("x (") == 1
