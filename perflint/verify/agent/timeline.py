"""Observes a few steps: when the GPU, the host and the loader were at work."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

DEVICE, HOST, LOADER = "GPU busy", "host", "loader wait"
LANES = (DEVICE, HOST, LOADER)
_FINEST = 0.002  # of a timeline: shorter gaps are merged into blocks
_ZERO = time.time_ns()
_WAITS = ("Synchronize", "Memcpy")  # in the names of CUDA calls that wait for the device
_KERNELS = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")  # of those that launch kernels
LAUNCHES = (*_KERNELS, "Memcpy", "Memset")  # of those that launch work, though some copy no bytes
_LEAST = 0.95  # of the kernels must have been recorded
_LAG = 0.1  # seconds by which the device's clock may be behind: what seems to precede the start is not recorded

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """Seconds `begin` to `end` of a timeline, a `share` of which a lane worked."""

    lane: str  # one of LANES
    begin: float
    end: float
    share: float = 1.0


@dataclass(frozen=True)
class Timeline:
    """A few consecutive steps from idle device to idle device, and the seconds at which each ended.

    `lanes` could be observed. Observed steps took `slowdown` times as long as timed ones, to whose length all is
    scaled.
    """

    seconds: float
    spans: tuple[Span, ...]
    steps: tuple[float, ...]
    lanes: tuple[str, ...] = LANES
    slowdown: float = 1.0

    def share(self, lane: str) -> float:
        return sum((span.end - span.begin) * span.share for span in self.spans if span.lane == lane) / self.seconds

    @property
    def busy(self) -> float | None:
        """The share of timed steps in which the GPU had work, which takes no longer for being observed."""
        return min(1.0, self.share(DEVICE) * self.slowdown) if DEVICE in self.lanes else None

    def scaled(self, step: float) -> Timeline:
        factor = step * len(self.steps) / self.seconds
        spans = (replace(span, begin=span.begin * factor, end=span.end * factor) for span in self.spans)
        steps = tuple(end * factor for end in self.steps)
        return Timeline(self.seconds * factor, tuple(spans), steps, self.lanes, self.slowdown / factor)


def timeline(
    begin: float,
    ends: Sequence[float],
    busy: Iterable[Interval] | None,
    blocked: Iterable[Interval],
    fetch: Sequence[Interval],
) -> Timeline:
    """The timeline of steps from `begin` to `ends`: the GPU was `busy` (None if unknown).

    The host waited for the GPU where it was `blocked`, and for loaders where it had to `fetch`; else it worked.
    """
    end = ends[-1]
    waits = united(clipped([*blocked, *fetch], begin, end))
    lanes = {HOST: gaps(waits, begin, end), LOADER: united(clipped(fetch, begin, end))}
    if busy is not None:
        lanes = {DEVICE: united(clipped(busy, begin, end)), **lanes}
    spans = [
        Span(lane, first - begin, last - begin, share)
        for lane, work in lanes.items()
        for first, last, share in blocks(work, _FINEST * (end - begin))
    ]
    return Timeline(end - begin, tuple(spans), tuple(each - begin for each in ends), tuple(lanes))


def united(intervals: Iterable[Interval]) -> list[Interval]:
    result: list[Interval] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        elif end > begin:
            result.append((begin, end))
    return result


def clipped(intervals: Iterable[Interval], begin: float, end: float) -> Iterator[Interval]:
    return ((max(first, begin), min(last, end)) for first, last in intervals if first < end and last > begin)


def gaps(intervals: Sequence[Interval], begin: float, end: float) -> list[Interval]:
    edges = [begin, *(edge for interval in intervals for edge in interval), end]
    return [(first, last) for first, last in zip(edges[::2], edges[1::2], strict=True) if last > first]


def blocks(intervals: Iterable[Interval], finest: float) -> Iterator[tuple[float, float, float]]:
    """Merge ordered intervals over gaps of at most `finest`: begin, end, and the share that they fill."""
    groups: list[list[Interval]] = []
    for interval in intervals:
        if groups and interval[0] - groups[-1][-1][1] <= finest:
            groups[-1].append(interval)
        else:
            groups.append([interval])
    for group in groups:
        begin, end = group[0][0], group[-1][1]
        yield begin, end, sum(last - first for first, last in group) / (end - begin)


class Observer:
    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._thread = threading.get_ident()
        self._marks: list[float] = []
        self._fetches: list[Interval] = []
        self._stop_fetches = self._observe_fetches()
        self._kineto = Kineto.started(device=True) if sys.modules["torch"].cuda.is_initialized() else None

    def passed(self) -> None:
        if not self._marks:
            self._synchronize()
        self._marks.append(_now())

    def result(self) -> Timeline | None:
        end = _now()
        self._stop_fetches()
        device = sys.modules["torch"].autograd.DeviceType.CUDA
        busy, blocked = seen(self._kineto.stop(), device) if self._kineto else (None, [])
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

        iterator.__next__ = observed  # type: ignore[assignment, method-assign]
        return lambda: setattr(iterator, "__next__", fetch)


def _now() -> float:
    return _seconds(time.time_ns())  # the profiler's clock


def _seconds(nanoseconds: int) -> float:
    """Seconds since the import, which keeps fractions."""
    return (nanoseconds - _ZERO) / 1e9


class Kineto:
    """A profiler of the device's work and CUDA calls, or, on the `host`, of torch's operations with `shapes`."""

    def __init__(self, *, device: bool, host: bool = False, shapes: bool = False) -> None:
        profiler = sys.modules["torch"].profiler
        kinds = profiler.ProfilerActivity
        wanted = [*([kinds.CPU] if host else []), *([kinds.CUDA] if device else [])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of cycles, which there are none of
            self._profile: Any = profiler.profile(activities=wanted, record_shapes=shapes)
            self._profile.start()
        if device:
            time.sleep(_LAG)

    @classmethod
    def started(cls, *, device: bool, host: bool = False, shapes: bool = False) -> Kineto | None:
        """One that records from now on; None if the program itself profiles, say."""
        with suppress(RuntimeError):
            return cls(device=device, host=host, shapes=shapes)
        return None

    def stop(self) -> Sequence[Any]:
        self._profile.stop()
        return self._profile.profiler.kineto_results.events()  # type: ignore[no-any-return]

    def export(self, path: str) -> None:
        self._profile.export_chrome_trace(path)

    def close(self) -> None:
        self._profile = None
        gc.collect()


def seen(events: Sequence[Any], device: object) -> tuple[list[Interval] | None, list[Interval]]:
    """When the device worked, None where too many kernels are missing, and when the host waited for it.

    The device's clock may be off: no work begins before its launch, and an idle device begins at once.
    """
    calls = [event for event in events if event.device_type() != device]
    work = [event for event in events if event.device_type() == device and is_work(event)]
    waits = [_interval(event) for event in calls if has(event, _WAITS)]
    recorded = {event.correlation_id() for event in work}
    kernels = [event.correlation_id() in recorded for event in calls if has(event, _KERNELS)]
    if sum(kernels) < _LEAST * len(kernels) or not work:
        return None, waits
    lag = lag_of(work, calls)
    return [_interval(event, lag) for event in work], waits


def lag_of(work: Iterable[Any], calls: Iterable[Any]) -> int:
    """The nanoseconds by which the device's clock is ahead: no work begins before its launch."""
    launches = {event.correlation_id(): event.start_ns() for event in calls if has(event, LAUNCHES)}
    known = (event for event in work if event.correlation_id() in launches)
    return min((event.start_ns() - launches[event.correlation_id()] for event in known), default=0)


def has(event: Any, words: Sequence[str]) -> bool:
    return any(word in event.name() for word in words)


def is_work(event: Any) -> bool:
    return "annotation" not in getattr(event, "activity_type", str)()


def _interval(event: Any, lag: int = 0) -> Interval:
    begin = event.start_ns() - lag
    return _seconds(begin), _seconds(begin + event.duration_ns())
