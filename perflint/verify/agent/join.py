"""Joins a process of the user's program to a verification: seeds, deterministic algorithms, and counted steps."""

from __future__ import annotations

import builtins
import functools
import io
import itertools
import os
import pickle
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from perflint.documents.lines import at_line
from perflint.shim.hooks import CALL, CUT, DUE, AfterImport, Finder, allow_in_graphs
from perflint.shim.session import RUN
from perflint.verify.agent import determinism
from perflint.verify.agent.journal import journaled
from perflint.verify.agent.recorder import Recorder, take_twice
from perflint.verify.agent.steps import GRAPHED, Gate, Steps, calls, frames, keep_sockets, rank_and_ranks
from perflint.verify.messages import GATE, ORDERS, SHORT, Loop, Orders

_COUNTED = "__perflint_counted__"
_SECOND = 2


def join() -> Agent:
    run = Path(os.environ[RUN])
    keep_sockets(run)
    agent = Agent(pickle.loads((run / ORDERS).read_bytes()), run)
    agent.install()
    return agent


class Agent:
    def __init__(self, orders: Orders, run: Path) -> None:
        self._orders, self._run = orders, run
        self._gate = Gate(str(run / GATE), orders.until)
        self._recorder: Recorder | None = None
        self._functions: list[tuple[Callable[..., Any], Callable[[], bool]]] = []  # and whether in their first call
        self._thread = _Thread()
        self._tested: Counter[int] = Counter()  # tests that are taken to hold from time to time, by their lines
        self.steps = Steps(orders.unit, self._passed)

        def note(number: int, is_one: bool, *values: Any) -> None:
            """A plain function, which torch.compile calls behind a graph, whose next run overwrites the tensors."""
            if self._recorder:
                kept = [each.detach().clone() for each in values]
                self._recorder.note_output(self._functions[number][0], kept[0] if is_one else kept)

        self._note = note

    def install(self) -> None:
        recording = self._orders.recording
        _print_whole_lines()
        random.seed(self._orders.seed)
        self._shift_seeds("random")
        if recording and recording.clock > 1:
            determinism.distort_clocks(recording.clock)
        for name, function in ((CALL, self.counted), (CUT, _cut), (DUE, self._due)):
            setattr(builtins, name, function)
        watched: dict[str, AfterImport] = {
            "numpy": self._seed_numpy,
            "torch": self._prepare,
            GRAPHED: self._watch_replays,
            "torch._dynamo.config": self._note_in_graphs,
        }
        sys.meta_path.insert(0, Finder(lambda _: None, journaled(self._orders, self._run, watched)))

    def _shift_seeds(self, library: str) -> None:
        if self._orders.recording and self._orders.recording.shift:
            determinism.shift_seeds(library, self._orders.recording.shift)

    def _seed_numpy(self, numpy: ModuleType) -> None:
        recording = self._orders.recording
        determinism.seed_numpy(numpy, self._orders.seed, other_samples=bool(recording and recording.other_samples))
        self._shift_seeds("numpy")

    def _prepare(self, torch: Any) -> None:
        torch.manual_seed(self._orders.seed)
        self._shift_seeds("torch")
        if self._orders.recording:
            determinism.repeat(torch)
            self._recorder = Recorder(self._orders.recording)
            self._gate.unseen = self._unseen
            self._recorder.watch(torch)  # before the steps: what it notes belongs to the step that follows
        self.steps.watch()
        self._gate.watch(torch)

    def _watch_replays(self, module: ModuleType) -> None:
        self.steps.watch_replays(module)
        if self._recorder:
            take_twice(self.steps, self._recorder, module)

    def _note_in_graphs(self, config: ModuleType) -> None:
        allow_in_graphs([self._note], config)

    @functools.cached_property
    def _is_first(self) -> bool:
        rank, ranks = rank_and_ranks()
        first = self._run / f"rank {rank} of {ranks}"
        with suppress(FileExistsError):
            first.symlink_to(str(os.getpid()))
        return str(first.readlink()) == str(os.getpid())

    def _passed(self, kind: str) -> None:
        if self._orders.unit and not self._is_first:
            return
        if self._recorder:
            self._recorder.passed()
        self._gate.passed(kind)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Have calls of a function count as steps, by their depth of nesting; recursive calls don't.

        Not for generators and coroutines, whose calls do nothing yet.
        """
        if hasattr(function, _COUNTED):
            return function
        begun = returned = False
        note, number = self._note, len(self._functions)
        self._functions.append((function, lambda: begun and not returned))

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal begun, returned
            running = self._thread.running
            if id(function) in running:
                return function(*args, **kwargs)
            if self._recorder and (torch := sys.modules["torch"]).compiler.is_compiling():
                result = function(*args, **kwargs)
                if isinstance(result, torch.Tensor):
                    note(number, True, result)
                elif isinstance(result, tuple | list) and all(isinstance(each, torch.Tensor) for each in result):
                    note(number, False, *result)
                return result
            running.append(id(function))
            begun = True
            try:
                result = function(*args, **kwargs)
            finally:
                running.pop()
                returned = True
            if self._recorder:
                self._recorder.note_output(function, result)
            self.steps.happened(calls(len(running)))
            return result

        setattr(counted, _COUNTED, True)
        return counted

    def _due(self, holds: object, line: int) -> object:
        self._tested[line] += 1
        return holds or self._tested[line] % SHORT == _SECOND

    def _unseen(self) -> tuple[str, ...]:
        recording = self._orders.recording
        functions = [_described(function) for function, is_first in self._functions if is_first()]
        inside = [loop for loop in (recording.loops if recording else ()) if _is_inside(loop)]
        return (*functions, *(f"the loop at {at_line(loop.path, loop.first)}" for loop in inside))


def _cut(iterable: Iterable[object]) -> Iterator[object]:
    return itertools.islice(iterable, SHORT)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running: list[int] = []


def _print_whole_lines() -> None:
    """Buffer lines: torchrun runs ranks with `python -u` and one pipe, in which parts of lines would mingle."""
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.write_through:
        output.reconfigure(line_buffering=True, write_through=False)


def _is_inside(loop: Loop) -> bool:
    return any(
        frame.f_code.co_name == "<module>"
        and loop.first <= frame.f_lineno <= loop.last
        and os.path.realpath(frame.f_code.co_filename) == loop.path
        for frame in frames()
    )


def _described(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    place = f" at {at_line(code.co_filename, code.co_firstlineno)}" if code else ""
    return f"{getattr(function, '__qualname__', 'a function')}(){place}"
