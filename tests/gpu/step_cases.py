"""Programs that train, each with its step handed to `wrap`, and yield what they compute after each step."""

# mypy: disable-error-code="no-any-return, index, union-attr, operator, no-untyped-call"

from __future__ import annotations

import copy
import io
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules

Wrap = Callable[..., Callable[..., Any]]  # a step, and the optimizers that it steps
Course = Iterator[Any]
STEPS = 200
DEVICE = torch.device("cuda", 0)


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE)


def mlp(dropout: float = 0.1, width: int = 32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 4)).to(DEVICE)


def batches(count: int = 16, size: int = 16) -> list[tuple[Tensor, Tensor]]:
    return [(rand(size, 8), torch.randint(4, (size,), device=DEVICE)) for _ in range(count)]


def state(*owners: Any) -> list[Any]:
    """All tensors of models, and rates and states of optimizers as their state dicts show them."""
    found: list[Any] = []
    for owner in owners:
        kept = owner.state_dict()
        if isinstance(owner, nn.Module):
            found += [value.clone() for value in kept.values()]
            found += [None if p.grad is None else p.grad.clone() for p in owner.parameters()]
        else:
            found += [(group["lr"], group.get("capturable")) for group in kept["param_groups"]]
            found += [
                value.clone() if isinstance(value, Tensor) else value
                for each in kept["state"].values()
                for value in each.values()
            ]
    return found


