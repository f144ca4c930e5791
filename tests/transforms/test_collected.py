"""What is collected on the device is copied only where something may change it before the loop is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.analysis.memory import points_to
from perflint.engine.catalogue import all_rules
from perflint.engine.fix import fix_text
from tests.fixture_cases import FIXTURES, default_options

RULE = next(rule for rule in all_rules() if rule.name == "item-in-loop")
SCALED = Path(FIXTURES / "item_in_loop" / "scaled_before.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("made", "kept"), [("torch.cuda.amp.GradScaler()", "loss.detach()"), ("load()", "loss.detach().clone()")]
)
def test_a_loss_that_torch_scales_needs_no_copy_where_memory_is_not_followed(
    made: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points_to, "_MOST_ROUNDS", 0)
    text = SCALED.replace("torch.cuda.amp.GradScaler()", made)
    assert f"losses.append({kept})" in fix_text(text, [RULE], default_options(RULE)).text
