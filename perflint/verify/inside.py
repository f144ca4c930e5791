"""Follows the verifier's orders in the user's processes: seeds, repeatable algorithms, and steps that are counted."""

from __future__ import annotations

import builtins
import functools
import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from perflint.shim.counters import CALL
from perflint.shim.hook import Finder
from perflint.verify.gate import Gate
from perflint.verify.orders import Orders, orders
from perflint.verify.record import Recorder
from perflint.verify.units import CALLS, OPTIMIZER, Units


def follow_orders() -> Inside:
    """Take part in a verification as the environment orders."""
    given = orders()
    assert given is not None
    inside = Inside(given)
    inside.install()
    return inside


class Inside:
    """The verifier's part of one process of the user's."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._gate = Gate(orders.address)
        self._recorder: Recorder | None = None
        self.units = Units(orders.unit, self._passed)

    def install(self) -> None:
        """Take part from now on, in libraries as soon as they are imported."""
        random.seed(self._orders.seed)
        setattr(builtins, CALL, self._counted)
        watched = {"numpy": self._seed_numpy, "torch": self._prepare}
        sys.meta_path.insert(0, Finder(lambda _: None, watched))

    def _seed_numpy(self, numpy: ModuleType) -> None:
        numpy.random.seed(self._orders.seed)

    def _prepare(self, torch: Any) -> None:
        torch.manual_seed(self._orders.seed)
        self.units.watch()
        self._count_captures(torch)
        if self._orders.recording:
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.backends.cudnn.benchmark = False
            self._recorder = Recorder(self._orders.recording)
            self._recorder.watch(torch)

    def _passed(self, kind: str, source: Any) -> None:
        if self._recorder:
            self._recorder.passed(source)
        self._gate.passed(kind)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the user's that tells of its calls, but for those of itself."""
        running = False

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal running
            if running:
                return function(*args, **kwargs)
            running = True
            try:
                result = function(*args, **kwargs)
            finally:
                running = False
            if self._recorder and self._orders.unit != OPTIMIZER:  # or else its gradients tell more
                self._recorder.note_output(result)
            self.units.happened(CALLS)
            return result

        return counted

    def _count_captures(self, torch: Any) -> None:
        begin = torch.cuda.CUDAGraph.capture_begin

        @functools.wraps(begin)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._gate.captures += 1
            return begin(*args, **kwargs)

        torch.cuda.CUDAGraph.capture_begin = counted
