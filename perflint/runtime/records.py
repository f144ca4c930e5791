"""When a call can be captured, which ones are, and why others stay eager."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import traceback
import warnings
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MethodType, TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils import _device
from torch.utils._python_dispatch import TorchDispatchMode

from perflint.runtime.glance import reference
from perflint.runtime.probe import host_rng
from perflint.runtime.scope import Scope
from perflint.runtime.walk import Key, Walk

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
    """What a CUDA graph would not hold, or hold wrongly; the message is the reason."""


class Unsettled(CannotCapture):
    """A call's key is another after it: the function keeps something, or ran for the first time."""


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
    """Whether there is a device to capture on; asked once, as it takes long."""
    return torch.cuda.is_available()


def current_stream() -> int:
    """The number of the stream in use; torch.cuda.current_stream asks for devices each time, which takes 20 us."""
    return torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())


def can_capture() -> bool:
    """Whether this call may use a graph: on a device, outside of captures, compilers, tracers and modes."""
    if not may_capture() or torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return False
    return torch._C._len_torch_function_stack() <= (_device.CURRENT_DEVICE is not None)  # that is a mode, too


def may_capture() -> bool:
    """Whether there is a device, and no capture or compiler around this call; alike in all processes."""
    return (
        has_cuda()
        and not getattr(_thread, "inside", False)
        and not torch.cuda.is_current_stream_capturing()
        and not torch.compiler.is_compiling()
    )


@contextmanager
def inside() -> Iterator[None]:
    """Have graphed functions called from one that is watched or captured run plainly."""
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
    """What an eager run showed: which inputs, by number, and which state tensors it wrote."""

    written_inputs: tuple[int, ...]
    written_state: tuple[Tensor, ...]


def observe(walk: Walk, again: Callable[[], Walk], run: Callable[[], Any]) -> tuple[Any, Facts]:
    """Run eagerly; return the result and what was written. `again` walks once more afterwards.

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
    """Raises CannotCapture at the first operation that waits for the device or reads host memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refusal: str | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to hide it from torch.compile, torch would import all of that first, for seconds."""
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


_SEEN = 64  # keys that were met once and are remembered
_PATIENCE = 40  # what calls that aren't replayed may cost, beyond those that are
_CAPTURE_COST = 4  # of such calls
_MOST_GRAPHS = 8
_SHARE = 4  # they may hold one part in so many of the device's memory

P = ParamSpec("P")
R = TypeVar("R")


class Record:
    def __init__(self, key: Hashable, facts: Facts, notes: Any = None) -> None:
        self.key, self.facts, self.notes = key, facts, notes
        self.capture: Any = None
        self.anchors: list[object] = []

    def hold(self, objects: Iterable[object], drop: Callable[[object], None]) -> None:
        """Keep the key's identities from being reused: `drop` is called when one of the objects dies."""
        self.anchors += [reference(value, drop) for value in objects]


class Records:
    """One function's records, least recently used first, bounded in number and device memory."""

    def __init__(self, name: str) -> None:
        self.lock = threading.RLock()
        self.refused: dict[Hashable, str] = {}
        self._name = name
        self._scope: Scope | None = None
        self._records: OrderedDict[Hashable, Record] = OrderedDict()
        self._cost = 0
        self._unsettled: set[Hashable] = set()

    def scope_of(self, *functions: object) -> Scope:
        if self._scope is None:
            self._scope = Scope(*functions)
        return self._scope

    def find(self, key: Hashable) -> Record | None:
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
        return record

    def observe(
        self,
        mode: Hashable,
        walk: Callable[[], Walk],
        functions: Iterable[object],
        run: Callable[[], Any],
        key: Callable[[Walk], Key],
        notes: Any = None,
    ) -> Any:
        """Run eagerly, and keep what that showed by the `key` of the walk; refuse what a replay would not do."""
        seen = walk()
        while seen.scope.learn((*seen.modules, *seen.objects, *functions)):
            seen = walk()
        try:
            with inside():
                result, facts = observe(seen, walk, run)
        except CannotCapture as refusal:
            self.doubt(mode, refusal)
            return refusal.args[1]
        with self.lock:
            if not self.add(key(seen), facts, (*seen.modules, *seen.objects, *seen.state), notes):
                self.refuse(mode, "its arguments, or what else it reads, differ from call to call")
        return result

    def add(self, key: Hashable, facts: Facts, objects: Iterable[object], notes: Any = None) -> bool:
        record = Record(key, facts, notes)
        records = weakref.ref(self)

        def drop(_: object) -> None:
            if (still := records()) is not None:
                still._records.pop(key, None)

        record.hold(objects, drop)
        self._records[key] = record
        waiting = [k for k, r in list(self._records.items()) if r.capture is None]
        for old in waiting[: max(0, len(waiting) - _SEEN)]:
            self._records.pop(old, None)
        self._cost += 1
        return self._cost <= _PATIENCE

    def keep(self, record: Record, capture: Any) -> str | None:
        self._cost += _CAPTURE_COST
        limit = _most_bytes()
        if capture.bytes > limit:
            return f"a graph of it would hold {capture.bytes / 2**20:.0f} MiB, more than {limit / 2**20:.0f}"
        record.capture = capture
        captured = [r for r in list(self._records.values()) if r.capture is not None and r is not record]
        held = capture.bytes + sum(r.capture.bytes for r in captured)
        while captured and (len(captured) >= _MOST_GRAPHS or held > limit):
            oldest = captured.pop(0)
            held -= oldest.capture.bytes
            oldest.capture = None
        return None

    def replayed(self) -> None:
        self._cost = max(0, self._cost - 1)

    def doubt(self, mode: Hashable, refusal: CannotCapture) -> None:
        """Refuse, but not after a mode's first call that changes what it reads: it may be a set-up.

        cuDNN gathers an RNN's weights in one piece of memory, and caches fill themselves.
        """
        if isinstance(refusal, Unsettled) and mode not in self._unsettled:
            self._unsettled.add(mode)
        else:
            self.refuse(mode, refusal.args[0])

    def refuse(self, mode: Hashable, reason: str) -> None:
        if reason not in self.refused.values():
            self.warn(f"stays eager: {reason}")
        self.refused[mode] = reason
        for key, record in list(self._records.items()):
            if record.capture is None:
                self._records.pop(key, None)

    def warn(self, text: str) -> None:
        warnings.warn(f"perflint: {self._name} {text}", RuntimeWarning, stacklevel=2)

    def captures(self) -> list[Any]:
        return [record.capture for record in list(self._records.values()) if record.capture is not None]

    def clear(self) -> None:
        with self.lock:
            self._records.clear()
            self.refused.clear()
            self._unsettled.clear()
            self._cost = 0


class Graphed(ABC, Generic[P, R]):
    """Called like the function, and a method where the function would be one.

    Raises TypeError for generator functions, coroutines and what can't be called.
    """

    _records: Records

    def __init__(self, function: Callable[P, R], decorator: str) -> None:
        if not callable(function):
            raise TypeError(f"{decorator} needs a callable, not {type(function).__name__}")
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"{decorator} can't capture generators or coroutines")
        self.__qualname__ = type(function).__qualname__
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__: Callable[P, R] = function

    @abstractmethod
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, and copied by reference, as functions are

    @property
    def graphs(self) -> int:
        return len(self._records.captures())

    @property
    def bytes(self) -> int:
        return sum(capture.bytes for capture in self._records.captures())

    @property
    def eager_because(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._records.refused.values()))

    def clear(self) -> None:
        self._records.clear()


def _most_bytes() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory // _SHARE


def name_of(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
