"""On a GPU, what fixes capture computes bit by bit what the plain programs do, gradients included."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch import Tensor

from tests.gpu.graph_cases import PLAIN
from tests.gpu.measure import equal, fixed, load

DEVICE = torch.device("cuda", 0)
FIXTURES = Path(__file__).parents[2] / "fixtures" / "decode_loop"
BEFORE = load(PLAIN, PLAIN.read_text(encoding="utf-8"))
AFTER = load(PLAIN, fixed(PLAIN.read_text(encoding="utf-8")))


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="perflint")
        torch.manual_seed(0)
        yield


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def twins(name: str, *sizes: int) -> tuple[Any, Any]:
    """A plain module and a fixed one with the same weights."""
    plain, captured = getattr(BEFORE, name)(*sizes).to(DEVICE), getattr(AFTER, name)(*sizes).to(DEVICE)
    captured.load_state_dict(plain.state_dict())
    return plain, captured


def same(plain: Callable[..., Any], captured: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    for arguments in calls:
        assert equal(captured(*copy.deepcopy(arguments)), plain(*copy.deepcopy(arguments)))


def start(batch: int) -> tuple[Tensor, ...]:
    return torch.zeros(batch, dtype=torch.long, device=DEVICE), rand(1, batch, 32), rand(1, batch, 32)


def test_a_greedy_decoder_is_replayed() -> None:
    plain, captured = twins("Decoder", 50, 32)
    same(plain.greedy, captured.greedy, [(*start(batch), 20) for batch in (3, 3, 3, 1, 1, 1)])
    assert AFTER.Decoder.greedy.__wrapped__.graphs == 2


def test_a_decoder_with_a_test_for_its_end_stops_where_it_did() -> None:
    plain, captured = twins("Decoder", 5, 32)
    same(plain.until, captured.until, [(*start(batch), 100, end) for batch in (1, 3) for end in range(-1, 5)] * 2)


def test_a_transformer_writes_its_cache_as_it_did() -> None:
    plain, captured = twins("Transformer", 50, 32, 2, 2, 16)
    for _ in range(4):
        token = torch.randint(50, (2,), device=DEVICE)
        caches = [plain.empty_cache(2) for _ in range(2)]
        assert torch.equal(captured.generate(token, caches[0], 16), plain.generate(token, caches[1], 16))
        assert torch.equal(*caches)
    assert AFTER.Transformer.generate.__wrapped__.graphs == 1


@pytest.mark.parametrize("name", ["Attention", "NormedCell"])
def test_training_gives_the_same_gradients_and_weights(name: str) -> None:
    sizes = (20, 32) if name == "Attention" else (32,)
    models = twins(name, *sizes)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for _ in range(5):
        first = rand(2, 6, 32).requires_grad_()
        inputs = (first, torch.randint(20, (2, 5), device=DEVICE)) if name == "Attention" else (first,)
        seen = []
        for model, optimizer in zip(models, optimizers, strict=True):
            first.grad = None
            optimizer.zero_grad()
            loss = model(*inputs).square().mean()
            loss.backward()
            seen.append([loss.detach(), first.grad, *[each.grad for each in model.parameters()]])
            optimizer.step()
        assert equal(*seen)
        assert equal(*[list(model.state_dict().values()) for model in models])
    assert getattr(AFTER, name).forward.graphs == 1


def test_advantages_are_replayed() -> None:
    calls = [(rand(9, 4), rand(10, 4), (rand(9, 4) > 0).float()) for _ in range(4)]
    same(BEFORE.advantages, AFTER.advantages, calls)
    assert AFTER.advantages.graphs == 1


@pytest.mark.parametrize("name", ["graph_decoders", "graph_recurrences", "graph_ends"])
def test_fixtures_compute_on_the_gpu_what_they_did(name: str) -> None:
    path = FIXTURES / f"{name}_before.py"
    text = path.read_text(encoding="utf-8")
    results = []
    for program in (load(path, text), load(path, fixed(text))):
        torch.manual_seed(0)
        with torch.device(DEVICE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # made anew in each run, most are never captured
            results.append([program.run() for _ in range(3)])
    assert equal(*results)
