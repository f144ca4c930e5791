"""Number formats that break a computation are told from those that only round it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perflint.engine.rule import Safety
from perflint.verify import recordings
from perflint.verify.verdict import Grade
from tests.verify.courses import Bench, bench

SEEDS = 6
SQUARES, STEP, SOLVE = "errors.square()", "optimizer.step()", "x.T @ x,"
STALLING = "\n    ".join(
    [STEP, "for p in model.parameters():", "    p.data = p.data.bfloat16().float()"],
)
BROKEN = {
    "squares that overflow in halves": (SQUARES, "errors.half().square().float()"),
    "updates that vanish in bfloat16": (STEP, STALLING),
    "an ill-conditioned solve in TF32": (SOLVE, "tf32(x).T @ tf32(x),"),
}
SOUND = {
    "an update in double precision": (STEP, STALLING.replace("bfloat16", "double")),
    "a product in TF32": ("model(x) - y", "model(tf32(x)) - y"),
    "a product in bfloat16": ("model(x) - y", "(model(x.bfloat16().float()) - y) * 1.001"),
}


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with (
        pytest.MonkeyPatch.context() as patch,
        bench("formats.py", tmp_path_factory.mktemp("formats"), steps=14) as made,
    ):
        patch.setattr(recordings, "SEEDS", (SEEDS,))
        yield made


@pytest.mark.parametrize("name", BROKEN)
def test_a_format_that_breaks_a_computation_is_different(formats: Bench, name: str) -> None:
    found = formats.likeness(*BROKEN[name], Safety.PRECISION)
    assert found.grade is Grade.DIFFERENT, found.evidence
    assert found.evidence[0].startswith(f"over {SEEDS} seeds ")


@pytest.mark.parametrize("name", SOUND)
def test_a_format_that_only_rounds_is_not_different(formats: Bench, name: str) -> None:
    found = formats.likeness(*SOUND[name], Safety.PRECISION)
    assert found.grade is not Grade.DIFFERENT, found.evidence
