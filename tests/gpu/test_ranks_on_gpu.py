"""Steps of two ranks as graphs, and the profile of a rank that the other waits for, on two GPUs."""

from __future__ import annotations

import pytest
import torch

if torch.cuda.device_count() < 2:
    pytest.skip("needs two GPUs", allow_module_level=True)

from tests.gpu.measure_ranks import WASTED, profiled, steps_of
from tests.gpu.rank_steps import CASES

_EAGER = {"unused"}


@pytest.mark.parametrize("case", CASES)
def test_ranks_take_graphed_steps_as_they_take_eager_ones(case: str) -> None:
    found, errors = steps_of(case)
    assert found is not None, errors
    assert found["is_bitwise"], found
    assert bool(found["reasons"]) == (case in _EAGER), found
    assert bool(found["graphs"]) != (case in _EAGER), found


def test_a_rank_waits_for_the_one_that_wastes_time() -> None:
    found, errors = profiled(WASTED)
    assert found is not None, errors
    first, second = (each["communication_ms"] for each in found["ranks"])
    assert first > 1e3 * WASTED * 0.9
    assert second < first / 2
