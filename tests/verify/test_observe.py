"""What a profiler tells of a device comes onto the host's clock, and is believed only where it is whole."""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from perflint.verify.agent.timeline import Interval, Kineto, seen

CPU, CUDA = "cpu", "cuda"
ZERO = time.time_ns()


@dataclass(frozen=True)
class Event:
    """An event as the profiler has them, in nanoseconds."""

    kind: str
    call: str
    correlation: int
    start: int
    duration: int
    activity: str = "kernel"

    def device_type(self) -> str:
        return self.kind

    def name(self) -> str:
        return self.call

    def correlation_id(self) -> int:
        return self.correlation

    def start_ns(self) -> int:
        return ZERO + self.start

    def duration_ns(self) -> int:
        return self.duration

    def activity_type(self) -> str:
        return self.activity


LAUNCHES = [Event(CPU, "cudaLaunchKernel", number, 1000 * number, 10) for number in range(1, 5)]
SYNC = Event(CPU, "cudaStreamSynchronize", 9, 5000, 700)


def kernels(lag: int) -> list[Event]:
    """One after each launch, the second one as soon as may be, by a clock that is so far ahead."""
    delays = (1, 0, 1, 4)
    return [
        Event(CUDA, "add", each.correlation, each.start + delay + lag, 500)
        for each, delay in zip(LAUNCHES, delays, strict=True)
    ]


def lengths(intervals: list[Interval]) -> list[float]:
    return [round(1e9 * (end - begin)) for begin, end in intervals]


@pytest.mark.parametrize("lag", [0, 3_000_000, -3_000_000])
def test_the_clock_of_the_device_is_set_by_its_quickest_launch(lag: int) -> None:
    busy, waits = seen([*LAUNCHES, SYNC, *kernels(lag)], CUDA)
    assert busy is not None
    assert lengths(busy) == [500] * 4
    assert lengths(waits) == [700]
    (wait,) = waits
    assert [round(1e9 * (wait[0] - begin)) for begin, _ in busy] == [3999, 3000, 1999, 996]


def test_what_torch_s_profiler_tells_is_understood() -> None:
    kineto = Kineto.started(device=False, host=True)
    assert kineto
    torch.ones(64, 64) @ torch.ones(64, 64)
    device = torch.autograd.DeviceType.CPU  # type: ignore[attr-defined]  # as if it were one
    busy, waits = seen(kineto.stop(), device)
    assert busy and all(0 <= end - begin < 60 for begin, end in busy)
    assert not waits
    profile: Any = kineto._profile
    assert not (profile.with_stack or profile.record_shapes or profile.with_flops)  # which slow it, or hold tensors
    kept = weakref.ref(profile)
    del profile
    kineto.close()
    assert kept() is None


def test_where_work_was_lost_nothing_is_said_of_the_device() -> None:
    busy, waits = seen([*LAUNCHES, SYNC, *kernels(0)[2:]], CUDA)
    assert busy is None
    assert lengths(waits) == [700]
    assert seen([], CUDA) == (None, [])


def test_a_graph_is_one_launch_of_much_work() -> None:
    launch = Event(CPU, "cudaGraphLaunch", 1, 0, 10)
    busy, _ = seen([launch, *(Event(CUDA, "add", 1, number, 1) for number in range(100))], CUDA)
    assert busy is not None and len(busy) == 100


def test_a_range_that_the_user_has_named_is_no_work() -> None:
    named = Event(CUDA, "Optimizer.step", 1, 0, 10**9, "gpu_user_annotation")
    busy, _ = seen([*LAUNCHES, *kernels(0), named], CUDA)
    assert busy is not None and len(busy) == 4


def test_setting_no_bytes_of_memory_is_no_work_that_was_lost() -> None:
    nothing = [Event(CPU, "cudaMemsetAsync", number, 4500, 5) for number in range(20, 30)]
    busy, _ = seen([*LAUNCHES, *nothing, *kernels(0)], CUDA)
    assert busy is not None and len(busy) == 4
