"""When a CUDA graph can be captured or replayed, and why not."""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

import torch

from perflint.runtime.walk import Walk

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)
_thread = threading.local()


class CannotCapture(Exception):
    """What a CUDA graph would not hold, or would hold wrongly; the message is the reason."""


class Unsettled(CannotCapture):
    """What a call reads is another after it: the function keeps something, or was called for the first time."""


def is_foreign(filename: str) -> bool:
    """Whether a file is neither torch's nor this package's."""
    return not filename.startswith((_TORCH, _OURS, "<"))


def current_line() -> str:
    """`file.py:12`: the innermost line of the user's code that is running now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "unknown line"


def explain(error: BaseException) -> str:
    """One line for the first of a chain of errors, and the user's line that it came from."""
    while error.__context__ is not None:
        error = error.__context__
    if isinstance(error, CannotCapture):
        return str(error)
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{_line_of(error.__traceback__)}: {type(error).__name__}: {text}"


def _line_of(trace: TracebackType | None) -> str:
    places = [frame for frame in traceback.extract_tb(trace) if is_foreign(frame.filename)]
    return f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "unknown line"


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


def device_refusal(walk: Walk) -> str | None:
    """Why no graph can hold what a call reads, or be of its devices."""
    if walk.refusal or walk.devices == {torch.cuda.current_device()}:
        return walk.refusal
    return f"it uses devices {sorted(walk.devices)}, and not the current one alone"


def check(walk: Walk) -> str | None:
    """Why a call with these arguments and this state can't be captured at all."""
    if reason := device_refusal(walk):
        return reason
    for module in walk.modules:
        if isinstance(module, torch.nn.RNNBase) and module.training and module.dropout:
            return f"cuDNN keeps the random state of the dropout inside {type(module).__name__} to itself"
    return None
