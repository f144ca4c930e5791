"""Observes in the user's process when the GPU, the host and the loader are at work: only while nothing is timed."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perflint.verify.timeline import Interval, Timeline, timeline

_ZERO = time.time_ns()
_WAITS = ("Synchronize", "Memcpy")  # in the names of calls of CUDA that come back once the device is so far


class Observer:
    """Observes this thread for some steps, of which the first is but a preparation: what observes warms up, too."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._thread = threading.get_ident()
        self._marks: list[float] = []
        self._fetches: list[Interval] = []
        self._stop_fetches = self._observe_fetches()
        self._profile = _profile()

    def passed(self) -> None:
        """One more step is done."""
        if not self._marks:
            self._synchronize()
        self._marks.append(_now())

    def result(self) -> Timeline | None:
        """What was observed, to be asked for once the device is idle; None if that was nothing."""
        end = _now()
        self._stop_fetches()
        busy, blocked = _seen(self._profile) if self._profile else (None, [])
        begin, *ends = self._marks
        return timeline(begin, [*ends[:-1], end], busy, blocked, self._fetches) if ends else None

    def _observe_fetches(self) -> Callable[[], None]:
        from torch.utils.data.dataloader import _BaseDataLoaderIter as iterator

        fetch = iterator.__next__

        @functools.wraps(fetch)
        def observed(loader: Any) -> Any:
            begin = _now()
            try:
                return fetch(loader)
            finally:
                if threading.get_ident() == self._thread:
                    self._fetches.append((begin, _now()))

        def stop() -> None:
            iterator.__next__ = fetch  # type: ignore[method-assign]

        iterator.__next__ = observed  # type: ignore[assignment, method-assign]
        return stop


def _now() -> float:
    return _seconds(time.time_ns())  # the clock of the profiler


def _seconds(nanoseconds: int) -> float:
    """As seconds of a time that is near enough for their fractions to be kept."""
    return (nanoseconds - _ZERO) / 1e9


def _profile() -> Any:
    """A profiler at work on the device; None where none is in use, or the program's own profiler is at work."""
    torch = sys.modules["torch"]
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    with suppress(RuntimeError):
        profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        profile.start()
        return profile
    return None


def _seen(profile: Any) -> tuple[list[Interval], list[Interval]]:
    """When the device had work, and when the host waited for it."""
    profile.stop()
    device = sys.modules["torch"].autograd.DeviceType.CUDA
    busy, blocked = [], []
    for event in profile.profiler.kineto_results.events():
        begin = event.start_ns()
        interval = (_seconds(begin), _seconds(begin + event.duration_ns()))
        if event.device_type() != device:
            blocked += [interval] if any(word in event.name() for word in _WAITS) else []
        elif "annotation" not in getattr(event, "activity_type", str)():  # a range that the user names is no work
            busy.append(interval)
    return busy, blocked
