"""Notes when a process was at which of the user's lines, waited for which loader, was in which optimizer."""

from __future__ import annotations

import functools
import os
import statistics
import sys
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from perflint.profile.record import Fetches, Node, Owned, save_worker, worker_files
from perflint.shim.hooks import after

_MOST = 2_000_000  # lines that are noted: 24 MB
_ROOT = Node(-1, "", 0, "")
_MONITORING: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on: libraries run at full speed

Inspect = Callable[[FrameType], None]

_TIMES = 3  # that a function is looked at
_MOST_KINDS = 4  # of values of one name, before it is told nothing of
_MOST_FUNCTIONS = 500
_MOST_PARTS = 50


class Users:
    """Tells the user's files from those below `libraries`."""

    def __init__(self, libraries: tuple[str, ...]) -> None:
        self._is_users = functools.cache(lambda name: not name.startswith((*libraries, "<")))

    def owns(self, code: CodeType) -> bool:
        return self._is_users(code.co_filename)

    def files(self) -> list[str]:
        modules = [each for each in list(sys.modules.values()) if isinstance(each, ModuleType)]
        names = {object.__getattribute__(each, "__dict__").get("__file__") for each in modules}  # lazy ones stay so
        return sorted(name for name in names if isinstance(name, str) and name.endswith(".py") and self._is_users(name))

    def place(self, frame: FrameType | None) -> tuple[str, int]:
        """Of the innermost user's frame from `frame` outwards; ("", 0) without any."""
        found = next(self.frames(frame), None)
        return (found.f_code.co_filename, found.f_lineno) if found else ("", 0)

    def frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        while frame:
            if self.owns(frame.f_code):
                yield frame
            frame = frame.f_back


