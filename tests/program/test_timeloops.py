"""What the flow of data through a loop tells of it."""

from __future__ import annotations

import ast
import textwrap

import pytest

from perflint.analysis.program import LoopKind, Program, TimeLoop
from perflint.syntax.walk import LOOPS

_HEADER = """
import torch
import torch.nn.functional as F
from torch import nn
lstm, cell, linear, embedding = nn.LSTM(4, 4), nn.GRUCell(4, 4), nn.Linear(4, 4), nn.Embedding(9, 4)
def f(x: torch.Tensor, y: torch.Tensor, h: torch.Tensor, n: int, model: nn.Module):
    out = []
"""


def _program(body: str) -> Program:
    return Program(_HEADER + textwrap.indent(textwrap.dedent(body), "    "))


def _time_loop(body: str) -> TimeLoop | None:
    program = _program(body)
    loop = next(node for node in program.of_type(*LOOPS) if isinstance(node, ast.For | ast.While))
    return program.time_loop(loop)


def _kind(body: str) -> str:
    found = _time_loop(body)
    return found.kind if found is not None else ""


@pytest.mark.parametrize(
    "head",
    [
        "for x_t in x:",
        "for x_t in x.split(1, dim=1):",
        "for x_t in torch.unbind(x, 1):",
        "for x_t in reversed(x):",
        "for t, x_t in enumerate(x.transpose(0, 1)):",
        "for x_t, y_t in zip(x, y):",
    ],
)
def test_steps_may_come_from_the_head_of_the_loop(head: str) -> None:
    assert _kind(f"{head}\n    h = cell(x_t, h)\n    out.append(h)") == "vectorizable"


@pytest.mark.parametrize("index", ["x[t]", "x[:, t]", "x[t - 1]", "x[:, t:t + 1].squeeze(1)", "x[..., t]"])
def test_steps_may_be_picked_by_the_index(index: str) -> None:
    assert _kind(f"for t in range(1, n):\n    h = cell({index}, h)\n    out.append(h)") == "vectorizable"


def test_the_same_loop_over_a_changed_state_is_a_recurrence() -> None:
    assert _kind("for t in range(n):\n    h = cell(x[t], h * y[t])\n    out.append(h)") == "recurrence"
    assert _kind("for t in range(n):\n    h = cell(x[t] + linear(h), h)\n    out.append(h)") == "recurrence"
    assert _kind("for t in range(n):\n    h = F.relu(cell(x[t], h))\n    out.append(h)") == "recurrence"


def test_names_decide_nothing_about_the_kind() -> None:
    assert _kind("for teacher in range(n):\n    h = cell(x[teacher], h)\n    out.append(h)") == "vectorizable"


def test_a_choice_that_goes_back_in_is_autoregressive_and_mixed_with_given_tokens() -> None:
    own = "token = linear(h).argmax(-1)"
    assert _kind(f"token = y[0]\nfor t in range(n):\n    h = cell(embedding(token), h)\n    {own}") == "autoregressive"
    forced = "token = y[t] if torch.rand(1).item() < 0.5 else linear(h).argmax(-1)"
    assert _kind(f"token = y[0]\nfor t in range(n):\n    h = cell(embedding(token), h)\n    {forced}") == "mixed"
    given = "token = y[t]"
    assert _kind(f"token = y[0]\nfor t in range(n):\n    h = cell(embedding(token), h)\n    {given}") == "vectorizable"


def test_a_choice_that_is_only_counted_goes_nowhere() -> None:
    body = "right = 0\nfor t in range(n):\n    h = cell(x[t], h)\n    right += (linear(h).argmax(-1) == y[t]).sum()"
    assert _kind(body) == "vectorizable"


@pytest.mark.parametrize(
    "body",
    [
        "for layer in model.children():\n    h = layer(h)\n    out.append(h)",
        "for i in range(0, n, 32):\n    o, h = lstm(x[i:i + 32], h)\n    out.append(o)",
        "for part in x.split(32):\n    o, h = lstm(part, h)\n    out.append(o)",
        "for t in range(n):\n    h = cell(x[t], h)\n    h.sum().backward()",
        "for t in range(n):\n    x, r, done, _ = env.step(model(x))",
        "for i in range(n):\n    out.append(F.mse_loss(x[i], y[i]))",
        "for i in range(3):\n    h = cell(x[i], h)\n    out.append(h)",
        "for i in range(n):\n    x[i] = F.relu(x[i])",
        "for i in range(n):\n    h = h + model(h)",
    ],
)
def test_look_alikes_are_none(body: str) -> None:
    assert _kind(body) == ""


def test_the_flow_tells_slices_states_and_results_apart() -> None:
    found = _time_loop(
        "total = 0\nfor t in range(n):\n    h = cell(x[:, t + 1], h)\n    out.append(linear(h))\n    total += h.mean()"
    )
    assert found is not None
    assert {(each.base, each.axis, each.offset) for each in found.flow.slices} == {("x", 1, 1)}
    assert set(found.flow.states()) == {"h"}
    assert found.flow.truth() == {"x"}
    assert {(each.name, each.how) for each in found.flow.collected} == {("out", "append"), ("total", "sum")}


def test_a_model_without_gradients_makes_a_time_loop_no_training_step() -> None:
    program = _program(
        "with torch.no_grad():\n    for t in range(n):\n        h = cell(x[t], h)\n        out.append(h)"
    )
    (loop,) = program.of_type(ast.For)
    assert program.loop_kind(loop) is LoopKind.TIME
