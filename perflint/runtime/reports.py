"""Reports values of the device without waiting for them: in order, as soon as they have arrived on the host."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import is_
from pathlib import Path, PurePath
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

_MOST = 32  # reports that may be outstanding
_PACE = 0.1  # seconds between looks at what has arrived: several reports in a row cost much less than one by one
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), torch.Size, torch.dtype, torch.device})
_PLAIN_MODULES = ("datetime", "decimal", "fractions", "numpy")  # what is hashable there doesn't change
_READ = ("getvalue", "getbuffer", "read", "readline", "readlines", "seek", "tell", "fileno")
_STREAM = ("write", "writelines", "flush", "close", "truncate", "detach", "reconfigure", *_READ)
_LAMBDA = (lambda: None).__name__
_STREAM_PACKAGES = ("_io", "io", "ipykernel", "_pytest")  # what others do with what is written isn't known
_LOG = ("handle", "__setattr__", "addHandler", "removeHandler", "addFilter", "removeFilter", "setLevel", "close")
_BAR = ("display", "close", "reset", "set_postfix", "set_postfix_str", "set_description", "set_description_str")
_WRITER = ("flush", "close")  # and all that adds


def later(function: Callable[..., object], /, *values: Any, **named: Any) -> None:
    """Call `function(*values, **named)` as soon as the values of device tensors have arrived, without waiting.

    Meant for output: `print`, `logging`, progress bars, summary writers. What a tensor gives by a method is written
    without its call, `later(print, step, loss.item)`, and read when a copy of what the tensor holds now is on the host;
    so it is in lists, tuples and dictionaries, which are copied, as arrays are. What else is made of it is made by the
    function, `later(lambda step, loss: print(f"{step}: {loss:.4f}"), step, loss.item)`. Further calls of `later`, ten
    times a second, call the functions whose values have arrived, in order and at most 32 calls behind. All are called
    before anything else is written to `sys.stdout`, `sys.stderr`, a log, or the bar or writer that one of them uses,
    and before one of these streams is read or a log changed; before a process is started or forked, before an exception
    ends the program, and at exit; not where `os._exit` or a signal ends it. `sys.stdout`, `sys.stderr` and the time of
    log records are those of the call of `later`. Errors are raised where the function runs. The function is called at
    once, behind all outstanding ones, where no value is on a device or one is of a type that may change and isn't known
    here, as tensors themselves are, where a stream or a log's handler is of another class than Python's, in other
    threads than the main one, and while a CUDA graph is captured or a function traced.
    """
    _reports.add(function, values, named)


def flush() -> None:
    _reports.flush()


class _Unknown(Exception):
    """A value that may change, and can't be copied."""