class Lines:
    """Traces this thread between `start` and `stop`; `inspect` gets the user's frames as they return.

    At `times[i]` the thread came to the line of node `at[i]`, and stayed until the next. `frames` are those at the
    start.
    """

    def __init__(self, users: Users, inspect: Inspect = lambda _: None) -> None:
        self._users, self._inspect = users, inspect
        self.nodes = [_ROOT]
        self.times, self.at = array("q"), array("i")
        self.frames: list[FrameType] = []
        self._ids: dict[tuple[int, CodeType, int], int] = {}
        self._stack: list[tuple[CodeType | None, int]] = [(None, 0)]
        self._thread = threading.get_ident()
        self._tool = -1

    def start(self, frame: FrameType | None) -> bool:
        """Trace from now on, also in `frame` and its callers; False if somebody else traces."""
        self._thread = threading.get_ident()
        self.frames = list(self._users.frames(frame))[::-1]
        for each in self.frames:
            self._enter(each.f_code, each.f_lineno)
        return self._monitor() if _MONITORING else self._trace()

    def stop(self) -> None:
        """Trace no more, unless somebody else has begun to."""
        if self._tool >= 0:
            for code in {code for _, code, _ in self._ids}:
                _MONITORING.set_local_events(self._tool, code, 0)
            _MONITORING.set_events(self._tool, 0)
            _MONITORING.free_tool_id(self._tool)
            self._tool = -1
        elif sys.gettrace() == self._called:
            sys.settrace(None)
            for each in self.frames:
                each.f_trace = None

    def _trace(self) -> bool:
        if sys.gettrace() is not None:
            return False
        for each in self.frames:
            each.f_trace = self._happened
        sys.settrace(self._called)
        return True

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        if event != "call" or not self._users.owns(frame.f_code):
            return None
        self._enter(frame.f_code, frame.f_lineno)
        return self._happened

    def _happened(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._move(frame.f_code, frame.f_lineno)
        elif event == "return":
            self._inspect(frame)
            self._leave(frame.f_code)
        return self._happened

    def _monitor(self) -> bool:
        free = [number for number in (4, 3, 2, 5, 1, 0) if _MONITORING.get_tool(number) is None]
        if not free:
            return False
        self._tool = free[0]
        _MONITORING.use_tool_id(self._tool, "perflint")
        events = _MONITORING.events
        calls = {
            **dict.fromkeys((events.PY_START, events.PY_RESUME), self._started),
            **dict.fromkeys((events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND), self._returned),
            events.LINE: self._line,
        }
        for event, call in calls.items():
            _MONITORING.register_callback(self._tool, event, call)
        _MONITORING.restart_events()
        for each in self.frames:
            self._watch(each.f_code)
        _MONITORING.set_events(self._tool, events.PY_START | events.PY_RESUME | events.PY_UNWIND)
        return True

    def _watch(self, code: CodeType) -> None:
        events = _MONITORING.events
        _MONITORING.set_local_events(self._tool, code, events.LINE | events.PY_RETURN | events.PY_YIELD)

    def _started(self, code: CodeType, _: int) -> Any:
        if not self._users.owns(code):
            return _MONITORING.DISABLE
        if threading.get_ident() == self._thread:
            self._watch(code)
            self._enter(code, code.co_firstlineno)
        return None

    def _line(self, code: CodeType, line: int) -> None:
        if threading.get_ident() == self._thread:
            self._move(code, line)

    def _returned(self, code: CodeType, _: int, __: Any) -> None:
        if self._users.owns(code) and threading.get_ident() == self._thread:
            self._inspect(sys._getframe(1))
            self._leave(code)

    def _enter(self, code: CodeType, line: int) -> None:
        self._stack.append((code, self._node(self._stack[-1][1], code, line)))
        self._note()

    def _move(self, code: CodeType, line: int) -> None:
        stack = self._stack
        while len(stack) > 1 and stack[-1][0] is not code:  # left without a word
            stack.pop()
        if len(stack) == 1:
            stack.append((code, 0))
        stack[-1] = code, self._node(stack[-2][1], code, line)
        self._note()

    def _leave(self, code: CodeType) -> None:
        if self._stack[-1][0] is code:
            self._stack.pop()
            self._note()

    def _note(self) -> None:
        self.times.append(time.time_ns())
        self.at.append(self._stack[-1][1])
        if len(self.times) > _MOST:
            self.stop()

    def _node(self, parent: int, code: CodeType, line: int) -> int:
        key = (parent, code, line)
        node = self._ids.get(key)
        if node is None:
            node = self._ids[key] = len(self.nodes)
            self.nodes.append(Node(parent, code.co_filename, line, code.co_name))
        return node


class Facts:
    def __init__(self) -> None:
        self.seen: dict[tuple[str, str, str], set[str]] = {}
        self._looks: dict[Any, int] = {}

    def note(self, frame: FrameType) -> None:
        code = frame.f_code
        looks = self._looks.get(code, 0)
        if looks >= _TIMES or (not looks and len(self._looks) >= _MOST_FUNCTIONS):
            return
        self._looks[code] = looks + 1
        for name, value in (*frame.f_locals.items(), *_parts(frame.f_locals.get("self"))):
            if not name.startswith("__") and (said := _described(value)):
                kinds = self.seen.setdefault((code.co_filename, code.co_name, name), set())
                if len(kinds) < _MOST_KINDS:
                    kinds.add(said)

    def note_all(self, frames: Iterable[FrameType]) -> None:
        for frame in frames:
            self.note(frame)
            values = frame.f_locals
            if values is not frame.f_globals and sys.version_info < (3, 13):
                values.clear()  # a copy, which would keep tensors alive


def _parts(module: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(module, sys.modules["torch"].nn.Module):
        yield from ((f"self.{name}", each) for name, each in [*module._modules.items()][:_MOST_PARTS])


def _described(value: Any) -> str:
    torch = sys.modules["torch"]
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} tensor of rank {value.dim()} on {value.device}"
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return f"{kind.__module__}.{kind.__qualname__}"
    if kind in (int, float, bool, str, list, tuple, dict):
        return kind.__name__
    return ""


_MOST_WORKERS = 32
_TRACED, _TIMED = 2, 10  # the number of the batch that a worker fetches by line, and of the last one that is timed
_MOST_NOTED = 100_000

Place = tuple[str, int]


class Owners:
    def __init__(self, users: Users) -> None:
        self.noting = False
        self.fetches: list[Owned] = []
        self.optimizers: list[Owned] = []
        self._users, self._process = users, os.getpid()
        self._made: weakref.WeakKeyDictionary[Any, Place] = weakref.WeakKeyDictionary()
        self._begun: dict[int, int] = {}
        self._fetching = threading.local()

    def watch(self) -> None:
        from torch.optim.optimizer import (
            Optimizer,
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )
        from torch.utils.data import DataLoader
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        for kind in (DataLoader, Optimizer):
            kind.__init__ = after(kind.__init__, self._note_place)  # type: ignore[method-assign]
        DataLoader._get_iterator = after(DataLoader._get_iterator, self._note_loader)  # type: ignore[method-assign]
        iterator.__next__ = self._timed(iterator.__next__)  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._begin)
        register_optimizer_step_post_hook(self._end)

    def _note_place(self, _: None, made: Any, *__: Any, **___: Any) -> None:
        self._made[made] = self._users.place(sys._getframe(1))

    def _note_loader(self, iterator: Any, loader: Any) -> None:
        self._made[iterator] = self._made.get(loader, ("", 0))

    def _timed(self, fetch: Any) -> Any:
        @functools.wraps(fetch)
        def timed(iterator: Any) -> Any:
            if not self.noting or os.getpid() != self._process or getattr(self._fetching, "now", False):
                return fetch(iterator)
            begin = time.time_ns()
            self._fetching.now = True
            try:
                return fetch(iterator)
            finally:
                self._fetching.now = False
                if len(self.fetches) < _MOST_NOTED:
                    self.fetches.append(Owned(begin, time.time_ns(), *self._made.get(iterator, ("", 0))))

        return timed

    def _begin(self, optimizer: Any, *_: Any) -> None:
        if self.noting:
            self._begun[id(optimizer)] = time.time_ns()

    def _end(self, optimizer: Any, *_: Any) -> None:
        begin = self._begun.pop(id(optimizer), 0)
        if begin and self.noting and len(self.optimizers) < _MOST_NOTED:
            self.optimizers.append(Owned(begin, time.time_ns(), *self._made.get(optimizer, ("", 0))))


