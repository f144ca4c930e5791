"""A captured loop that is used to its length still ends where it should."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch import Tensor, nn

from perflint.runtime import eager
from perflint.runtime.graphs import graphed_loop
from tests.gpu.measure import equal

DEVICE = torch.device("cuda", 0)


def plain(step: Any, state: Any, steps: int, until: Any) -> Any:
    state, outputs, _ = eager.run(step, until, state, 0, steps)
    return state, eager.stack(outputs, 0)


def captured(step: Any, state: Any, steps: int, until: Any) -> Any:
    return graphed_loop(step, state, steps, until=until, chunk=4)


@torch.no_grad()
@pytest.mark.parametrize("counts", [False, True])
def test_it_ends_earlier_and_later_as_well(counts: bool) -> None:
    linear = nn.Linear(4, 4).to(DEVICE)

    def plain_step(_t: int, state: tuple[Tensor, Tensor]) -> Any:
        x, count = state
        x, count = torch.tanh(linear(x)) + torch.rand_like(x) * 0.1, count + 1
        return (x, count), (x, count)

    def counting_step(t: int, state: tuple[Tensor, Tensor]) -> Any:
        (x, count), _ = plain_step(t, state)
        return (x + t, count), (x, count)

    def run(loop: Any, end: int) -> Any:
        torch.manual_seed(end)
        state = (torch.ones(2, 4, device=DEVICE), torch.zeros((), dtype=torch.long, device=DEVICE))
        result = loop(counting_step if counts else plain_step, state, 60, lambda output: output[1] == end)
        return result, torch.rand(3, device=DEVICE)

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="perflint")
        for end in (20, 20, 20, 20, 20, 17, 24, 3, 20, 50, 50, 50, 50, 50, 99, 99, 99, 99, 99, 1):
            assert equal(run(captured, end), run(plain, end))
