"""Ranks that train together take each step in the same way, whatever is different in one of them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from perflint.runtime import ranks, records, scene, step
from perflint.runtime.ranks import Ranks, Vote

SECONDS = 60  # after which a process that waits for the other one fails
Course = Callable[[int], Any]


def pair(tmp_path: Path, course: Course) -> tuple[Any, Any]:
    """What the course of a program returns in each of two ranks."""
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        store = f"file://{tmp_path}/store"
        distributed.init_process_group("gloo", store, timedelta(seconds=SECONDS), 2, rank)
        try:
            told.put((rank, course(rank)))
        finally:
            distributed.destroy_process_group()

    processes = [context.Process(target=run, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(2 * SECONDS)
    assert [process.exitcode for process in processes] == [0, 0]
    (_, first), (_, second) = sorted(told.get() for _ in processes)
    return first, second


def wrapped(**options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)), **options)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = model(x).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss


class Replay:
    """A step that stands for its graph: taken eagerly, and counted."""

    taken = 0
    bytes = 0
    held = False
    fails = False

    def __init__(self, call: Any, *_: Any) -> None:
        if Replay.fails:
            raise RuntimeError("no graph here")
        self._call = call

    def is_held(self) -> bool:
        return Replay.held

    def is_reseeded(self) -> bool:
        return False

    def __call__(self, inputs: list[Tensor]) -> Any:
        Replay.taken += 1
        return self._call.function(*inputs)


def pretend() -> None:
    """Have tensors of the host pass for those of a device, with nothing that could be captured there."""
    stream = SimpleNamespace(cuda_stream=0)
    torch.Tensor.is_cuda = property(lambda _: True)  # type: ignore[assignment]
    torch.Tensor.get_device = lambda _: 0  # type: ignore[method-assign,assignment]
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    cuda.is_current_stream_capturing = lambda: False
    cuda.current_device = lambda: 0
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    cuda.stream = lambda *_: nullcontext()
    cuda.get_device_properties = lambda *_: SimpleNamespace(total_memory=2**40)
    records.has_cuda.cache_clear()
    records._COPIES = ()  # type: ignore[assignment]
    modules: tuple[Any, ...] = (scene, step)
    for module in modules:
        module.aside = lambda *_: nullcontext()
    step.side_stream = lambda *_: stream  # type: ignore[assignment,attr-defined]
    step.StepReplay = Replay  # type: ignore[assignment,attr-defined]
    ranks.refusal = lambda *_: None


def steps_of(rank: int, disturb: Callable[[int, int], Any], number: int = 30) -> tuple[list[int], list[float], Any]:
    """How many steps were replayed by the end of each, the parameters at the end, and why steps stay eager."""
    pretend()
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @step.graphed_step
    def take(x: Tensor) -> Tensor:
        return trained(model, optimizer, x)

    replayed = []
    for count in range(number):
        x = torch.randn(disturb(rank, count) or 6, 4, generator=torch.Generator().manual_seed(2 * count + rank))
        take(x)
        replayed.append(Replay.taken)
    return replayed, [each.sum().item() for each in model.parameters()], take.eager_because


def plainly(rank: int) -> list[float]:
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for count in range(30):
        trained(model, optimizer, torch.randn(6, 4, generator=torch.Generator().manual_seed(2 * count + rank)))
    return [each.sum().item() for each in model.parameters()]


@pytest.fixture
def expected(tmp_path: Path) -> Iterator[list[float]]:
    folder = tmp_path / "plainly"
    folder.mkdir()
    yield pair(folder, plainly)[0]


def test_ranks_replay_the_same_steps_after_those_that_are_timed(tmp_path: Path, expected: list[float]) -> None:
    (first, parameters, reasons), (second, others, _) = pair(tmp_path, lambda rank: steps_of(rank, lambda *_: None))
    assert first == second and first[-1] >= 15 and not any(first[:11])
    assert parameters == others == expected and not reasons


def test_a_batch_of_another_size_in_one_rank_is_taken_eagerly_by_both(tmp_path: Path) -> None:
    def other_size(rank: int, count: int) -> int:
        return 5 if rank == 1 and count % 7 == 0 else 6

    (first, parameters, _), (second, others, _) = pair(tmp_path, lambda rank: steps_of(rank, other_size))
    assert first == second and first[-1] == 17
    assert first[14] == first[13]  # of that size it is the first that is watched
    assert parameters == others


def test_gradients_that_one_rank_holds_keep_both_eager(tmp_path: Path) -> None:
    def hold(rank: int, count: int) -> None:
        Replay.held = rank == 0 and 20 <= count < 25

    (first, parameters, _), (second, others, _) = pair(tmp_path, lambda rank: steps_of(rank, hold))
    assert first == second and first[19] == first[24] < first[29]
    assert parameters == others


def test_a_capture_that_fails_in_one_rank_is_used_by_none(tmp_path: Path, expected: list[float]) -> None:
    def fail(rank: int, _: int) -> None:
        Replay.fails = rank == 1

    (first, parameters, here), (second, _, there) = pair(tmp_path, lambda rank: steps_of(rank, fail))
    assert first == second == [0] * 30
    assert parameters == expected
    assert "another process" in here[0] and "no graph here" in there[0]


def test_what_one_rank_refuses_is_refused_by_both(tmp_path: Path, expected: list[float]) -> None:
    def draw(rank: int, _: int) -> None:
        ranks.refusal = lambda *_: "no" if rank == 1 else None

    (first, parameters, here), (_, _, there) = pair(tmp_path, lambda rank: steps_of(rank, draw))
    assert not any(first) and parameters == expected
    assert "another process" in here[0] and there == ("no",)


def test_the_least_vote_counts(tmp_path: Path) -> None:
    def vote(rank: int) -> list[Vote]:
        group = Ranks([], lambda: None)
        return [group.agree(each) for each in (Vote.REPLAYED, Vote.CAPTURED if rank else Vote.WATCHED, Vote.REPLAYED)]

    assert pair(tmp_path, vote) == ([Vote.REPLAYED, Vote.WATCHED, Vote.REPLAYED],) * 2


def test_graphs_are_freed_before_the_group_is_destroyed(tmp_path: Path) -> None:
    def ends(_: int) -> list[bool]:
        freed: list[bool] = []
        Ranks([], lambda: freed.append(distributed.is_initialized()))
        distributed.destroy_process_group()
        distributed.init_process_group("gloo", f"file://{tmp_path}/again", None, 2, _)
        return freed

    assert pair(tmp_path, ends) == ([True], [True])


@pytest.mark.parametrize(
    ("options", "reason"),
    [({}, "exchanges gradients by the host"), ({"find_unused_parameters": True}, "exchanges gradients by the host")],
)
def test_only_nccl_is_captured(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert pair(tmp_path, lambda _: ranks.refusal(wrapped(**options)))[0] == f"DistributedDataParallel {reason}"


def test_nccl_does_not_register_what_is_captured_in_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for ranked, expected in ((False, None), (True, "0")):
        monkeypatch.setattr(os, "environ", {"RANK": "0"} if ranked else {})
        ranks.avoid_handshakes()
        assert os.environ.get("NCCL_GRAPH_REGISTER") == expected
