"""Follows the verifier's orders in the user's processes: seeds, repeatable algorithms, and steps that are counted."""

from __future__ import annotations

import builtins
import functools
import io
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from perflint.shim.counters import CALL
from perflint.shim.hook import AfterImport, Finder
from perflint.verify.agent import clocks, dice
from perflint.verify.agent.gate import Gate
from perflint.verify.agent.journal import Journal
from perflint.verify.agent.places import Places
from perflint.verify.agent.record import Recorder
from perflint.verify.agent.units import Units, calls
from perflint.verify.run.orders import Orders, orders

_COUNTED = "__perflint_counted__"


def join() -> Inside:
    """Take part in a verification as the environment orders."""
    given = orders()
    assert given is not None
    inside = Inside(given)
    inside.install()
    return inside


def _print_whole_lines() -> None:
    """Those of several ranks come out of one pipe, and torchrun starts them with `python -u`, by which parts mingle."""
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.write_through:
        output.reconfigure(line_buffering=True, write_through=False)


class Inside:
    """The verifier's part of one process of the user's."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._gate = Gate(orders.address, orders.until)
        self._recorder: Recorder | None = None
        self._places = Places(orders.recording.loops if orders.recording else ())
        self._thread = _Thread()
        self.units = Units(orders.unit, self._passed)

    def install(self) -> None:
        """Take part from now on, in libraries as soon as they are imported."""
        _print_whole_lines()
        random.seed(self._orders.seed)
        self._shift_seeds("random")
        if self._orders.recording and self._orders.recording.clock > 1:
            clocks.upset(self._orders.recording.clock)
        setattr(builtins, CALL, self.counted)
        watched = {"numpy": self._seed_numpy, "torch": self._prepare}
        if self._orders.journal:
            self._keep_files(watched)
        sys.meta_path.insert(0, Finder(lambda _: None, watched))

    def _keep_files(self, watched: dict[str, AfterImport]) -> None:
        """Keep what files were before they are changed, by what is `watched` as well."""
        journal = Journal(Path(self._orders.journal), self._orders.roots, self._orders.ours)
        journal.watch()
        for name, watch in journal.libraries.items():
            watched[name] = _both(watch, watched.get(name))

    def _shift_seeds(self, library: str) -> None:
        if self._orders.recording and self._orders.recording.shift:
            dice.shift_seeds(library, self._orders.recording.shift)

    def _seed_numpy(self, numpy: ModuleType) -> None:
        recording = self._orders.recording
        dice.seed_numpy(numpy, self._orders.seed, stirred=bool(recording and recording.stirred))
        self._shift_seeds("numpy")

    def _prepare(self, torch: Any) -> None:
        torch.manual_seed(self._orders.seed)
        self._shift_seeds("torch")
        if self._orders.recording:
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.backends.cudnn.benchmark = False
            torch.backends.cudnn.allow_tf32 = False  # its rounding hides what differs; a program may set it again
            self._recorder = Recorder(self._orders.recording)
            self._gate.unseen = self._places.unseen
            self._recorder.watch(torch)  # what it notes comes before a step is counted
        self.units.watch()
        self._count_captures(torch)

    def _passed(self, kind: str) -> None:
        if self._recorder:
            self._recorder.passed()
        self._gate.passed(kind)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the user's that tells of its calls, but for those of itself, and in how many others they are.

        Generators and coroutines are not to be counted: their calls do nothing yet.
        """
        if hasattr(function, _COUNTED):
            return function
        begun = returned = False
        self._places.add(function, lambda: begun and not returned)

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal begun, returned
            running = self._thread.running
            if id(function) in running or (self._recorder and sys.modules["torch"].compiler.is_compiling()):
                return function(*args, **kwargs)
            running.append(id(function))
            begun = True
            try:
                result = function(*args, **kwargs)
            finally:
                running.pop()
                returned = True
            if self._recorder:
                self._recorder.note_output(function, result)
            self.units.happened(calls(len(running)))
            return result

        setattr(counted, _COUNTED, True)
        return counted

    def _count_captures(self, torch: Any) -> None:
        begin = torch.cuda.CUDAGraph.capture_begin

        @functools.wraps(begin)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._gate.captures += 1
            return begin(*args, **kwargs)

        torch.cuda.CUDAGraph.capture_begin = counted


class _Thread(threading.local):
    """The functions whose calls each thread is in, the outermost first."""

    def __init__(self) -> None:
        self.running: list[int] = []  # their ids


def _both(first: AfterImport, second: AfterImport | None) -> AfterImport:
    def both(module: ModuleType) -> None:
        first(module)
        if second:
            second(module)

    return both