class Workers:
    """Measures in each worker of a loader how long batches take, one of them by line."""

    def __init__(self, users: Users, run: Path) -> None:
        self._users, self._run = users, run
        self._batches, self._process = 0, 0
        self._seconds: list[float] = []
        self._lines: Lines | None = None

    def watch(self) -> None:
        from torch.utils.data import get_worker_info
        from torch.utils.data._utils import fetch

        for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            kind.fetch = self._measured(kind.fetch, get_worker_info)  # type: ignore[method-assign]

    def _measured(self, fetch: Any, worker: Any) -> Any:
        @functools.wraps(fetch)
        def measured(fetcher: Any, indices: Any) -> Any:
            if self._batches >= _TIMED or worker() is None:
                return fetch(fetcher, indices)
            return self._fetched(lambda: fetch(fetcher, indices))

        return measured

    def _fetched(self, fetch: Any) -> Any:
        if self._process != os.getpid():  # the first batch of this worker
            self._process, self._batches = os.getpid(), 0
            if len(worker_files(self._run)) >= _MOST_WORKERS:
                self._batches = _TIMED
        self._batches += 1
        begin = time.perf_counter()
        lines = Lines(self._users) if self._batches == _TRACED else None
        if lines and lines.start(None):
            self._lines = lines
        try:
            return fetch()
        finally:
            if lines:
                lines.stop()
            else:
                self._seconds.append(time.perf_counter() - begin)
            if self._batches in (_TRACED, _TIMED):
                self._save()

    def _save(self) -> None:
        lines = self._lines
        by_node: dict[int, float] = {}
        if lines:
            for node, begin, end in zip(lines.at, lines.times, lines.times[1:], strict=False):
                by_node[node] = by_node.get(node, 0.0) + (end - begin) / 1e9
        usual = statistics.median(self._seconds) if self._seconds else 0.0
        total = sum(by_node.values())
        scale = usual / total if total else 0.0
        with suppress(OSError):  # the run is over
            scaled = {node: seconds * scale for node, seconds in by_node.items()}
            save_worker(self._run, self._process, Fetches(self._seconds, lines.nodes if lines else [], scaled))
