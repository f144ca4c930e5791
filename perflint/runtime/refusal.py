"""When a CUDA graph can be captured or replayed, and why not."""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from perflint.runtime.probe import host_rng
from perflint.runtime.walk import Walk

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)
_thread = threading.local()
aten = torch.ops.aten
_READS = {
    aten._local_scalar_dense.default: "reads a value back (`.item()`, `if tensor:`, `int(tensor)`)",
    aten.nonzero.default: "makes a tensor whose size depends on data",
    aten.masked_select.default: "makes a tensor whose size depends on data",
    aten._unique2.default: "makes a tensor whose size depends on data",
    aten.repeat_interleave.Tensor: "makes a tensor whose size depends on data",
    aten.equal.default: "compares tensors on the host",
}
_COPIES = (aten._to_copy.default, aten.copy_.default)
_INDEXED = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)
_MASKS = (torch.bool, torch.uint8)


class CannotCapture(Exception):
    """What a CUDA graph would not hold, or would hold wrongly; the message is the reason."""


class Unsettled(CannotCapture):
    """What a call reads is another after it: the function keeps something, or was called for the first time."""


def is_foreign(filename: str) -> bool:
    return not filename.startswith((_TORCH, _OURS, "<"))


def current_line() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "unknown line"


def explain(error: BaseException) -> str:
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
    return may_capture() and torch._C._len_torch_dispatch_stack() == 0 and torch._C._get_tracing_state() is None


def may_capture() -> bool:
    """Whether there is a device, and no capture and no compiler around this call, as in all processes of a program."""
    return (
        has_cuda()
        and not getattr(_thread, "inside", False)
        and not torch.cuda.is_current_stream_capturing()
        and not torch.compiler.is_compiling()
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
    if walk.refusal or walk.devices == {torch.cuda.current_device()}:
        return walk.refusal
    return f"it uses devices {sorted(walk.devices)}, and not the current one alone"


def check(walk: Walk) -> str | None:
    if reason := device_refusal(walk):
        return reason
    for module in walk.modules:
        if isinstance(module, torch.nn.RNNBase) and module.training and module.dropout:
            return f"cuDNN keeps the random state of the dropout inside {type(module).__name__} to itself"
    return None


@dataclass(frozen=True)
class Facts:
    """What one eager run showed: which inputs, by number, and which state tensors it wrote."""

    written_inputs: tuple[int, ...]
    written_state: tuple[Tensor, ...]


def observe(walk: Walk, again: Callable[[], Walk], run: Callable[[], Any]) -> tuple[Any, Facts]:
    """Run eagerly; return the result and what was written. `again` walks once more after the run.

    Raises CannotCapture, with the result as its second argument, if a replay would not do all that the run did.
    """
    key, rng = walk.key(), host_rng()
    tensors = (*walk.inputs, *walk.state)
    stamps = [tensor.clone() if tensor.is_inference() else tensor._version for tensor in tensors]
    gradients = [_gradient(tensor) for tensor in walk.state]
    result = run()
    if rng != host_rng():
        raise CannotCapture("it draws random numbers on the host", result)
    if gradients != [_gradient(tensor) for tensor in walk.state]:
        raise CannotCapture("it computes parameters' gradients itself", result)
    if key != again().key():
        raise Unsettled("it assigns attributes, globals or items of what it reads, or changes a module", result)
    changed = {id(tensor) for tensor, stamp in zip(tensors, stamps, strict=True) if not _unchanged(tensor, stamp)}
    inputs = tuple(number for number, tensor in enumerate(walk.inputs) if id(tensor) in changed)
    if inputs and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise CannotCapture("it writes to its arguments in place while gradients are recorded", result)
    memory = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    if any(memory.count(memory[number]) > 1 for number in inputs):
        raise CannotCapture("it writes to an argument that shares memory with another one or with a module", result)
    return result, Facts(inputs, tuple(tensor for tensor in walk.state if id(tensor) in changed))


def _unchanged(tensor: Tensor, stamp: int | Tensor) -> bool:
    return torch.equal(tensor, stamp) if isinstance(stamp, Tensor) else tensor._version == stamp


def _gradient(tensor: Tensor) -> tuple[int, int] | None:
    gradient = tensor.grad if tensor.is_leaf else None
    return None if gradient is None else (id(gradient), gradient._version)


class Rehearsal(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises CannotCapture at the first operation that waits for the device or reads the host's memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refusal: str | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to be hidden from torch.compile, torch would import all of it first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if reason := _reason(func, args, kwargs):
            self.refuse(f"{current_line()}: {reason}")
        return func(*args, **kwargs)

    def refuse(self, reason: str) -> None:
        self.refusal = reason
        raise CannotCapture(reason)


def _reason(func: Any, args: Any, kwargs: dict[str, Any]) -> str | None:
    if func in _READS:
        return _READS[func] if args[0].is_cuda else None
    if func in _COPIES:
        source = args[1] if func is aten.copy_.default else args[0]
        target = torch.device(args[0].device if func is aten.copy_.default else kwargs.get("device") or source.device)
        if source.is_cuda != (target.type == "cuda"):
            return "copies a tensor from host to device or back"
        if source.is_cuda and target.index not in (None, source.get_device()):
            return "copies a tensor to another device, and a graph belongs to one"
    if func in _INDEXED and any(index is not None and index.is_cuda and index.dtype in _MASKS for index in args[1]):
        one_value = func is not aten.index.Tensor and args[2].numel() == 1
        return None if one_value else "indexes with a mask, which makes the host wait for its count"
    return None
