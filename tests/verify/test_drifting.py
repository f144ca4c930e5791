"""Rounding that a program makes much of is told from a wrong result by taking each step from the original's state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perflint.engine.rule import Safety
from perflint.verify import recordings
from perflint.verify.messages import BACKWARD
from perflint.verify.protocol import Budget
from perflint.verify.verdict import Grade
from tests.verify.courses import Bench, bench

STEP = "optimizer.step()"


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench("drifting.py", tmp_path_factory.mktemp("drifting"), steps=20) as made:
        yield made


@pytest.fixture(scope="module")
def averaging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench("drifting_averages.py", tmp_path_factory.mktemp("averaging"), steps=20) as made:
        yield made


def test_a_batch_computed_in_two_parts_is_rounding_however_far_it_drifts(drifting: Bench) -> None:
    found = drifting.likeness("model(x)", "torch.cat([model(x[:31]), model(x[31:])])", Safety.ROUNDING)
    assert found.grade is Grade.ROUNDING, found.evidence


def test_rounding_is_told_from_a_wrong_result_where_steps_end_in_backward_passes(tmp_path: Path) -> None:
    with bench("drifting.py", tmp_path, steps=20, unit=BACKWARD) as program:
        found = program.likeness("model(x)", "torch.cat([model(x[:31]), model(x[31:])])", Safety.ROUNDING)
    assert found.grade is Grade.ROUNDING, found.evidence


@pytest.mark.parametrize(("by", "grade"), [("1.3e-5", Grade.ROUNDING), ("1e-3", Grade.DIFFERENT)])
def test_averages_may_drift_from_what_the_kernels_of_an_optimizer_round_them_by(
    averaging: Bench, by: str, grade: Grade
) -> None:
    moved = f"[each['exp_avg_sq'].mul_(1 + {by} * (step in (1, 10))) for each in optimizer.state.values()]"
    found = averaging.likeness(STEP, f"{moved}; {STEP}", Safety.ROUNDING)
    assert found.grade is grade, found.evidence


def test_a_weight_that_moves_by_rounding_in_one_run_and_stays_in_the_other_is_rounding(tmp_path: Path) -> None:
    with bench("still.py", tmp_path, steps=8) as program:
        found = program.likeness("mine.mul_(0.99).add_(new, alpha=0.01)", "mine.lerp_(new, 0.01)", Safety.ROUNDING)
        assert found.grade is Grade.ROUNDING, found.evidence
        wrong = program.likeness("mine.mul_(0.99).add_(new, alpha=0.01)", "mine.lerp_(new, 0.02)", Safety.ROUNDING)
        assert wrong.grade is Grade.DIFFERENT


def test_without_time_for_each_step_nobody_says_that_results_which_drift_apart_are_wrong(tmp_path: Path) -> None:
    with bench("drifting.py", tmp_path, steps=20) as program:
        assert program.likeness(STEP, f"{STEP}; layers[5].weight.data += 1e-6").grade is Grade.DIFFERENT
        found = program.likeness_in_haste("model(x)", "torch.cat([model(x[:31]), model(x[31:])])", Safety.ROUNDING)
    assert found.grade is Grade.UNKNOWN and "a larger budget may tell" in found.evidence[1]


def test_steps_that_were_not_recorded_in_double_precision_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench("drifting.py", tmp_path, steps=20) as program:
        program.likeness(STEP, f"{STEP}; layers[5].weight.data += 1e-6")
        program.records.course = program.records.course.within(Budget(60.0))
        monkeypatch.setattr(recordings, "_FOR_REFERENCE", 1e-9)
        found = program.likeness("model(x)", "torch.cat([model(x[:31]), model(x[31:])])", Safety.ROUNDING)
    assert found.grade is Grade.UNKNOWN, found.evidence


@pytest.mark.parametrize("by", ["1e-4 * (step in (4, 14))", "1e-6", "1e-4 * (step == 15)"])
def test_weights_that_are_wrong_by_more_than_rounding_are_different(drifting: Bench, by: str) -> None:
    found = drifting.likeness(STEP, f"{STEP}; layers[5].weight.data += {by}", Safety.ROUNDING)
    assert found.grade is Grade.DIFFERENT, found.evidence
