"""Whether a CUDA graph may be captured or replayed here and now."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from perflint.runtime.walk import Walk

_thread = threading.local()


@functools.cache
def has_cuda() -> bool:
    """Whether there is a device to capture on; asked once, for it takes long."""
    return torch.cuda.is_available()


def can_capture() -> bool:
    """Whether this call may use a graph: with a device, and outside of captures, compilers, tracers and modes."""
    return (
        has_cuda()
        and not getattr(_thread, "inside", False)
        and not torch.cuda.is_current_stream_capturing()
        and not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._get_tracing_state() is None
    )


@contextmanager
def inside() -> Iterator[None]:
    """While one graphed function is watched or captured, those that it calls are plain."""
    before = getattr(_thread, "inside", False)
    _thread.inside = True
    try:
        yield
    finally:
        _thread.inside = before


def check(walk: Walk) -> str | None:
    """Why a call with these arguments and this state can't be captured at all."""
    if walk.refusal:
        return walk.refusal
    if walk.devices != {torch.cuda.current_device()}:
        return f"it uses devices {sorted(walk.devices)}, and not the current one alone"
    for module in walk.modules:
        if isinstance(module, torch.nn.RNNBase) and module.training and module.dropout:
            return f"cuDNN keeps the random state of the dropout inside {type(module).__name__} to itself"
    return None
