"""A rank that takes steps eagerly and as graphs: `torchrun --nproc-per-node 2 -m tests.gpu.rank_steps CASE`.

Prints, from the first rank, a line of JSON: whether both are the same, their milliseconds, and why steps stay eager.
`buckets` instead times what an expert would try on the exchange of gradients.
"""

from __future__ import annotations

import faulthandler
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from perflint.runtime import optimizers as optim
from perflint.runtime.step import graphed_step

IS_GPU = torch.cuda.is_available()
STEPS, TIMED = 60, 200 if IS_GPU else 5
PATIENCE = 65  # seconds that a case may take
_UNPREPARED = 12  # calls: those that DistributedDataParallel times, and the first one that is watched
_WIDTH, _DEPTH = (4096, 12) if IS_GPU else (64, 4)  # of the model whose gradients take long to be sent
_MICRO = 4  # batches whose gradients are added up


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))


@dataclass(frozen=True)
class Case:
    """A model, its optimizer, options of its wrapper, and how many rows a rank's batch has at a step."""

    model: Callable[[], nn.Module] = small
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda found: torch.optim.SGD(found, 0.01, momentum=0.9)
    options: dict[str, Any] = field(default_factory=dict)
    rows: Callable[[int, int], int] = lambda rank, step: 16
    clips: bool = False
    accumulates: bool = False


Manner = Callable[[Any, torch.optim.Optimizer], Any]
CASES = {
    "sgd": Case(),
    "adam": Case(normed, lambda found: torch.optim.Adam(found, 1e-3), clips=True),
    "views": Case(options={"gradient_as_bucket_view": True}),
    "uneven": Case(rows=lambda rank, step: 11 if rank == 1 and step % 7 == 0 else 16),
    "accumulated": Case(accumulates=True),
    "unused": Case(options={"find_unused_parameters": True}),  # stays eager
}


class Training:
    """One run of a case from its start: `step` takes a batch, in the `manner` in which a step's function is run."""

    def __init__(self, case: Case, device: torch.device, manner: Manner = lambda step, _: step) -> None:
        torch.manual_seed(1)
        self._case, self._device, self._rank = case, device, distributed.get_rank()
        inner = case.model().to(device)
        self.model = model = DistributedDataParallel(inner, [device] if IS_GPU else None, **case.options)
        optimizer = case.optimizer(model.parameters())

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            if case.accumulates:
                with model.no_sync():
                    (model(x) - y).square().mean().backward()
            loss: Tensor = (model(x) - y).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            if case.clips:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        self.step = manner(step, optimizer)

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 * number + self._rank)
        x = torch.randn(self._case.rows(self._rank, number), 32, generator=generator)
        return x.to(self._device), x.sum(1, keepdim=True).to(self._device)

    def course(self) -> list[Tensor]:
        """Each loss, then the parameters, buffers and gradients at the end."""
        torch.manual_seed(2)
        losses = [self.step(*self.batch(number)).detach().clone() for number in range(STEPS)]
        state = [each.detach().clone() for each in self.model.state_dict().values()]
        gradients = [each.grad.clone() for each in self.model.parameters() if each.grad is not None]
        return [*losses, *state, *gradients]

    def milliseconds(self) -> float:
        batch = self.batch(1)
        return timed(lambda: self.step(*batch))


def eagerly(step: Any, optimizer: torch.optim.Optimizer) -> Any:
    """The same steps with the same form of the optimizer, without graphs."""
    calls = 0

    def run(*batch: Tensor) -> Any:
        nonlocal calls
        calls += 1
        if IS_GPU and calls > _UNPREPARED:
            optim.prepare([optimizer])
        with optim.capturable([optimizer]):
            return step(*batch)

    return run


def synchronize() -> None:
    if IS_GPU:
        torch.cuda.synchronize()


def timed(step: Callable[[], object], number: int = TIMED) -> float:
    """The milliseconds of a step: the median of five windows, of the slowest rank."""
    windows = []
    for _ in range(5):
        distributed.barrier()
        synchronize()
        begin = time.perf_counter()
        for _ in range(number):
            step()
        synchronize()
        windows.append((time.perf_counter() - begin) / number * 1e3)
    slowest = torch.tensor(statistics.median(windows), device="cuda" if IS_GPU else "cpu")
    distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
    return float(slowest)


def compared(name: str, device: torch.device) -> dict[str, object]:
    """A case, eagerly and as graphs."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    eager = Training(CASES[name], device, eagerly)
    graphed = Training(CASES[name], device, lambda step, _: graphed_step(step))
    expected, found = eager.course(), graphed.course()
    worst = max(float((one - other).abs().max()) for one, other in zip(expected, found, strict=True))
    same = all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    agreed = torch.tensor(same, dtype=torch.int32, device=device)
    distributed.all_reduce(agreed, distributed.ReduceOp.MIN)
    plain = Training(CASES[name], device)
    for number in range(3):
        plain.step(*plain.batch(number))
    return {
        "case": name,
        "is_bitwise": bool(agreed),
        "worst": worst,
        "graphs": graphed.step.graphs,
        "reasons": graphed.step.eager_because,
        "graphed_ms": graphed.milliseconds(),
        "eager_ms": plain.milliseconds(),
        "vote_ms": vote_ms(),
    }


def vote_ms() -> float:
    """What one vote of all ranks takes."""
    group = distributed.new_group(backend="gloo")
    number = torch.zeros(1, dtype=torch.int64)
    return timed(lambda: distributed.all_reduce(number, group=group))


def exchanges(device: torch.device) -> dict[str, object]:
    """Milliseconds of a step with other buckets, and of one that adds up the gradients of several batches."""
    x = torch.randn(256, _WIDTH, device=device)

    def stepping(micro: int = 1, *, waits: bool = False, **options: Any) -> float:
        torch.manual_seed(1)
        with device:
            layers = [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU()) for _ in range(_DEPTH)]
        model = DistributedDataParallel(nn.Sequential(*layers), [device] if IS_GPU else None, **options)
        optimizer = torch.optim.SGD(model.parameters(), 1e-4)

        def step() -> None:
            optimizer.zero_grad()
            for number in range(micro):
                with model.no_sync() if waits and number < micro - 1 else nullcontext():
                    model(x).square().mean().backward()
            optimizer.step()

        for _ in range(5):
            step()
        return timed(step, 10 if IS_GPU else 2)

    caps = {f"bucket_cap_mb={each}": stepping(bucket_cap_mb=each) for each in (1, 25, 100, 400)}
    views = {
        "gradient_as_bucket_view": stepping(gradient_as_bucket_view=True),
        "static_graph": stepping(static_graph=True),
    }
    added = {f"{_MICRO} batches": stepping(_MICRO), f"{_MICRO} batches, no_sync": stepping(_MICRO, waits=True)}
    return {
        "case": "buckets",
        **caps,
        **views,
        "both": stepping(bucket_cap_mb=100, gradient_as_bucket_view=True),
        **added,
    }


def main(name: str) -> None:
    """Run a case, and print what was found."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if IS_GPU else torch.device("cpu")
    if IS_GPU:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if IS_GPU else "gloo")
    found = exchanges(device) if name == "buckets" else compared(name, device)
    if distributed.get_rank() == 0:
        print(json.dumps(found), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
