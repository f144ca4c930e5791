"""On a GPU, what the replays of a graphed step compute is recorded, and a replay that computes otherwise is found."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs CUDA", allow_module_level=True)

from perflint.engine.rule import Safety  # noqa: E402
from perflint.verify.messages import BACKWARD, OPTIMIZER  # noqa: E402
from perflint.verify.verdict import Grade  # noqa: E402
from tests.verify.courses import bench  # noqa: E402


@pytest.mark.parametrize(
    ("arguments", "unit", "grades"),
    [
        ((), OPTIMIZER, [Grade.BITWISE]),
        (("adam",), OPTIMIZER, [Grade.BITWISE, Grade.ROUNDING]),
        (("by_hand",), BACKWARD, [Grade.BITWISE]),
    ],
)
def test_replays_are_compared_with_the_original(
    arguments: tuple[str, ...], unit: str, grades: list[Grade], tmp_path: Path
) -> None:
    with bench("graphed.py", tmp_path, *arguments, steps=20, unit=unit) as program:
        right, wrong = program.likenesses([("@plain", "@graphed_step"), ("@plain", "@askew")], Safety.ROUNDING)
    assert right.grade in grades, right.evidence
    assert wrong.grade is Grade.DIFFERENT, wrong.evidence


@pytest.mark.parametrize(("mark", "grade"), [("@graphed_step", Grade.ROUNDING), ("@askew", Grade.DIFFERENT)])
def test_replays_are_compared_where_each_step_is_taken_from_the_state_of_the_original(
    mark: str, grade: Grade, tmp_path: Path
) -> None:
    plain, signature = "@plain\ndef step(x, y):\n    optimizer.zero_grad()\n    loss = (", "@plain\ndef step(x, y):"
    changed = plain.replace(signature, signature.replace("@plain", mark)) + "in_parts(x) - y).square().mean()"
    with bench("graphed_drifting.py", tmp_path, steps=20) as program:
        found = program.likeness(plain + "model(x) - y).square().mean()", changed, Safety.ROUNDING)
    assert found.grade is grade, found.evidence
