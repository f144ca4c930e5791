"""A captured loop ends where it should, whatever it did the calls before."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch import Tensor, nn

from perflint.runtime import chunks
from perflint.runtime.graphs import graphed_loop
from tests.gpu.measure import equal

DEVICE = torch.device("cuda", 0)


def plain(step: Any, state: Any, steps: int, until: Any) -> Any:
    state, outputs, _ = chunks.run_eagerly(step, until, state, 0, steps)
    return state, chunks.stack(outputs, 0)


def captured(step: Any, state: Any, steps: int, until: Any) -> Any:
    return graphed_loop(step, state, steps, until=until, chunk=4)


def plain_outputs(step: Any, state: Any, steps: int, until: Any) -> Any:
    return plain(step, state, steps, until)[1]


def captured_outputs(step: Any, state: Any, steps: int, until: Any) -> Any:
    return graphed_loop(step, state, steps, until=until, chunk=4, last_state=False)


@torch.no_grad()
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("loops", [(captured, plain), (captured_outputs, plain_outputs)])
def test_it_ends_earlier_and_later_as_well(counts: bool, loops: tuple[Any, Any]) -> None:
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
            assert equal(*[run(loop, end) for loop in loops])


@torch.no_grad()
def test_what_steps_write_in_place_is_the_callers_also_where_no_state_is_asked_for() -> None:
    def step(t: int, state: tuple[Tensor, Tensor]) -> Any:
        x, cache = state
        x = torch.sin(x + 1)
        cache[t] = x
        return (x, cache), x

    for steps in (6, 6, 6, 3, 3, 3):
        x = torch.rand(3, device=DEVICE)
        caches = [torch.zeros(6, 3, device=DEVICE) for _ in range(2)]
        results = [
            plain_outputs(step, (x, caches[0]), steps, None),
            graphed_loop(step, (x, caches[1]), steps, chunk=4, last_state=False),
        ]
        assert equal(*results) and equal(*caches)


@torch.no_grad()
@pytest.mark.parametrize("loops", [(captured, plain), (captured_outputs, plain_outputs)])
def test_a_loop_whose_later_steps_cannot_be_captured_goes_on_from_the_state_that_it_has(loops: tuple[Any, Any]) -> None:
    def step(t: int, state: tuple[Tensor, Tensor]) -> Any:
        x, y = state
        if t >= 4:
            x = x + x.sum().item()
        return (torch.sin(x + y), x / 2), x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            state = (torch.rand(3, device=DEVICE), torch.zeros(3, device=DEVICE))
            assert equal(*[loop(step, state, 9, None) for loop in loops])


@torch.no_grad()
def test_states_that_change_places_are_not_mixed_up() -> None:
    def step(_t: int, state: tuple[Tensor, Tensor]) -> Any:
        x, y = state
        return (y, x + 1), x

    for _ in range(4):
        state = (torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE))
        assert equal(captured_outputs(step, state, 11, None), plain_outputs(step, state, 11, None))