def simple(
    wrap: Wrap,
    model: nn.Module,
    optimizer: Any,
    *,
    clip: float = 0.0,
    first: bool = True,
    to_none: bool = True,
    steps: int = STEPS,
    schedule: Callable[[Any], Any] | None = None,
) -> Course:
    """The usual step, with its variations."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        if first:
            optimizer.zero_grad(set_to_none=to_none)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if not first:
            optimizer.zero_grad(set_to_none=to_none)
        return loss

    run = wrap(step, optimizer)
    scheduler = schedule(optimizer) if schedule else None
    for number, (x, y) in enumerate(itertools.islice(itertools.cycle(batches()), steps)):
        loss = run(x, y)
        if scheduler:
            scheduler.step(*([loss.item()] if isinstance(scheduler, schedules.ReduceLROnPlateau) else []))
        yield loss.detach().clone(), optimizer.param_groups[0]["lr"]
        if number % 50 == 49:
            yield state(model, optimizer)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "fused sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-3),
    "fused adam": lambda p: torch.optim.Adam(p, 1e-3, fused=True),
    "amsgrad": lambda p: torch.optim.AdamW(p, 1e-3, amsgrad=True, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1),
    "tensor rate": lambda p: torch.optim.AdamW(p, torch.tensor(1e-3, device=DEVICE), capturable=True),
    "adamax": lambda p: torch.optim.Adamax(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.5),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "adadelta": lambda p: torch.optim.Adadelta(p),
}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: schedules.StepLR(o, 40, 0.5),
    "multi": lambda o: schedules.MultiStepLR(o, [30, 90]),
    "constant": lambda o: schedules.ConstantLR(o, 0.5, 20),
    "linear": lambda o: schedules.LinearLR(o, 0.1, total_iters=50),
    "exponential": lambda o: schedules.ExponentialLR(o, 0.99),
    "polynomial": lambda o: schedules.PolynomialLR(o, 150, 2.0),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 100),
    "cyclic": lambda o: schedules.CyclicLR(o, 1e-4, 1e-2, 20, cycle_momentum=False),
    "one cycle": lambda o: schedules.OneCycleLR(o, 1e-2, total_steps=STEPS + 1),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 30),
    "lambda": lambda o: schedules.LambdaLR(o, lambda n: 1 / (1 + n)),
    "multiplicative": lambda o: schedules.MultiplicativeLR(o, lambda n: 0.99),
    "sequential": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, total_iters=20), schedules.ExponentialLR(o, 0.98)], [20]
    ),
    "chained": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, 0.5, 9), schedules.ExponentialLR(o, 0.99)]
    ),
    "plateau": lambda o: schedules.ReduceLROnPlateau(o, patience=3),
}


def optimizer_case(name: str) -> Callable[[Wrap], Course]:
    def course(wrap: Wrap) -> Course:
        model = mlp()
        yield from simple(wrap, model, OPTIMIZERS[name](model.parameters()), clip=1.0)

    return course


def schedule_case(name: str, optimizer: str) -> Callable[[Wrap], Course]:
    def course(wrap: Wrap) -> Course:
        model = mlp()
        yield from simple(wrap, model, OPTIMIZERS[optimizer](model.parameters()), schedule=SCHEDULES[name])

    return course


def zero_grad_case(first: bool, to_none: bool) -> Callable[[Wrap], Course]:
    def course(wrap: Wrap) -> Course:
        model = mlp()
        yield from simple(wrap, model, OPTIMIZERS["momentum"](model.parameters()), first=first, to_none=to_none)

    return course


def batch_norm(wrap: Wrap) -> Course:
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).to(DEVICE)
    yield from simple(wrap, model, torch.optim.Adam(model.parameters()), clip=0.5)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.rnn = nn.LSTM(16, 16, 2, dropout=0.3)
        self.out = nn.Linear(16, 50)

    def forward(self, x: Tensor, hidden: Any) -> Any:
        y, hidden = self.rnn(self.embedding(x), hidden)
        return self.out(y), hidden


def recurrent(wrap: Wrap) -> Course:
    model = Words().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)

    def step(x: Tensor, y: Tensor, hidden: Any) -> Any:
        optimizer.zero_grad()
        out, hidden = model(x, tuple(each.detach() for each in hidden))
        loss = F.cross_entropy(out.flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss.detach(), tuple(each.detach() for each in hidden)

    run, hidden = wrap(step, optimizer), (torch.zeros(2, 4, 16, device=DEVICE), torch.zeros(2, 4, 16, device=DEVICE))
    words = torch.randint(50, (STEPS + 1, 6, 4), device=DEVICE)
    for number in range(STEPS):
        loss, hidden = run(words[number], words[number + 1], hidden)
        yield loss.clone(), [each.clone() for each in hidden]
    yield state(model)


def autocast(wrap: Wrap) -> Course:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step, optimizer)
    for x, y in batches(STEPS):
        yield run(x, y).detach().clone()
    yield state(model, optimizer)


def accumulation(wrap: Wrap) -> Course:
    """Steps of backward passes alone; the optimizer steps outside, after four of them."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def backward(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        return loss.detach()

    run = wrap(backward)
    for number, (x, y) in enumerate(batches(STEPS)):
        yield run(x, y).clone()
        if number % 4 == 3:
            yield [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.step()
            optimizer.zero_grad()
    yield state(model, optimizer)


def scaling(wrap: Wrap) -> Course:
    """A GradScaler outside, which skips the first steps: the scale is too large for halves."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=50)

    def backward(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        return loss.detach()

    run = wrap(backward)
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        yield run(x, y).clone()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        yield scaler.get_scale()
    yield state(model, optimizer)


def data_parallel(wrap: Wrap) -> Course:
    """One device of several runs the module itself."""
    inner = mlp()
    model = nn.DataParallel(inner, [0])
    optimizer = torch.optim.SGD(inner.parameters(), 0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step, optimizer)
    for x, y in batches(STEPS):
        yield run(x, y).detach().clone()
    yield state(inner, optimizer)


def accumulation_by_turns(wrap: Wrap) -> Course:
    """The host says when the optimizer steps: a graph for either answer."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Tensor, y: Tensor, is_due: bool) -> Tensor:
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        if is_due:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    run = wrap(step, optimizer)
    for number, (x, y) in enumerate(batches(STEPS)):
        yield run(x, y, (number + 1) % 4 == 0).clone()
    yield state(model, optimizer)


def accumulation_inside(wrap: Wrap) -> Course:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def step(xs: Tensor, ys: Tensor) -> list[Tensor]:
        optimizer.zero_grad()
        losses = []
        for x, y in zip(xs.chunk(4), ys.chunk(4), strict=True):
            loss = F.cross_entropy(model(x), y)
            (loss / 4).backward()
            losses.append(loss.detach())
        optimizer.step()
        return losses

    run = wrap(step, optimizer)
    for x, y in batches(STEPS):
        yield [loss.clone() for loss in run(x, y)]
    yield state(model, optimizer)


def average(wrap: Wrap) -> Course:
    """An exponential moving average of the parameters, kept in the step."""
    model = mlp()
    kept = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(model.parameters(), kept.parameters(), strict=True):
                q.lerp_(p, 0.01)
        return loss

    run = wrap(step, optimizer)
    for x, y in batches(STEPS):
        yield run(x, y).detach().clone()
    yield state(model, kept)


def _players() -> Any:
    g, d = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)).to(DEVICE), mlp(0.0)
    return g, d, torch.optim.Adam(g.parameters(), 2e-4), torch.optim.Adam(d.parameters(), 2e-4, betas=(0.5, 0.999))


