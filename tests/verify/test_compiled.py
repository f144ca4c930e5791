"""What compiled modules return is recorded as what they return eagerly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch._dynamo.config
from torch import Tensor

from perflint.shim.hooks import allow_in_graphs
from perflint.verify.agent.join import Agent
from perflint.verify.agent.recorder import Recorder
from perflint.verify.messages import Orders


class Noting:
    def __init__(self) -> None:
        self.noted: list[Any] = []

    def note_output(self, _: Callable[..., Any], result: object) -> None:
        self.noted.append(result)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(Orders(), tmp_path)
    made._recorder = cast(Recorder, Noting())
    undo = allow_in_graphs([made._note], torch._dynamo.config)
    yield made
    undo()
    torch.compiler.reset()


def outputs_of(agent: Agent, forward: Callable[..., Any]) -> list[Any]:
    """What is noted of two calls of a module that is compiled in place."""
    kind = type("Made", (torch.nn.Module,), {"forward": agent.counted(forward)})
    module = kind()
    module.compile(backend="eager")
    for number in (1.0, 3.0):
        module(torch.full((2,), number))
    return cast(Noting, agent._recorder).noted


def test_the_tensor_that_a_compiled_module_returns_is_noted(agent: Agent) -> None:
    def forward(_: object, x: Tensor) -> Tensor:
        return x * 2

    assert [each.tolist() for each in outputs_of(agent, forward)] == [[2.0, 2.0], [6.0, 6.0]]


def test_the_tensors_that_a_compiled_module_returns_are_noted_together(agent: Agent) -> None:
    def forward(_: object, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x - 1

    noted = outputs_of(agent, forward)
    assert [[part.tolist() for part in each] for each in noted] == [[[2.0, 2.0], [0.0, 0.0]], [[4.0, 4.0], [2.0, 2.0]]]
