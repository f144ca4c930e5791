"""Whole steps as graphs train on a GPU, bit by bit, as eager steps do with the same optimizer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from perflint.runtime import optimizers as optim
from perflint.runtime.step import GraphedStep, graphed_step
from tests.gpu.measure import equal
from tests.gpu.step_cases import CASES, DEVICE, Course, Wrap, batches, mlp

# whose graphs would never be used again, or that reads on the host without being capturable
_REFUSED = {
    "host_numbers",
    "optimizer asgd",
    "schedule of sgd cosine",
    "schedule one cycle",
}  # graphs that would never be used again


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.use_deterministic_algorithms(before)


def eager(function: Callable[..., Any], *optimizers: Any) -> Callable[..., Any]:
    """The same steps with the same form of optimizers, without graphs."""
    calls = 0

    def run(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            optim.prepare(optimizers)
        with optim.capturable(optimizers):
            return function(*arguments)

    return run


def course(case: Callable[[Wrap], Course], wrap: Wrap) -> list[Any]:
    torch.manual_seed(3)
    seen = list(case(wrap))
    torch.cuda.synchronize()
    return [*seen, torch.cuda.get_rng_state(), torch.get_rng_state()]


@pytest.mark.parametrize("name", CASES)
def test_a_graphed_step_is_the_eager_step(name: str) -> None:
    steps: list[GraphedStep[..., Any]] = []

    def graphed(function: Callable[..., Any], *_: Any) -> GraphedStep[..., Any]:
        steps.append(graphed_step(function))
        return steps[-1]

    try:
        found = course(CASES[name], graphed)
        reasons = [reason for step in steps for reason in step.eager_because]
        captured = [step.graphs for step in steps]
    finally:
        for step in steps:
            step.clear()
    plain = name in _REFUSED
    expected = course(CASES[name], (lambda function, *_: function) if plain else eager)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if plain and name == "schedule one cycle":
            continue  # adamw was prepared before it was refused
        assert equal(one, other), f"at {number} of {len(found)}: {reasons} {captured}"
    assert bool(reasons) == plain, reasons
    assert plain or all(captured), captured


def test_a_replay_checks_the_arguments_of_distributions_and_the_next_call_raises() -> None:
    model = nn.Linear(4, 3).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @graphed_step
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        policy = torch.distributions.Categorical(logits=model(x))
        loss: Tensor = -policy.log_prob(y).mean()  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    y = torch.tensor([0, 1, 2], device=DEVICE)
    for _ in range(12):
        step(torch.randn(3, 4, device=DEVICE), y)
    assert step.graphs == 1 and not step.eager_because
    step(torch.full((3, 4), math.nan, device=DEVICE), y)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="invalid arguments"):
        step(torch.randn(3, 4, device=DEVICE), y)


def test_hooks_of_all_optimizers_see_each_step_once_and_no_capture() -> None:
    model = nn.Linear(4, 4).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen: list[bool] = []

    @graphed_step
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    handle = register_optimizer_step_post_hook(lambda *_: seen.append(torch.cuda.is_current_stream_capturing()))
    try:
        for _ in range(12):
            step(torch.randn(3, 4, device=DEVICE))
        assert step.graphs == 1 and seen == [False] * 12
    finally:
        handle.remove()
        step.clear()


@pytest.mark.parametrize("name", ["optimizer adam", "optimizer adamw", "gan", "schedule cosine", "resume"])
def test_plain_adam_differs_by_rounding(name: str) -> None:
    steps: list[Any] = []

    def graphed(function: Callable[..., Any], *_: Any) -> Any:
        steps.append(graphed_step(function))
        return steps[-1]

    found = course(CASES[name], graphed)[:40]
    expected = course(CASES[name], lambda function, *_: function)[:40]
    for step in steps:
        step.clear()
    flat = [list(_tensors(each)) for each in (found, expected)]
    assert [each.device for each in flat[0]] == [each.device for each in flat[1]]
    for one, other in zip(*flat, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


class _Counting:
    count = 0


class _Assigning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(0.0)

    def forward(self, x: Tensor) -> Tensor:
        self.last = x * 2
        return self.inner(x)  # type: ignore[no-any-return]


def _planted(name: str) -> tuple[Callable[[Tensor, Tensor], Any], list[Any]]:
    """A step that no graph may stand for, and what else tells whether it was done."""
    model: nn.Module = _Assigning() if name == "assigns" else mlp(0.0)
    kind = torch.optim.Adagrad if name == "adagrad" else torch.optim.SGD
    optimizer: Any = kind(model.parameters(), 0.01)
    seen: list[Any] = []
    counting, sparse = _Counting(), nn.Embedding(4, 4, sparse=True).to(DEVICE)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 7)
    scaler = torch.amp.GradScaler("cuda")
    host, own = torch.randn(1000), torch.Generator(DEVICE).manual_seed(1)
    if name == "lbfgs":
        optimizer = torch.optim.LBFGS(model.parameters(), 0.01, max_iter=2)
    if name == "hook":
        optimizer.register_step_post_hook(lambda *_: seen.append("hook"))
    if name == "grad hook":
        next(model.parameters()).register_hook(lambda g: g * 2)  # type: ignore[no-untyped-call]
    if name == "module hook":
        model.register_forward_hook(lambda *_: seen.append(2))
    held: list[Tensor] = []
    factor = torch.ones((), device=DEVICE, requires_grad=True) + 0
    tail = {
        "item": lambda x, loss: seen.append(loss.item()),
        "list": lambda x, loss: seen.append(loss.detach().clone()),
        "branch": lambda x, loss: model.zero_grad() if loss > 1.4 else None,
        "counter": lambda x, loss: setattr(counting, "count", counting.count + 1),
        "schedule": lambda x, loss: schedule.step(),
        "numpy": lambda x, loss: seen.append(loss.detach().cpu().numpy().copy()),
        "host random": lambda x, loss: x.add_(torch.rand(1).to(DEVICE)),
        "host copy": lambda x, loss: x.mul(host[:8].to(DEVICE)),
        "generator": lambda x, loss: torch.randn(1, device=DEVICE, generator=own),
        "mask": lambda x, loss: seen.append(x[x > 0].sum().clone()),
        "nonzero": lambda x, loss: x.nonzero(),
        "writes argument": lambda x, loss: x.mul_(0.5),
        "rate": lambda x, loss: optimizer.param_groups[0].update(lr=optimizer.param_groups[0]["lr"] * 0.99),
        "holds": lambda x, loss: held.append(x.sum()),
    }.get(name, lambda x, loss: None)

    def step(x: Tensor, y: Tensor) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if name == "history":
            loss = loss * factor
        if name == "sparse":
            loss = loss + sparse(y).square().mean()
        if name == "lbfgs":
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step(lambda: F.cross_entropy(model(x), y))
        elif name == "scaler":
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()  # type: ignore[no-untyped-call]
            if name == "nonfinite":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            optimizer.step()
        tail(x, loss)  # type: ignore[no-untyped-call]
        return loss.detach()

    return step, [model, seen, counting, schedule, held, sparse]


PLANTED = (
    *("item", "list", "branch", "counter", "schedule", "numpy", "host random", "host copy", "generator", "mask"),
    *(
        "nonzero",
        "writes argument",
        "rate",
        "holds",
        "lbfgs",
        "sparse",
        "scaler",
        "nonfinite",
        "hook",
        "history",
        "grad hook",
    ),
    *("module hook", "assigns", "adagrad"),
)


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_graph_would_get_wrong_stays_eager(name: str) -> None:
    def train(wrap: Callable[..., Any]) -> tuple[list[Any], Any]:
        torch.manual_seed(5)
        step, others = _planted(name)
        run = wrap(step)
        losses = [run(x, y).clone() for x, y in batches(25)]
        model, seen, counting, schedule, held, sparse = others
        values = [*losses, *model.state_dict().values(), *sparse.state_dict().values(), seen, counting.count, held]
        return [*values, schedule.last_epoch, schedule.get_last_lr()], run

    expected, _ = train(lambda step: step)
    found, run = train(graphed_step)
    reasons, graphs = run.eager_because, run.graphs
    run.clear()
    assert reasons and not graphs
    assert equal(found[:-3], expected[:-3]) and found[-2:] == expected[-2:]


def test_a_result_can_not_be_differentiated_again() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @graphed_step
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    for x, y in batches(8):
        loss = step(x, y)
        assert loss.requires_grad
        with pytest.raises(RuntimeError):
            loss.backward()  # type: ignore[no-untyped-call]
    assert step.graphs == 1


class _Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 16, 2, dropout=0.2), nn.Linear(16, 4)

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        out, state = self.rnn(x, state)
        return self.head(out), state


def _carrying(wrap: Callable[[Any], Any], cut: Callable[[Any], Any]) -> list[Any]:
    """Losses, weights and states of steps that hand a state on, at rates that change, with a shorter last batch."""
    torch.manual_seed(0)
    model, found, rate = _Words().to(DEVICE), [], 0.1
    optimizer = torch.optim.SGD(model.parameters(), rate)
    data = [(torch.randn(7 if n < 9 else 4, 16, 8), torch.randint(4, (7 if n < 9 else 4, 16))) for n in range(10)]

    @wrap
    def step(x: Tensor, state: Any, y: Tensor) -> Any:
        optimizer.zero_grad()
        out, state = model(x, cut(state))
        loss = F.cross_entropy(out.flatten(0, 1), y.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return state, loss

    for _ in range(4):
        state = tuple(torch.zeros(2, 16, 16, device=DEVICE) for _ in range(2))
        for x, y in data:
            state, loss = step(x.to(DEVICE), state, y.to(DEVICE))
            assert all(each.requires_grad for each in state)
            found += [loss.detach().clone(), *(each.detach().clone() for each in state)]
        rate /= 4
        optimizer.param_groups[0]["lr"] = rate
    assert getattr(step, "graphs", 1) > 0
    return [*found, *(each.detach().clone() for each in model.parameters())]


@pytest.mark.parametrize(
    "cut",
    [
        lambda state: tuple(each.detach() for each in state),
        lambda state: (state[0].detach(), state[1].data),
        lambda state: tuple(torch.empty_like(each).copy_(each.detach()) for each in state),
    ],
)
def test_a_state_that_is_handed_on_and_detached_is_bitwise_the_same(cut: Callable[[Any], Any]) -> None:
    expected = _carrying(lambda function: function, cut)
    for one, other in zip(_carrying(graphed_step, cut), expected, strict=True):
        assert torch.equal(one, other)


def test_seeding_again_ends_the_replays_of_a_model_whose_dropout_cudnn_draws() -> None:
    model = _Words().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @graphed_step
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, None)[0].flatten(0, 1), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    x, y = torch.randn(7, 16, 8, device=DEVICE), torch.randint(4, (112,), device=DEVICE)
    for _ in range(6):
        step(x, y)
    assert step.graphs == 1
    torch.manual_seed(1)
    with pytest.warns(RuntimeWarning, match="seeded again"):
        step(x, y)


def test_a_state_that_gradients_flow_through_stays_eager() -> None:
    bias = torch.zeros(4, device=DEVICE, requires_grad=True)

    def run(wrap: Callable[[Any], Any]) -> list[Tensor]:
        found, state = [], torch.zeros(4, device=DEVICE)

        @wrap
        def step(x: Tensor, state: Tensor) -> Tensor:
            bias.grad = None
            state = state + (x * bias).mean(0)
            (state * torch.arange(4.0, device=DEVICE)).sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
            return state

        for n in range(8):
            state = step(torch.full((3, 4), n + 1.0, device=DEVICE), state)
            assert bias.grad is not None
            found.append(bias.grad.clone())
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(torch.stack(run(graphed_step)), torch.stack(run(lambda function: function)))


def test_a_capture_without_memory_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    from perflint.runtime import replay

    def crowded(*_: Any, **__: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    def train(wrap: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(2)
        return list(CASES["optimizer momentum"](wrap))

    expected = train(lambda function, *_: function)
    monkeypatch.setattr(replay.Recorder, "record", crowded)
    made: list[Any] = []

    def graphed(function: Callable[..., Any], *_: Any) -> Any:
        made.append(graphed_step(function))
        return made[-1]

    found = train(graphed)
    reasons = made[0].eager_because
    made[0].clear()
    assert equal(found, expected) and "OutOfMemoryError" in reasons[0]


def test_a_saved_state_goes_on_without_perflint() -> None:
    def run(graphed: bool) -> tuple[list[Any], Any]:
        torch.manual_seed(4)
        model = mlp(0.0)
        optimizer = torch.optim.Adam(model.parameters())
        seen = batches(30)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss

        first = graphed_step(step) if graphed else step
        for x, y in seen[:15]:
            first(x, y)
        kept = optimizer.state_dict()
        fresh = torch.optim.Adam(model.parameters())
        fresh.load_state_dict(kept)
        optimizer = fresh
        losses = [step(x, y).detach().clone() for x, y in seen[15:]]
        shown = [(n, v.device.type) for s in kept["state"].values() for n, v in s.items()], kept["param_groups"]
        with suppress(AttributeError):
            first.clear()  # type: ignore[attr-defined]
        return losses, shown

    (found, shown), (expected, as_eager) = run(True), run(False)
    assert shown == as_eager
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