def gan(wrap: Wrap) -> Course:
    g, d, og, od = _players()

    def step(real: Tensor) -> tuple[Tensor, Tensor]:
        od.zero_grad()
        fake = g(torch.randn(16, 4, device=real.device))
        lossd = d(fake.detach()).square().mean() - d(real).square().mean().clamp(max=1)
        lossd.backward()
        od.step()
        og.zero_grad()
        lossg = -d(fake).square().mean()
        lossg.backward()
        og.step()
        return lossd, lossg

    run = wrap(step, od, og)
    for x, _ in batches(STEPS):
        yield [loss.detach().clone() for loss in run(x)]
    yield state(g, d, og, od)


def critic(wrap: Wrap) -> Course:
    """A critic that steps at each batch and a generator that steps at every third, each a graph of its own."""
    g, d, og, od = _players()

    def critic_step(real: Tensor) -> Tensor:
        od.zero_grad()
        with torch.no_grad():
            fake = g(torch.randn(16, 4, device=real.device))
        loss = d(fake).mean() - d(real).mean()
        loss.backward()
        od.step()
        with torch.no_grad():
            for p in d.parameters():
                p.clamp_(-0.1, 0.1)
        return loss.detach()

    def generator_step() -> Tensor:
        og.zero_grad()
        loss = -d(g(torch.randn(16, 4, device=DEVICE))).mean()
        loss.backward()
        og.step()
        return loss.detach()

    one, other = wrap(critic_step, od), wrap(generator_step, og)
    for number, (x, _) in enumerate(batches(STEPS)):
        yield one(x).clone()
        if number % 3 == 2:
            yield other().clone()
    yield state(g, d, og, od)


