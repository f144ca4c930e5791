"""Captures a function as one CUDA graph over static inputs, on torch's own graph class, and replays it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from perflint.runtime.refusal import CannotCapture
from perflint.runtime.watch import Rehearsal

_ONE_AT_A_TIME = threading.RLock()
_streams: dict[torch.device, torch.cuda.Stream] = {}


def twin(tensor: Tensor) -> Tensor:
    """A tensor of the same shape, strides, type and alignment, in memory of its own; its values are undefined."""
    sizes, strides = tensor.shape, tensor.stride()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) if tensor.numel() else 0
    offset = tensor.data_ptr() % 16 // tensor.element_size()
    memory = torch.empty(offset + extent, dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(sizes, strides, offset)


def distinct(tensor: Tensor) -> Tensor:
    """The view of an expanded tensor that has each element once; CannotCapture where memory overlaps otherwise."""
    core = tensor
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            core = core.narrow(dimension, 0, 1)
    order = sorted((stride, size) for size, stride in zip(core.shape, core.stride(), strict=True) if size > 1)
    reach = 0
    for stride, size in order:
        if stride <= reach:
            raise CannotCapture("an argument's elements overlap in memory")
        reach += (size - 1) * stride
    return core


def copy_into(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each source into its target, by one launch for all of a type."""
    groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        group = groups.setdefault(target.dtype, ([], []))
        group[0].append(target)
        group[1].append(source)
    with torch.no_grad():
        for group in groups.values():
            torch._foreach_copy_(*group)


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of the same values as these, and no history, in memory of their own."""
    made = [torch.empty_like(tensor) for tensor in tensors]
    copy_into(made, tensors)
    return made


class Recorder:
    """Where captures of one function happen: a side stream and a memory pool, with the generator's offset kept.

    `body` may be run several times: `state`, whatever it writes to, is put back after each rehearsal.
    """

    def __init__(self, devices: Iterable[int], state: Sequence[Tensor]) -> None:
        (number,) = devices
        self.device = device = torch.device("cuda", number)
        self.pool = torch.cuda.graph_pool_handle()
        self.bytes = 0
        self._state = state
        if device not in _streams:
            _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream = _streams[device]

    def rehearse(self, body: Callable[[], Any]) -> None:
        """Run once on the capturing stream, so that libraries set up; CannotCapture if it needs the host meanwhile."""
        generator = torch.cuda.default_generators[self.device.index]
        offset = generator.get_offset()
        saved = [tensor.detach().clone() for tensor in self._state]
        rehearsal = Rehearsal()
        self._stream.wait_stream(torch.cuda.current_stream())
        try:
            with _fresh_casts(), torch.cuda.stream(self._stream), rehearsal:
                body()
            if rehearsal.refusal:  # the function caught the error itself
                raise CannotCapture(rehearsal.refusal)
        finally:
            torch.cuda.current_stream().wait_stream(self._stream)
            generator.set_offset(offset)
            for tensor, value in zip(self._state, saved, strict=True):
                tensor.data.copy_(value)

    def record(self, body: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """Capture `body`; return the graph and what `body` returned. Nothing has run yet.

        A failed capture leaves stream, allocator and generator as they were.
        """
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        ended, collects = False, gc.isenabled()
        with _ONE_AT_A_TIME:
            gc.disable()  # a graph that is freed meanwhile would end the capture
            try:
                # thread_local: a loader's pinning thread may allocate meanwhile
                with (
                    _fresh_casts(),
                    torch.cuda.graph(graph, self.pool, self._stream, capture_error_mode="thread_local"),
                ):
                    held = torch.cuda.memory_reserved(self.device)
                    result = body()
                    held = torch.cuda.memory_reserved(self.device) - held
                ended = True
            finally:
                if collects:
                    gc.enable()
                torch.cuda.set_stream(stream)
                if not ended:
                    self._clean_up()
        self.bytes += held
        return graph, result

    def _clean_up(self) -> None:
        """After an invalidated capture: close what torch leaves open, by an empty capture that succeeds."""
        with suppress(RuntimeError, AttributeError):  # older versions of torch name it otherwise
            torch._C._cuda_endAllocateToPool(self.device.index, self.pool)
        torch.cuda.synchronize(self.device)
        self.pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(torch.cuda.CUDAGraph(), self.pool, self._stream, capture_error_mode="thread_local"):
            torch.zeros(1, device=self.device)


@contextmanager
def _fresh_casts() -> Iterator[None]:
    """Autocast's cached casts of weights must not enter a graph, nor leave it."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()
