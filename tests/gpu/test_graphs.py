"""Captured functions do on a GPU, bit by bit, what they do in eager mode."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch import Tensor, nn

from perflint.runtime import records
from perflint.runtime.graphs import GraphedFunction, cuda_graph, graphed_loop
from tests.gpu.measure import equal
from tests.gpu.programs_graphs.decoders import (
    LstmDecoder,
    Transformer,
    greedy,
    greedy_until,
)

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


def lstm_inputs(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.zeros(batch, dtype=torch.long, device=DEVICE), rand(1, batch, 64), rand(1, batch, 64)


def same_as_eager(
    function: Callable[..., Any], graphed: GraphedFunction[..., Any], calls: list[tuple[Any, ...]]
) -> None:
    torch.cuda.manual_seed(1)
    expected = [function(*copy.deepcopy(arguments)) for arguments in calls]
    after = torch.rand(4, device=DEVICE)
    torch.cuda.manual_seed(1)
    results = [graphed(*copy.deepcopy(arguments)) for arguments in calls]
    assert torch.equal(torch.rand(4, device=DEVICE), after)
    assert equal(results, expected)


@torch.no_grad()
def test_a_greedy_decoder_is_replayed_with_equal_tokens_for_several_shapes() -> None:
    model = LstmDecoder(100, 64).to(DEVICE)
    graphed = cuda_graph(greedy)
    for batch, steps in ((2, 9), (3, 9), (2, 5)):
        calls = [lstm_inputs(batch) for _ in range(4)]
        for token, h, c in calls:
            assert torch.equal(graphed(model, token, h, c, steps), greedy(model, token, h, c, steps))
    assert graphed.graphs == 3
    assert graphed.bytes > 0


@torch.no_grad()
def test_results_belong_to_the_caller() -> None:
    graphed = cuda_graph(lambda x, y: (x * 2, {"same": y, "twice": [x * 2 + y]}))
    x, y = rand(4), rand(4)
    first = [graphed(x, y) for _ in range(3)][-1]
    kept = first[0].clone()
    second = graphed(rand(4), y)
    assert torch.equal(first[0], kept)
    assert first[1]["same"] is y and second[1]["same"] is y
    assert second[1]["twice"][0].data_ptr() != first[1]["twice"][0].data_ptr()


@torch.no_grad()
@pytest.mark.parametrize("change", ["in place", "loaded", "replaced", "data", "moved"])
def test_changed_weights_are_noticed(change: str) -> None:
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).to(DEVICE)
    graphed = cuda_graph(model)
    x = rand(3, 8)
    for _ in range(3):
        graphed(x)
    other = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).to(DEVICE)
    if change == "in place":
        model[0].weight.add_(1)
    elif change == "loaded":
        model.load_state_dict(other.state_dict())
    elif change == "replaced":
        model[0] = other[0]
    elif change == "data":
        model[0].weight.data = other[0].weight.data
    else:
        model.cpu()
        model.to(DEVICE)
        model[2].weight.mul_(2)
    for _ in range(3):
        assert torch.equal(graphed(x), model(x))


@torch.no_grad()
def test_dropout_inside_a_graph_advances_the_generator_as_eager_mode_does() -> None:
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.1)).to(DEVICE)
    same_as_eager(model, cuda_graph(model), [(rand(5, 8),) for _ in range(5)])
    graphed = cuda_graph(model)
    model.eval()
    same_as_eager(model, graphed, [(rand(5, 8),) for _ in range(3)])
    model.train()
    same_as_eager(model, graphed, [(rand(5, 8),) for _ in range(3)])
    model[1].p = 0.9
    same_as_eager(model, graphed, [(rand(5, 8),) for _ in range(3)])


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.linear(x)
        return self.last


def reads_back(x: Tensor) -> Tensor:
    return x + 1 if x.sum().item() > 0 else x - 1


def masks(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def moves(x: Tensor) -> Tensor:
    return x + torch.arange(4, dtype=torch.float32).to(x.device)


def waits(x: Tensor) -> Tensor:
    y = torch.nn.functional.dropout(x + 1)
    torch.cuda.current_stream().synchronize()
    return y


def dice(x: Tensor) -> Tensor:
    return x + float(torch.rand(()))


@torch.no_grad()
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (reads_back, "reads a value back"),
        (masks, "mask"),
        (moves, "host to device"),
        (waits, "waits"),
        (dice, "random numbers on the host"),
        (Stateful().to(DEVICE), "assigns"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_captured_stays_eager_and_says_why_once(function: Callable[..., Any], reason: str) -> None:
    graphed = cuda_graph(function)
    calls = [rand(4) for _ in range(4)]
    with pytest.warns(RuntimeWarning, match="stays eager") as caught:
        for x in calls:
            torch.manual_seed(5)
            expected = function(x)
            torch.manual_seed(5)
            assert torch.equal(graphed(x), expected)
    assert len(caught) == 1
    assert graphed.graphs == 0
    if function is not waits:
        assert reason in graphed.eager_because[0]
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(DEVICE)
    same_as_eager(model, cuda_graph(model), [(x,) for x in calls])


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.ones_like(x) * 2
        return x * self.scale


@torch.no_grad()
def test_what_sets_itself_up_in_its_first_call_is_captured_later() -> None:
    lstm = nn.LSTM(4, 4).to(DEVICE)
    lstm.load_state_dict({name: rand(*value.shape) for name, value in lstm.state_dict().items()}, assign=True)
    for model in (Lazy().to(DEVICE), lstm):
        graphed = cuda_graph(model)
        for x in [rand(3, 4) for _ in range(5)]:
            result: Any = graphed(x)
            assert equal(result, model(x))
        assert graphed.graphs == 1 and not graphed.eager_because


@torch.no_grad()
def test_modules_with_hooks_stay_eager() -> None:
    model = nn.Sequential(nn.Linear(4, 4)).to(DEVICE)
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    graphed = cuda_graph(model)
    with pytest.warns(RuntimeWarning, match="hooks"):
        assert torch.equal(graphed(rand(2, 4) * 0), model(rand(2, 4) * 0))


@torch.no_grad()
def test_the_least_recently_used_graphs_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MOST_GRAPHS", 2)
    graphed = cuda_graph(lambda x: x * 2 + 1)
    for size in (4, 5, 6, 7):
        for _ in range(3):
            assert graphed(rand(size)).numel() == size
    assert graphed.graphs == 2


@torch.no_grad()
def test_a_graph_beyond_the_bound_on_memory_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_most_bytes", lambda: 1000)
    graphed = cuda_graph(lambda x: x * 2 + 1)
    with pytest.warns(RuntimeWarning, match="MiB"):
        for _ in range(3):
            x = rand(1000)
            assert torch.equal(graphed(x), x * 2 + 1)
    assert graphed.graphs == 0


@torch.no_grad()
def test_the_graphs_of_a_model_go_with_it() -> None:
    graphed = cuda_graph(lambda model, x: model(x))
    model = nn.Linear(4, 4).to(DEVICE)
    for _ in range(3):
        graphed(model, rand(2, 4))
    assert graphed.graphs == 1
    del model
    gc.collect()
    assert graphed.graphs == 0


@torch.no_grad()
def test_arguments_written_in_place_are_written_for_the_caller() -> None:
    model = Transformer(50, 32, 2, 2, 8).to(DEVICE)
    graphed = cuda_graph(Transformer.generate)
    for number in range(4):
        token = torch.full((3,), number, device=DEVICE)
        caches = model.empty_cache(3), model.empty_cache(3)
        assert torch.equal(graphed(model, token, caches[0], 8), model.generate(token, caches[1], 8))
        assert torch.equal(*caches)
    assert graphed.graphs == 1


@torch.no_grad()
def test_threads_get_their_own_results() -> None:
    graphed = cuda_graph(lambda x: (x * 2 + 1).cumsum(0))
    failures: list[int] = []

    def work(seed: int) -> None:
        with torch.no_grad():
            for number in range(50):
                x = torch.full((64,), float(seed * 100 + number), device=DEVICE)
                if not torch.equal(graphed(x), (x * 2 + 1).cumsum(0)):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def greedy_in_chunks(model: LstmDecoder, token: Tensor, h: Tensor, c: Tensor, steps: int, end: int, chunk: int) -> Any:
    def step(_t: int, state: Any) -> Any:
        token, memory = state
        logits, memory = model.step(token, memory)
        token = logits.argmax(-1)
        return (token, memory), token

    return graphed_loop(step, (token, (h, c)), steps, until=lambda token: (token == end).all(), dim=1, chunk=chunk)


@torch.no_grad()
def test_a_loop_with_a_test_ends_where_the_eager_one_does() -> None:
    model = LstmDecoder(30, 64).to(DEVICE)
    lengths = set()
    for _ in range(6):
        arguments = lstm_inputs(1)
        tokens = greedy(model, *arguments, 20)[0].tolist()
        for end in {*tokens[:6], 99}:
            expected = greedy_until(model, *arguments, 20, end)
            for _ in range(3):
                state, outputs = greedy_in_chunks(model, *arguments, 20, end, 8)
                assert torch.equal(outputs, expected)
                assert outputs.stride() == expected.stride()
                assert torch.equal(state[0], expected[:, -1])
            lengths.add(expected.size(1))
    assert len(lengths) > 2


@torch.no_grad()
def test_the_state_of_a_loop_is_the_callers_own() -> None:
    linear = nn.Linear(4, 4).to(DEVICE)

    def step(t: int, state: Any) -> Any:
        x, cache, fixed = state
        x = torch.tanh(linear(x) + fixed)
        cache[t] = x
        return (x, cache, fixed), x * t

    def eager(x: Tensor, cache: Tensor, fixed: Tensor, steps: int) -> Any:
        state, outputs = (x, cache, fixed), []
        for t in range(steps):
            state, output = step(t, state)
            outputs.append(output)
        return state, torch.stack(outputs)

    for steps in (7, 7, 7, 10, 3):
        x, fixed, caches = rand(2, 4), rand(4), [torch.zeros(10, 2, 4, device=DEVICE) for _ in range(2)]
        state, outputs = graphed_loop(step, (x, caches[0], fixed), steps, chunk=4)
        assert equal(((state[0], caches[0], fixed), outputs), eager(x, caches[1], fixed, steps))
        assert state[1] is caches[0] and state[2] is fixed


@torch.no_grad()
def test_sampling_in_a_loop_draws_the_eager_loops_values() -> None:
    linear = nn.Linear(1, 5).to(DEVICE)

    def step(_t: int, token: Tensor) -> Any:
        token = torch.multinomial(torch.softmax(linear(token.float()), -1), 1)
        return token, token

    for seed in range(12):
        results = []
        for loop in (graphed_loop, plain_loop):
            torch.manual_seed(seed)
            results.append(
                (
                    loop(step, torch.zeros(1, 1, dtype=torch.long, device=DEVICE), 12, until=lambda token: token == 4),
                    rand(3),
                )
            )
        assert equal(*results)


def plain_loop(step: Any, state: Any, steps: int, until: Any) -> Any:
    outputs = []
    for t in range(steps):
        state, output = step(t, state)
        outputs.append(output)
        if until(output):
            break
    return state, torch.stack(outputs)


@torch.no_grad()
def test_a_loop_whose_state_grows_stays_eager() -> None:
    def step(_t: int, state: Tensor) -> Any:
        return torch.cat([state, state[-1:]]), state[-1]

    with pytest.warns(RuntimeWarning, match="changes shape"):
        for _ in range(3):
            state, outputs = graphed_loop(step, rand(1, 3), 4)
            assert state.shape == (5, 3) and outputs.shape == (4, 3)