def last_batch(wrap: Wrap) -> Course:
    """Epochs that end in a smaller batch, and an evaluation after each."""
    model = nn.Sequential(mlp(), nn.BatchNorm1d(4)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, seen = wrap(step, optimizer), [*batches(9), *batches(1, 7)]
    for _ in range(STEPS // 10):
        model.train()
        total = torch.zeros((), device=DEVICE)
        for x, y in seen:
            loss = run(x, y)
            total += loss.detach()
        yield total, loss.item()
        model.eval()
        with torch.no_grad():
            yield model(seen[0][0])
    yield state(model, optimizer)


def shapes(wrap: Wrap) -> Course:
    """Batches of ever changing lengths."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step, optimizer)
    for number in range(STEPS):
        yield run(rand(3 + number * 7 % 11, 8)).detach().clone()
    yield state(model, optimizer)


def modes(wrap: Wrap) -> Course:
    """Training in evaluation mode for a while, and frozen parameters that are unfrozen later."""
    model = nn.Sequential(mlp(0.5), nn.BatchNorm1d(4)).to(DEVICE)
    for p in model[0][0].parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step, optimizer)
    for number, (x, y) in enumerate(batches(STEPS)):
        model.train(number // 25 % 2 == 0)
        for p in model[0][0].parameters():
            p.requires_grad_(number >= 80)
        yield run(x, y).detach().clone()
    yield state(model, optimizer)


def resume(wrap: Wrap) -> Course:
    """A checkpoint in the middle: saved, trained on, loaded, trained again."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, file = wrap(step, optimizer), io.BytesIO()
    for number, (x, y) in enumerate(batches(STEPS)):
        yield run(x, y).detach().clone()
        scheduler.step()
        if number == 60:
            torch.save((model.state_dict(), optimizer.state_dict(), scheduler.state_dict()), file)
        if number in (90, 91, 120):
            file.seek(0)
            one, two, three = torch.load(file, weights_only=False)
            model.load_state_dict(one)
            optimizer.load_state_dict(two)
            scheduler.load_state_dict(three)
            yield state(model, optimizer)
    yield state(model, optimizer)


def meddling(wrap: Wrap) -> Course:
    """User code that reads and keeps gradients, writes parameters and rates, and frees the optimizer's state."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, kept = wrap(step, optimizer), []
    for number, (x, y) in enumerate(batches(STEPS)):
        yield run(x, y).detach().clone()
        if number % 10 == 0:
            kept = [p.grad for p in model.parameters()]
        if number % 10 == 5:
            yield [each.clone() for each in kept if each is not None]
            kept = [p.grad.view(-1) for p in model.parameters() if p.grad is not None]
        if number % 10 == 7:
            yield [each.clone() for each in kept]
            kept = []
        if number == 50:
            with torch.no_grad():
                model[0].weight.mul_(0.5)
        if number == 70:
            optimizer.param_groups[0]["momentum"] = 0.5
        if number == 90:
            optimizer.state.clear()
        if number == 110:
            model[0].weight.data = model[0].weight.data.clone()
        if number == 130:
            model.zero_grad()
    yield state(model, optimizer)


def raising(wrap: Wrap) -> Course:
    """A step that raises for some arguments, after its backward pass."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Tensor, y: Tensor, fails: bool) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if fails:
            raise ValueError("as asked")
        optimizer.step()
        return loss

    run = wrap(step, optimizer)

    def attempt(number: int, x: Tensor, y: Tensor) -> Any:
        try:
            return run(x, y, number % 40 == 30).detach().clone()
        except ValueError as error:
            return str(error)

    for number, (x, y) in enumerate(batches(STEPS)):
        yield attempt(number, x, y)
    yield state(model, optimizer)


def host_numbers(wrap: Wrap) -> Course:
    """A number that changes from call to call, so that there is never a graph for it."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(x: Tensor, y: Tensor, weight: float) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * weight
        loss.backward()
        optimizer.step()
        return loss

    run = wrap(step, optimizer)
    for number, (x, y) in enumerate(batches(STEPS)):
        yield run(x, y, 1 / (1 + number)).detach().clone()
    yield state(model, optimizer)


class _Config:
    weight = 1.0


def host_settings(wrap: Wrap) -> Course:
    """Numbers in a class, a dict, an array and a loss of torch's that change between epochs."""
    model, criterion = mlp(), torch.nn.CrossEntropyLoss()
    options: dict[str, float] = defaultdict(lambda: 1.0)
    optimizer, scales = torch.optim.SGD(model.parameters(), 0.05), np.ones(2)
    _Config.weight = 1.0

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = criterion(model(x), y) * _Config.weight * options["scale"] * float(scales[0])
        loss.backward()
        optimizer.step()
        return loss

    changes: list[Callable[[], object]] = [
        lambda: setattr(_Config, "weight", 0.5),
        lambda: options.update(scale=0.5),
        lambda: scales.__imul__(0.5),
        lambda: setattr(criterion, "label_smoothing", 0.1),
    ]
    run = wrap(step, optimizer)
    for change in (lambda: None, *changes):
        change()
        for x, y in batches(8):
            yield run(x, y).detach().clone()
    yield state(model, optimizer)


CASES: dict[str, Callable[[Wrap], Course]] = {
    **{f"optimizer {name}": optimizer_case(name) for name in OPTIMIZERS},
    **{f"schedule {name}": schedule_case(name, "adamw") for name in SCHEDULES},
    **{f"schedule of sgd {name}": schedule_case(name, "sgd") for name in ("step", "cosine")},
    "zero first, to none": zero_grad_case(True, True),
    "zero first, in place": zero_grad_case(True, False),
    "zero last, to none": zero_grad_case(False, True),
    "zero last, in place": zero_grad_case(False, False),
    **{case.__name__: case for case in (batch_norm, recurrent, autocast, average, gan, critic, last_batch, shapes)},
    **{
        case.__name__: case
        for case in (accumulation, accumulation_by_turns, accumulation_inside, modes, resume, meddling, raising)
    },
    **{case.__name__: case for case in (scaling, data_parallel)},
    "host_numbers": host_numbers,
    "host_settings": host_settings,
}
