"""Programs with what is known to go wrong in graphs of whole steps, each with its step handed to `wrap`."""

# mypy: disable-error-code="no-any-return, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from tests.gpu.step_cases import DEVICE, Course, Wrap, batches, mlp, rand, state

STEPS = 12


def _course(wrap: Wrap, model: nn.Module, loss_of: Callable[..., Tensor], data: Sequence[tuple[Tensor, ...]]) -> Course:
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def step(*batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = wrap(step, optimizer)
    for batch in data:
        yield run(*batch).clone()
    yield state(model, optimizer)


def checkpointed(wrap: Wrap, reentrant: bool) -> Course:
    model = mlp(0.3)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(checkpoint(model, x.requires_grad_(reentrant), use_reentrant=reentrant), y)

    yield from _course(wrap, model, lambda x, y: loss_of(x.clone(), y), batches(STEPS))


def embedding(wrap: Wrap) -> Course:
    """More indices than the small kernel of the backward pass takes."""
    model = nn.Embedding(300, 8).to(DEVICE)
    data = [(torch.randint(300, (4096,), device=DEVICE),) for _ in range(STEPS)]
    yield from _course(wrap, model, lambda x: model(x).square().mean(), data)


def benchmarked(wrap: Wrap) -> Course:
    """cuDNN tries its algorithms out, which allocates and frees."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten()).to(DEVICE)
    torch.backends.cudnn.benchmark = True
    try:
        data = [(rand(8 if n % 6 else 4, 3, 12, 12),) for n in range(2 * STEPS)]
        yield from _course(wrap, model, lambda x: model(x).square().mean(), data)
    finally:
        torch.backends.cudnn.benchmark = False


def autocast_around(wrap: Wrap) -> Course:
    """The step is called where autocast keeps its casts of weights."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = wrap(step, optimizer)
    for x, y in batches(STEPS):
        with torch.autocast("cuda", torch.bfloat16):
            yield run(x, y).clone(), model(x).detach().clone()
    yield state(model)


def streams(wrap: Wrap) -> Course:
    """Two streams take steps in turn."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run, other = wrap(step, optimizer), torch.cuda.Stream()
    for number, (x, y) in enumerate(batches(4 * STEPS)):
        current = torch.cuda.current_stream()
        stream = other if number % 2 else current
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            loss = run(x, y).clone()
        current.wait_stream(stream)
        yield loss
    yield state(model)


def old_loss(wrap: Wrap) -> Course:
    """A loss of before keeps what adds up the gradients, on the stream that it was computed on."""
    model = mlp()
    before = F.cross_entropy(model(rand(16, 8)), torch.randint(4, (16,), device=DEVICE))
    yield from _course(wrap, model, lambda x, y: F.cross_entropy(model(x), y), batches(STEPS))
    yield before.detach()


def branches(wrap: Wrap) -> Course:
    """One function, whose two graphs leave gradients of two models, and compute where the other one has left none."""
    models = [mlp(0.0, 256), mlp(0.0, 256)]
    optimizers = [torch.optim.SGD(each.parameters(), 0.05) for each in models]

    def backward(x: Tensor, y: Tensor, is_first: bool) -> Tensor:
        model = models[0] if is_first else models[1]
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    run = wrap(backward)
    for number, (x, y) in enumerate(batches(4 * STEPS, 64)):
        yield run(x, y, number % 2 == 0).clone()
        yield [p.grad.clone() for each in models for p in each.parameters() if p.grad is not None]
        for optimizer in optimizers:
            optimizer.step()
    yield state(*models)


def kept_gradients(wrap: Wrap) -> Course:
    """Gradients of a smaller batch, which was captured later, are kept while larger ones are replayed."""
    model = mlp(0.0, 256)

    def backward(x: Tensor, y: Tensor) -> Tensor:
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    run, held = wrap(backward), list[Tensor]()
    for number in range(6 * STEPS):
        ((x, y),) = batches(1, 24 if number % 6 == 5 else 64)
        yield run(x, y).clone()
        if number % 6 == 5:
            held = [p.grad for p in model.parameters() if p.grad is not None]
        if number % 6 == 2:
            yield [each.clone() for each in held]
            held = []


def _averaged() -> tuple[nn.Module, Callable[..., Tensor]]:
    model = mlp(0.0)
    average = AveragedModel(model)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        average.update_parameters(model)
        return F.cross_entropy(model(x), y)

    return model, loss_of


def _cumulative() -> tuple[nn.Module, Callable[..., Tensor]]:
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4, momentum=None)).to(DEVICE)
    return model, lambda x, y: F.cross_entropy(model(x), y)


def _compiled() -> tuple[nn.Module, Callable[..., Tensor]]:
    model = mlp(0.0)
    loss = torch.compile(lambda x, y: F.cross_entropy(x, y), backend="eager")
    return model, lambda x, y: loss(model(x), y)


def _synchronizing() -> tuple[nn.Module, Callable[..., Tensor]]:
    """What no operation tells: the capture itself fails, behind random numbers that it has drawn."""
    model = mlp(0.3)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        torch.cuda.synchronize()
        return loss

    return model, loss_of


REFUSED = {
    "averaged model": _averaged,
    "cumulative batch norm": _cumulative,
    "compiled": _compiled,
    "synchronizing": _synchronizing,
}


def refused(wrap: Wrap, name: str) -> Course:
    model, loss_of = REFUSED[name]()
    yield from _course(wrap, model, loss_of, batches(STEPS))


TRAPS: dict[str, Callable[[Wrap], Course]] = {
    "checkpointed": partial(checkpointed, reentrant=False),
    "checkpointed, reentrant": partial(checkpointed, reentrant=True),
    **{case.__name__: case for case in (embedding, benchmarked, autocast_around, streams, old_loss)},
    **{case.__name__: case for case in (branches, kept_gradients)},
}
MAY_BE_EAGER = {"checkpointed", "checkpointed, reentrant", "embedding", "old_loss", "autocast_around"}


@contextmanager
def filled(memory: int) -> Iterator[list[Tensor]]:
    """So much memory, which the allocator has cached in part, holds the same number meanwhile."""
    blocks = [torch.full((2**20,), 7, dtype=torch.uint8, device=DEVICE) for _ in range(memory // 2**20)]
    yield blocks
    assert all(bool((block == 7).all()) for block in blocks)


def products(wrap: Wrap, width: int) -> tuple[Any, Callable[[], Any]]:
    """A step of products over a long dimension, for which cuBLAS needs memory to work in; what it is to be given."""
    model = nn.Linear(2**16, width, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return wrap(step, optimizer), lambda: rand(width, 2**16)
