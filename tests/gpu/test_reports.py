"""Reports of a GPU's values make no step wait, and say what they said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from perflint.runtime.reports import flush, later
from tests.fixture_cases import FIXTURES, load

STEPS = 100


def train(report: Any, mode: str | int = "default") -> list[str]:
    """What is said of some steps of training, in which waits for the device are treated by `mode`."""
    torch.manual_seed(0)
    said = list[str]()
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)), torch.nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 256, device="cuda")
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(mode)
    try:
        for step in range(STEPS):
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report(said, step, loss)
            loss.detach().zero_()
        flush()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return said


def test_no_step_waits_and_the_text_is_the_same() -> None:
    def at_once(said: list[str], step: int, loss: torch.Tensor) -> None:
        said.append(f"{step}: {loss.item():.6f}")

    def deferred(said: list[str], step: int, loss: torch.Tensor) -> None:
        later(lambda step, loss: said.append(f"{step}: {loss:.6f}"), step, loss.item)

    assert train(deferred, "error") == train(at_once)


def test_reports_are_put_off() -> None:
    said = list[float]()
    torch.cuda._sleep(200_000_000)  # type: ignore[no-untyped-call]  # cycles
    later(lambda value: said.append(value), torch.ones((), device="cuda").item)
    assert said == []
    print("other output")
    assert said == [1.0]


def test_nothing_is_put_off_while_a_graph_is_captured() -> None:
    said, value, result = list[float](), torch.ones((), device="cuda"), torch.zeros((), device="cuda")
    later(lambda value: said.append(value), value.item)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.copy_(value * 2)
        print("captured")
    graph.replay()
    flush()
    assert said == [1.0] and result.item() == 2.0


@pytest.mark.parametrize("name", ["ordered", "printed"])
def test_a_program_says_the_same(name: str) -> None:
    folder = FIXTURES / "item_in_loop"
    before = load(folder / f"{name}_before.py", f"{name}_before").run()
    assert load(folder / f"{name}_after_unsafe.py", f"{name}_after").run() == before
