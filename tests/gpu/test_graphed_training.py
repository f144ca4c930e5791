"""Captured functions train on a GPU, bit by bit, as they do in eager mode."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch import Tensor, nn

from perflint.runtime import training
from perflint.runtime.graphs import GraphedFunction, cuda_graph
from tests.gpu.measure import equal
from tests.gpu.programs_graphs.decoders import AttentionDecoder

DEVICE = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="perflint")
        warnings.filterwarnings("error", message=".*AccumulateGrad node's stream")
        torch.manual_seed(0)
        yield


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def train(
    make: Callable[[], nn.Module], run: Callable[[nn.Module], Callable[..., Any]], inputs: list[Any], **options: Any
) -> list[Any]:
    """Losses, gradients, parameters and buffers of a few steps of training."""
    torch.manual_seed(3)
    model = make().to(DEVICE)
    forward = run(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen: list[Any] = []
    loss = None
    for number, arguments in enumerate(inputs):
        with torch.autocast("cuda", torch.bfloat16, enabled=options.get("autocast", False)):
            loss = options.get("loss", lambda out: out.square().mean())(forward(*arguments))
        loss.backward()
        seen += [loss.detach().clone(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]]
        seen += [[a.grad.clone() for a in arguments if a.requires_grad]]
        if number % 2:  # every other step accumulates
            optimizer.step()
            optimizer.zero_grad(set_to_none=number % 4 == 1)
        seen += [[value.clone() for value in model.state_dict().values()]]
    return seen


def attention_inputs(count: int = 7) -> list[Any]:
    return [(rand(2, 6, 32).requires_grad_(), torch.randint(20, (2, 5), device=DEVICE)) for _ in range(count)]


def both(make: Callable[[], nn.Module], inputs: list[Any], **options: Any) -> GraphedFunction[..., Any]:
    """Train eagerly and graphed; compare all; return the graphed function."""
    made: list[GraphedFunction[..., Any]] = []

    def graphed(model: nn.Module) -> Callable[..., Any]:
        made.append(cuda_graph(model))
        return made[0]

    fresh = copy.deepcopy(inputs)
    expected = train(make, lambda model: model, inputs, **options)
    assert equal(train(make, graphed, fresh, **options), expected)
    return made[0]


@pytest.mark.parametrize("share", [1, 2**50], ids=["aside", "in line"])
def test_training_gives_equal_losses_gradients_and_weights(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_SHARE", share)
    assert both(lambda: AttentionDecoder(20, 32), attention_inputs()).graphs == 1


def test_training_under_autocast_gives_equal_gradients() -> None:
    assert both(lambda: AttentionDecoder(20, 32), attention_inputs(), autocast=True).graphs == 1


def test_training_with_dropout_and_batch_norm_gives_equal_gradients_and_statistics() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 4))

    assert both(make, [(rand(5, 8).requires_grad_(),) for _ in range(7)]).graphs == 1


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b, self.unused = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.body(x))
        return {"a": self.a(hidden), "b": self.b(hidden), "tokens": hidden.argmax(-1)}


def test_outputs_outside_of_the_loss_leave_gradients_none() -> None:
    inputs = [(rand(5, 8),) for _ in range(7)]
    assert both(TwoHeads, inputs, loss=lambda out: out["a"].square().mean()).graphs == 1
    assert both(TwoHeads, inputs, loss=lambda out: (out["a"] * out["b"]).sum()).graphs == 1


def test_several_forward_passes_before_one_backward_pass_do_not_disturb_each_other() -> None:
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
            self.calls: tuple[Callable[..., Tensor], ...] = (self.one,)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            (call,) = self.calls
            return call(x) * call(y) + call(x + y)

    def graphed(model: Any) -> Callable[..., Any]:
        model.calls = (cuda_graph(model.one),)
        return model  # type: ignore[no-any-return]

    inputs = [(rand(3, 8), rand(3, 8)) for _ in range(8)]
    assert equal(train(Twins, graphed, inputs), train(Twins, lambda model: model, inputs))


def test_a_graph_kept_for_a_second_backward_pass_gives_the_same_gradients_again() -> None:
    model = nn.Linear(4, 4).to(DEVICE)
    graphed = cuda_graph(model)
    for _ in range(4):
        loss = graphed(rand(2, 4)).sum()
        first = torch.autograd.grad(loss, model.weight, retain_graph=True)[0]
        assert torch.equal(torch.autograd.grad(loss, model.weight)[0], first)
