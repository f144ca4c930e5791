"""A running sum of small integers or truth values stays as narrow as the loop makes it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.test_lifted_loops import at_once

torch = pytest.importorskip("torch")
LOOP = """
import torch

def run(x: torch.Tensor):
    batch, steps, width = x.shape
    total = {start}
    for t in range(steps):
        more = x[:, t] > 0
        total {added}
    return total
"""


def total_of(text: str) -> Any:
    """What the program's function gives for the same input each time."""
    names: dict[str, Any] = {}
    exec(text, names)
    torch.manual_seed(0)
    return names["run"](torch.randn(2, 5, 3))


@pytest.mark.parametrize(
    ("start", "added", "is_lifted"),
    [
        ("0", "= total + more", False),
        ("0", "= total + more.int()", False),
        ("0.0", "= total + more.int()", False),
        ("0", "+= more.to(torch.uint8) * 100", False),
        ("0", "+= more.int().sum()", True),
        ("0", "+= more.int().double().mean()", True),
        ("torch.zeros(2, 3)", "= total + more", False),
        ("torch.zeros(2, 3, dtype=torch.long)", "= total + more", False),
        ("torch.zeros(2, 3, dtype=torch.uint8)", "= total + more.byte() * 100", False),
        ("torch.zeros(2, 3, dtype=torch.bool)", "= total + more", False),
        ("torch.zeros(2, 3, dtype=torch.bool)", "+= more", False),
    ],
)
def test_a_sum_keeps_its_type(start: str, added: str, *, is_lifted: bool) -> None:
    text = LOOP.format(start=start, added=added)
    after = at_once(text)
    assert (after != text) == is_lifted
    torch.testing.assert_close(total_of(after), total_of(text))
