"""What a verdict comes to, and the sentence that says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perflint.engine.rule import Safety
from perflint.verify.statistics import Estimate, Outcome, Samples
from perflint.verify.summary import percent, ratio, ratio_with_interval, seconds, sentence, size
from perflint.verify.verdict import Grade, Likeness, Reach
from tests.verify.races import STEP
from tests.verify.verdicts import fix, verdict

DIFFERENT = Likeness(Grade.DIFFERENT, ("the loss of step 3 is 2.25 instead of 2.31",))
UNKNOWN = Likeness(Grade.UNKNOWN, ("two runs of the original read different batches",))


@pytest.mark.parametrize(
    ("speedup", "changes", "outcome", "beginning"),
    [
        (1.5, {}, Outcome.FASTER, "Faster: the patched program gives bitwise the same results and is 1.50x (1.48 to"),
        (12.0, {}, Outcome.FASTER, "Faster: the patched program gives bitwise the same results and is 12.0x (11.8 to"),
        (0.7, {}, Outcome.SLOWER, "Rejected: the patched program gives bitwise the same results but is only 0.70x"),
        (1.0, {}, Outcome.LEVEL, "Nothing to gain: the patched program gives bitwise the same results and is 1.00x"),
        (1.5, {"likeness": DIFFERENT}, Outcome.DIFFERENT, "Rejected: the patch changes the results: the loss of st"),
        (1.5, {"likeness": UNKNOWN}, Outcome.UNCHECKED, "No verdict: whether the results stay the same can't be ch"),
        (1.5, {"own": UNKNOWN}, Outcome.UNCHECKED, "No verdict: whether the results stay the same can't be checked: t"),
        (1.5, {"fixes": ()}, Outcome.UNFIXED, "Nothing to fix: perflint has no fix"),
        (1.0, {"is_idle": True}, Outcome.UNFIXED, "Nothing to fix: none of the fixes takes effect"),
        (1.5, {"failure": "the original ends with exit code 1"}, Outcome.FAILED, "No verdict: the original ends with "),
        (
            1.5,
            {"samples": Samples()},
            Outcome.UNSURE,
            "Can't tell: the patched program gives bitwise the same results, ",
        ),
    ],
)
def test_a_verdict_is_one_sentence(speedup: float, changes: dict[str, Any], outcome: Outcome, beginning: str) -> None:
    made = replace(verdict(speedup), **changes)
    assert made.outcome is outcome
    assert sentence(made).startswith(beginning)
    assert sentence(made).endswith(".")


def test_a_gain_that_two_rounds_show_is_none_yet() -> None:
    made = verdict(1.5)
    few = replace(made, samples=Samples(tuple(window for window in made.samples.windows if window.round < 2)))
    assert few.outcome is Outcome.UNSURE
    assert "from 2 rounds only" in sentence(few)


def test_files_that_are_not_compared_are_told_of() -> None:
    (one,) = Reach(20, elsewhere=("/data/log.txt",)).notes
    (two,) = Reach(20, elsewhere=("/data/log.txt", "/data/out.pt")).notes
    assert one == "the content of /data/log.txt: only files below the program's folder are compared"
    assert two.startswith("the content of /data/log.txt and 1 more: ")
    assert not Reach(20).notes


ROUNDING = Likeness(Grade.ROUNDING)


@pytest.mark.parametrize(
    ("second", "is_same"),
    [
        ({}, False),
        ({"safety": Safety.ROUNDING, "kept": True}, True),
        ({"safety": Safety.ROUNDING, "kept": False}, False),
    ],
    ids=["exact", "rounding", "dropped"],
)
def test_a_patch_owes_what_the_weakest_of_its_fixes_has_promised(second: dict[str, Any], is_same: bool) -> None:
    made = verdict(fixes=(fix(0), fix(1)), likeness=ROUNDING)
    assert replace(made, fixes=(made.fixes[0], replace(made.fixes[1], **second))).is_same is is_same


def test_a_patch_of_rounding_fixes_without_a_gain_is_not_called_different() -> None:
    made = verdict(1.0, fixes=(fix(safety=Safety.ROUNDING, likeness=ROUNDING),), likeness=ROUNDING)
    assert not made.fixes[0].kept
    assert made.outcome is Outcome.LEVEL


def test_what_the_patch_takes_longer_to_set_up_is_won_back_step_by_step() -> None:
    made = verdict(2.0)
    assert made.break_even_steps == pytest.approx(2.0 / (STEP / 2), rel=0.05)
    assert replace(made, after=made.before).break_even_steps == 0
    assert verdict(1.0).break_even_steps is None


def test_numbers_are_said_with_three_digits_and_their_unit() -> None:
    assert [seconds(value) for value in (0.0813, 9.3e-6, 12.0, 4000.0, 0.0)] == [
        "81.3 ms",
        "9.30 µs",
        "12.0 s",
        "4000 s",
        "0 ns",
    ]
    assert [size(value) for value in (0, 999, 2_031_000_000)] == ["0 B", "999 B", "2.03 GB"]
    assert [ratio(value) for value in (0.7, 1.523, 12.34, 0.0)] == ["0.70x", "1.52x", "12.3x", "0.00x"]
    assert percent(0.957) == "96 %"
    assert ratio_with_interval(Estimate(1.52, 1.49, 1.55, 50, 5)) == "1.52x (1.49 to 1.55)"
