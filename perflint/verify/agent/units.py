"""What counts as a step of a program: an optimizer's step, a batch of a loader, or a call that is in so many others."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from perflint.verify.agent.noting import noting_calls

OPTIMIZER, BATCH, CALLS = "optimizer steps", "loader batches", "calls"
_INSIDE = " in calls"
NOTHING = "none"  # is counted
_SEVERAL = 6  # calls: fewer than can be timed
_PATIENCE = 64  # steps of other optimizers until the one that is counted is taken to be done with

Passed = Callable[[str], None]


def calls(others: int) -> str:
    """The kind of calls that are in so many others: how many of them these make is what a fix may change."""
    return CALLS + others * _INSIDE


def unit_of(kinds: Iterable[str]) -> str:
    """The kind that counts as a step of a program in which steps of these `kinds` have happened; empty without any.

    Calls count that are in as few others as may be, but several: `main` is called once, `evaluate` in each epoch.
    """
    numbers = Counter(kinds)
    by_depth = sorted((kind for kind in numbers if kind.startswith(CALLS)), key=len)
    several = [kind for kind in by_depth if numbers[kind] >= _SEVERAL]
    most = sorted(by_depth, key=lambda kind: -numbers[kind])
    known = (kind for kind in (OPTIMIZER, BATCH, *several, *most) if kind in numbers)
    return next(known, "")


class Units:
    """Tells `passed` of each step of the kind `unit`, or of every kind where that is empty, in this process alone."""

    def __init__(self, unit: str, passed: Passed) -> None:
        self._unit, self._passed, self._process = unit, passed, os.getpid()
        self._lock = threading.RLock()
        self._leader: weakref.ref[Any] | None = None
        self._others = 0

    def watch(self) -> None:
        """Count what torch is used for from now on."""
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        register_optimizer_step_post_hook(self._stepped)
        iterator.__next__ = noting_calls(iterator.__next__, lambda _: self.happened(BATCH))  # type: ignore[method-assign]

    def happened(self, kind: str) -> None:
        """One more of a kind, in whichever thread; what forked processes do doesn't count."""
        if self._unit in ("", kind) and os.getpid() == self._process:
            with self._lock:
                self._passed(kind)

    def _stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """Count the steps of one optimizer: a program with several makes one of each for a batch."""
        leader = self._leader() if self._leader else None
        self._others = 0 if optimizer is leader else self._others + 1
        if leader is None or self._others > _PATIENCE:
            self._leader, self._others = weakref.ref(optimizer), 0
        if self._leader is not None and self._leader() is optimizer:
            self.happened(OPTIMIZER)
