"""Measures on a GPU what a graph around the whole step gains: `python -m tests.gpu.measure_steps`.

The programs are the steps of pytorch/examples' mnist, vae and word_language_model, PyTorch-GAN's dcgan and cleanrl's
PPO update, in their published sizes, on batches that lie on the device. Losses of 60 steps are compared bit by bit.
"""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perflint.runtime.graphs import graphed_step
from tests.gpu.test_graphed_step import eager

Made = tuple[Callable[..., Any], list[Any], Iterator[tuple[Any, ...]]]  # a step, its optimizers, its batches
DEVICE = torch.device("cuda", 0)
_WINDOWS, _STEPS = 7, 60


def mnist() -> Made:
    net = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1)),
    ).to(DEVICE)
    optimizer = torch.optim.Adadelta(net.parameters(), 1.0)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.nll_loss(net(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    data = [(torch.randn(64, 1, 28, 28, device=DEVICE), torch.randint(10, (64,), device=DEVICE)) for _ in range(8)]
    return step, [optimizer], itertools.cycle(data)


class _Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 784)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def vae() -> Made:
    model = _Vae().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        out, mu, logvar = model(x)
        loss = F.binary_cross_entropy(out, x, reduction="sum")
        loss = loss - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    return step, [optimizer], itertools.cycle([(torch.rand(128, 784, device=DEVICE),) for _ in range(8)])


class _Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(33278, 200)
        self.rnn, self.decoder = nn.LSTM(200, 200, 2, dropout=0.2), nn.Linear(200, 33278)

    def forward(self, x: Tensor, hidden: Any) -> tuple[Tensor, Any]:
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return F.log_softmax(self.decoder(self.drop(out)).view(-1, 33278), 1), hidden


def word_lm() -> Made:
    model = _Words().to(DEVICE)
    hidden = tuple(torch.zeros(2, 20, 200, device=DEVICE) for _ in range(2))

    def step(x: Tensor, y: Tensor, *hidden: Tensor) -> Tensor:
        model.zero_grad()
        out, _ = model(x, hidden)
        loss = F.nll_loss(out, y)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-20 / 35)  # type: ignore[arg-type]
        return loss

    words = torch.randint(33278, (9, 36, 20), device=DEVICE)
    return step, [], itertools.cycle([(each[:-1].clone(), each[1:].flatten(), *hidden) for each in words])


def ppo() -> Made:
    def net(out: int) -> nn.Module:
        return nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out)).to(DEVICE)

    actor, critic, logstd = net(6), net(1), nn.Parameter(torch.zeros(1, 6, device=DEVICE))
    parameters = [*actor.parameters(), *critic.parameters(), logstd]
    optimizer = torch.optim.Adam(parameters, 3e-4, eps=1e-5)

    def step(obs: Tensor, action: Tensor, old: Tensor, adv: Tensor, ret: Tensor, value: Tensor) -> Tensor:
        mean = actor(obs)
        normal = torch.distributions.Normal(mean, logstd.expand_as(mean).exp(), validate_args=False)
        log, entropy = normal.log_prob(action).sum(1), normal.entropy().sum(1)  # type: ignore[no-untyped-call]
        ratio = (log - old).exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        policy = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
        new = critic(obs).view(-1)
        clipped = value + torch.clamp(new - value, -0.2, 0.2)
        critics = 0.5 * torch.max((new - ret) ** 2, (clipped - ret) ** 2).mean()
        loss: Tensor = policy - 0.0 * entropy.mean() + critics * 0.5
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        return loss

    shapes = ((64, 17), (64, 6), (64,), (64,), (64,), (64,))
    data = [tuple(torch.randn(shape, device=DEVICE) for shape in shapes) for _ in range(8)]
    return step, [optimizer], itertools.cycle(data)


