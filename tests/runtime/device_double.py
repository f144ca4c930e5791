"""A device without one: tensors of the host pass for a device's, and a graph that is replayed does nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from perflint.runtime import records, scene, step, step_replay


@dataclass
class Device:
    """How often something was captured and replayed."""

    captures: int = 0
    replays: int = 0

    def replay(self) -> None:
        self.replays += 1


class _Recorder:
    def __init__(self, device: Device, _devices: Any, _state: Any, pool: Any = None) -> None:
        self._double, self.pool, self.bytes = device, pool or object(), 0
        self.device = SimpleNamespace(index=0)

    def record(self, body: Callable[[], Any]) -> tuple[Any, Any]:
        self._double.captures += 1
        return _Graph(self._double), body()


class _Graph:
    """A graph, which can be held weakly."""

    def __init__(self, device: Device) -> None:
        self.replay = device.replay


@contextmanager
def a_device() -> Iterator[Device]:
    device = Device()
    with ExitStack() as stack:
        stack.callback(records.has_cuda.cache_clear)
        for place, name, value in _doubles(device):
            stack.enter_context(patch.object(place, name, value, create=True))
        records.has_cuda.cache_clear()
        yield device


def _doubles(device: Device) -> Iterator[tuple[Any, str, object]]:
    yield Tensor, "is_cuda", property(lambda _: True)
    yield Tensor, "get_device", lambda _: 0
    yield torch._C, "_cuda_getCurrentRawStream", lambda _: 0
    yield torch.cuda, "is_available", lambda: True
    yield torch.cuda, "current_device", lambda: 0
    yield torch.cuda, "is_current_stream_capturing", lambda: False
    yield torch.cuda, "default_generators", [None]
    yield records, "_READS", {}  # optimizers read counters, which would not be on the device
    yield records, "_most_bytes", lambda: 2**40
    yield step_replay, "Recorder", partial(_Recorder, device)
    yield sys.modules["torch.optim.adam"], "_get_capturable_supported_devices", lambda **_: ["cpu"]
    for module in (scene, step):
        yield module, "aside", lambda _: nullcontext()
