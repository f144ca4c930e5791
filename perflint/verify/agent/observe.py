"""Observes in the user's process when the GPU, the host and the loader are at work: only while nothing is timed."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from perflint.verify.measure.timeline import Interval, Timeline, timeline

_ZERO = time.time_ns()
_WAITS = ("Synchronize", "Memcpy")  # in the names of calls of CUDA that come back once the device is so far
_KERNELS = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")  # in the names of those that give it kernels
_LAUNCHES = (*_KERNELS, "Memcpy", "Memset")  # and of those that give it work, but for those of no bytes: cuDNN has some
_LEAST = 0.95  # of the kernels that have to be told of
_LAG = 0.1  # seconds by which the clock of the device may be behind: what seems to come before the start isn't told of


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
        device = sys.modules["torch"].autograd.DeviceType.CUDA
        busy, blocked = seen(events(self._profile), device) if self._profile else (None, [])
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
    if not torch.cuda.is_initialized():
        return None
    with suppress(RuntimeError):
        profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        profile.start()
        time.sleep(_LAG)
        return profile
    return None


def events(profile: Any) -> Sequence[Any]:
    """Those of a profiler, which is stopped: kineto's own, of which there may be hundreds of thousands."""
    profile.stop()
    return profile.profiler.kineto_results.events()  # type: ignore[no-any-return]


def seen(events: Sequence[Any], device: object) -> tuple[list[Interval] | None, list[Interval]]:
    """When the device had work, None where some of it was lost, and when the host waited for it.

    The clock of the device may be behind or ahead: no work begins before it is launched, and an idle device begins what
    it is given at once.
    """
    calls = [event for event in events if event.device_type() != device]
    work = [event for event in events if event.device_type() == device and _is_work(event)]
    launches = {event.correlation_id(): event.start_ns() for event in calls if _has(event, _LAUNCHES)}
    waits = [_interval(event) for event in calls if _has(event, _WAITS)]
    told = {event.correlation_id() for event in work}
    kernels = [event.correlation_id() in told for event in calls if _has(event, _KERNELS)]
    if sum(kernels) < _LEAST * len(kernels) or not work:
        return None, waits
    known = (event for event in work if event.correlation_id() in launches)
    lag = min((event.start_ns() - launches[event.correlation_id()] for event in known), default=0)
    return [_interval(event, lag) for event in work], waits


def _has(event: Any, words: Sequence[str]) -> bool:
    return any(word in event.name() for word in words)


def _is_work(event: Any) -> bool:
    """Whether it is that, and no range that the user has named."""
    return "annotation" not in getattr(event, "activity_type", str)()


def _interval(event: Any, lag: int = 0) -> Interval:
    begin = event.start_ns() - lag
    return _seconds(begin), _seconds(begin + event.duration_ns())