def dcgan() -> Made:
    def block(i: int, o: int, bn: bool = True) -> list[nn.Module]:
        norm: list[nn.Module] = [nn.BatchNorm2d(o, 0.8)] if bn else []
        return [nn.Conv2d(i, o, 3, 2, 1), nn.LeakyReLU(0.2), nn.Dropout2d(0.25), *norm]

    g = nn.Sequential(
        *(nn.Linear(100, 128 * 64), nn.Unflatten(1, (128, 8, 8)), nn.BatchNorm2d(128), nn.Upsample(scale_factor=2)),
        *(nn.Conv2d(128, 128, 3, 1, 1), nn.BatchNorm2d(128, 0.8), nn.LeakyReLU(0.2), nn.Upsample(scale_factor=2)),
        *(nn.Conv2d(128, 64, 3, 1, 1), nn.BatchNorm2d(64, 0.8), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 3, 1, 1)),
        nn.Tanh(),
    ).to(DEVICE)
    parts = [*block(1, 16, False), *block(16, 32), *block(32, 64), *block(64, 128)]
    d = nn.Sequential(*parts, nn.Flatten(), nn.Linear(128 * 4, 1), nn.Sigmoid()).to(DEVICE)
    og, od = (torch.optim.Adam(each.parameters(), 2e-4, betas=(0.5, 0.999)) for each in (g, d))

    def step(real: Tensor, valid: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        og.zero_grad()
        made = g(torch.randn(64, 100, device=real.device))
        lossg = F.binary_cross_entropy(d(made), valid)
        lossg.backward()  # type: ignore[no-untyped-call]
        og.step()
        od.zero_grad()
        lossd = (F.binary_cross_entropy(d(real), valid) + F.binary_cross_entropy(d(made.detach()), fake)) / 2
        lossd.backward()  # type: ignore[no-untyped-call]
        od.step()
        return lossg, lossd

    ends = torch.ones(64, 1, device=DEVICE), torch.zeros(64, 1, device=DEVICE)
    return step, [og, od], itertools.cycle([(torch.randn(64, 1, 32, 32, device=DEVICE), *ends) for _ in range(8)])


def seconds(run: Callable[..., Any], batches: Iterator[tuple[Any, ...]]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for batch in itertools.islice(batches, _STEPS):
        run(*batch)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / _STEPS


def losses(make: Callable[[], Made], graphed: bool) -> list[Any]:
    torch.manual_seed(1)
    step, optimizers, batches = make()
    run = graphed_step(step) if graphed else eager(step, *optimizers)
    found = []
    for batch in itertools.islice(batches, 60):
        result = run(*batch)
        found.append(torch.stack([each.detach() for each in (result if isinstance(result, tuple) else (result,))]))
    if graphed:
        run.clear()  # type: ignore[attr-defined]
    return [torch.stack(found), torch.cuda.get_rng_state()]


def main() -> None:
    """Print a line for each program."""
    warnings.simplefilter("ignore")
    print(torch.__version__, torch.cuda.get_device_name())
    for make in (mnist, vae, word_lm, ppo, dcgan):
        one, other, again = losses(make, True), losses(make, False), losses(make, False)
        same = [bool(torch.equal(*pair)) for pair in zip(one, other, strict=True)]
        own = bool(torch.equal(other[0], again[0]))
        apart = float(((one[0] - other[0]).abs() / other[0].abs()).max())
        (plain, _, data), (step, _, other_data) = make(), make()
        run = graphed_step(step)
        for _ in range(2):
            seconds(plain, data), seconds(run, other_data)
        pairs = [(seconds(plain, data), seconds(run, other_data)) for _ in range(_WINDOWS)]
        eager_ms, graphed_ms = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        ratios = sorted(a / b for a, b in pairs)
        print(
            f"{make.__name__}: eager {eager_ms:.2f} ms, graphed {graphed_ms:.3f} ms, {statistics.median(ratios):.1f}x "
            f"({ratios[0]:.1f} to {ratios[-1]:.1f}); losses bitwise {same[0]} (eager with itself {own}, apart "
            f"{apart:.1e}), generator {same[1]}; {run.bytes / 2**20:.0f} MiB; {run.eager_because}",
            flush=True,
        )
        run.clear()


if __name__ == "__main__":
    main()