@dataclass(slots=True)
class _Report:
    """A call to be made when the `copies` have arrived, as if made at `time` with these streams; `caller` logs."""

    function: Callable[..., object]
    caller: str
    values: tuple[Any, ...]
    named: dict[str, Any]
    copies: list[torch.Event]
    time: float
    streams: tuple[Any, Any]

    def run(self) -> None:
        streams, make = (sys.stdout, sys.stderr), logging.getLogRecordFactory()

        def signed(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record: logging.LogRecord = make(*args, **kwargs)
            record.relativeCreated += 1000 * (self.time - record.created)
            record.created, record.msecs = self.time, int(self.time % 1 * 1000) + 0.0
            return record

        sys.stdout, sys.stderr = self.streams
        logging.setLogRecordFactory(signed)
        try:
            _call(self.function, self.caller, self.values, self.named)
        finally:
            sys.stdout, sys.stderr = streams
            logging.setLogRecordFactory(make)


class _Reports:
    """What is outstanding in this process, oldest first, and guards so that nothing overtakes it."""

    def __init__(self) -> None:
        self._queue = deque[_Report]()
        self._running: _Report | None = None
        self._thread = threading.main_thread().ident
        self._looked = 0.0  # seconds by the clock, at what has arrived
        self._files = set[Path]()
        self._writers: tuple[object, ...] = ()  # the streams and handlers of the last report

    def add(self, function: Callable[..., object], values: tuple[Any, ...], named: dict[str, Any]) -> None:
        caller = sys._getframe(2).f_code.co_name
        if self._running or not self._is_here() or torch._C._is_tracing():
            _call(function, caller, values, named)
        elif not self._takes(function, caller, values, named):
            self.flush()
            _call(function, caller, values, named)
        elif len(self._queue) > _MOST or self._queue[-1].time - self._looked >= _PACE:
            self._looked = self._queue[-1].time
            self.flush(_MOST)

    def _takes(
        self, function: Callable[..., object], caller: str, values: tuple[Any, ...], named: dict[str, Any]
    ) -> bool:
        """Put a call off, if possible; this runs in each step, so every microsecond counts."""
        devices, held, owner = set[torch.device](), list[Any](), getattr(function, "__self__", None)
        if not _PLAIN.issuperset(map(type, getattr(function, "__defaults__", None) or ())):
            return False
        try:
            if owner is not None and not isinstance(owner, ModuleType | type):
                held.append(_writer(owner))
            copies = tuple([_snapshot(each, devices, held) for each in values])
            others = {name: _snapshot(each, devices, held) for name, each in named.items()} if named else named
        except _Unknown:
            return False
        handlers = _handlers(function, held)
        if not (devices or self._queue) or not self._watches(held, handlers):
            return False
        events, caller = [_recorded(device) for device in devices], caller if handlers else ""
        self._queue.append(_Report(function, caller, copies, others, events, time.time(), (sys.stdout, sys.stderr)))
        return True

    def flush(self, most: int = 0) -> None:
        """Run what has arrived, and wait until at most `most` are outstanding."""
        while self._queue and not self._running and self._is_here():
            report = self._queue[0]
            if report.copies and torch.cuda.is_current_stream_capturing():
                return  # nothing may be waited for
            if len(self._queue) > most:
                for copy in report.copies:
                    copy.synchronize()
            elif not all(each.query() for each in report.copies):
                return
            self._queue.popleft()
            self._running = report
            try:
                report.run()
            finally:
                self._running = None

    def _is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def finish(self) -> None:
        try:
            self.flush()
        finally:
            if self._queue:
                self.finish()

    def drop(self) -> None:
        self._queue.clear()
        self._thread = threading.main_thread().ident

    def before(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Report before other programs write, and before a log is read."""
        if self._queue and not self._running and (event in _STARTS or (event == "open" and self._is_log(arguments[0]))):
            self.flush()

    def _is_log(self, path: object) -> bool:
        return isinstance(path, str | PurePath) and Path(path).resolve() in self._files

    def _watches(self, held: Sequence[Any], handlers: tuple[logging.Handler, ...]) -> bool:
        """Can all that the function may write to be kept from others until it has?"""
        if held and not all(self._guards(each, _guarded(each)) for each in held):
            return False
        streams = (sys.stdout, sys.stderr, *[getattr(each, "stream", None) for each in handlers])
        writers = (*streams, *handlers)
        is_same = len(writers) == len(self._writers) and all(map(is_, writers, self._writers))
        if not (is_same and all(map(_reports_first, writers))):
            self._writers = writers if self._guards_shared(streams, handlers) else ()
        return bool(self._writers)

    def _guards_shared(self, streams: tuple[Any, ...], handlers: tuple[logging.Handler, ...]) -> bool:
        if not all(map(_is_known, handlers)) or not all(map(_is_stream, streams)):
            return False
        self._files.update(
            Path(each.baseFilename).resolve() for each in handlers if isinstance(each, logging.FileHandler)
        )
        guarded: list[tuple[Any, tuple[str, ...]]] = [
            (part, _STREAM) for each in streams for part in (each, getattr(each, "buffer", None))
        ]
        guarded += [(each, _LOG) for each in (logging.Logger, logging.Handler, logging.Manager)]
        return all(self._guards(owner, names) for owner, names in guarded)

    def _guards(self, owner: Any, names: tuple[str, ...]) -> bool:
        for name in names:
            method = getattr(owner, name, None)
            if method is not None and not getattr(method, "reports_first", False):
                try:
                    setattr(owner, name, self._first(method))
                except (AttributeError, TypeError):
                    return False
        return True

    def _first(self, method: Callable[..., Any]) -> Callable[..., Any]:
        queue, flush = self._queue, self.flush

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if queue:
                flush()
            return method(*args, **kwargs)

        guarded.reports_first = True  # type: ignore[attr-defined]
        return guarded


def _named(function: Callable[..., object], name: str) -> Callable[..., object]:
    if not name or not isinstance(function, FunctionType) or function.__name__ != _LAMBDA:
        return function
    code = _named_code(function.__code__, name)
    named = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    named.__kwdefaults__ = function.__kwdefaults__
    return named


@cache  # new code would run unspecialized in each step
def _named_code(code: CodeType, name: str) -> CodeType:
    return code.replace(co_name=name)


def _snapshot(value: Any, devices: set[torch.device], held: list[Any]) -> Any:
    """`value` as it is now, on the host; raises _Unknown. Devices that are read, and what may write, are added."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is BuiltinMethodType and type(value.__self__) in (Tensor, Parameter):
        return getattr(_copied(value.__self__, devices), value.__name__)
    if _is_read(value):
        return _snapshot(value(), devices, held)
    if kind in (list, tuple):
        return kind([_snapshot(each, devices, held) for each in value])
    if kind is dict:
        return {key: _snapshot(each, devices, held) for key, each in value.items()}
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray" and not value.dtype.hasobject:
        return value.copy()
    is_plain = kind.__module__ in _PLAIN_MODULES and kind.__hash__ is not None
    if not is_plain and not isinstance(value, PurePath):
        held.append(_writer(value))
    return value


def _writer(value: Any) -> Any:
    if isinstance(value, logging.Logger) or value is sys.stdout or value is sys.stderr or _guarded(value):
        return value
    raise _Unknown


def _call(function: Callable[..., object], caller: str, values: tuple[Any, ...], named: dict[str, Any]) -> None:
    _named(function, caller)(*map(_read, values), **{name: _read(each) for name, each in named.items()})


def _read(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is BuiltinMethodType and isinstance(tensor := value.__self__, Tensor):
        is_plain = tensor.is_cpu and not tensor.requires_grad
        return value() if is_plain else getattr(tensor.detach().cpu(), value.__name__)()
    if _is_read(value):
        return value()
    if kind in (list, tuple):
        return kind([_read(each) for each in value])
    return {key: _read(each) for key, each in value.items()} if kind is dict else value


def _is_read(value: Any) -> bool:
    """Is it a method of what turns out to be no tensor, as a NumPy number's `item`?"""
    return type(value) in (BuiltinMethodType, MethodType) and not isinstance(value.__self__, ModuleType | type)


def _copied(tensor: Tensor, devices: set[torch.device]) -> Tensor:
    if tensor.is_cuda and tensor.layout is torch.strided and not torch.cuda.is_current_stream_capturing():
        devices.add(tensor.device)
        return tensor.detach().to("cpu", non_blocking=True)  # into pinned memory
    if tensor.device.type == "cpu" and tensor.layout is torch.strided:
        return tensor.detach().clone()
    raise _Unknown


def _reports_first(writer: object) -> bool:
    """Does it still report first? Asked in every step, of the method that all share."""
    write = getattr(writer, "handle" if isinstance(writer, logging.Handler) else "write", None)
    return write is None or getattr(write, "reports_first", False)


def _recorded(device: torch.device) -> torch.Event:
    event = torch.Event(device)
    if device.index == torch.cuda.current_device():
        event.record()  # in that device's current stream, in half the time that asking for the stream takes
    else:
        event.record(torch.cuda.current_stream(device))
    return event


def _guarded(value: object) -> tuple[str, ...]:
    for base in type(value).__mro__:
        package = base.__module__.partition(".")[0]
        if package == "tqdm":
            return _BAR
        if package == "tensorboardX" or base.__module__.startswith("torch.utils.tensorboard"):
            return (*(name for name in dir(value) if name.startswith("add_")), *_WRITER)
    return ()


def _handlers(function: Callable[..., object], held: Sequence[Any]) -> tuple[logging.Handler, ...]:
    used = [*held]
    if isinstance(function, FunctionType):
        used += map(function.__globals__.get, function.__code__.co_names)
    found = list[logging.Handler]()
    for each in used:
        log = logging.root if each is logging else each
        while isinstance(log, logging.Logger):
            found += log.handlers
            log = log.parent if log.propagate else None
    return tuple(found)


def _is_known(handler: logging.Handler) -> bool:
    module = type(handler).__module__
    return module == "logging" or (module == "logging.handlers" and isinstance(handler, logging.FileHandler))


def _is_stream(stream: object) -> bool:
    return stream is None or type(stream).__module__.partition(".")[0] in _STREAM_PACKAGES


_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.kill"})
_reports = _Reports()
atexit.register(_reports.finish)
sys.addaudithook(_reports.before)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_reports.flush, after_in_child=_reports.drop)
