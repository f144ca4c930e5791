"""When the GPU, the host and the loader were at work in a few steps of a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

DEVICE, HOST, LOADER = "GPU busy", "host", "loader wait"
LANES = (DEVICE, HOST, LOADER)
_FINEST = 0.002  # of a timeline: gaps that are shorter are no gaps of their own

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """The time from `begin` to `end`, in seconds since its timeline began: work took so great a `share` of it."""

    lane: str  # one of LANES
    begin: float
    end: float
    share: float = 1.0


@dataclass(frozen=True)
class Timeline:
    """A few consecutive steps, from idle device to idle device; `steps` holds the seconds at which each ended.

    `lanes` are those that could be observed. To observe takes time: the steps took `slowdown` times as long as those
    that were timed, to whose length all is scaled.
    """

    seconds: float
    spans: tuple[Span, ...]
    steps: tuple[float, ...]
    lanes: tuple[str, ...] = LANES
    slowdown: float = 1.0

    def share(self, lane: str) -> float:
        """The share of the time in which there was work in a lane."""
        return sum((span.end - span.begin) * span.share for span in self.spans if span.lane == lane) / self.seconds

    @property
    def busy(self) -> float | None:
        """The share of timed steps in which the GPU had work, which takes no longer for being observed."""
        return min(1.0, self.share(DEVICE) * self.slowdown) if DEVICE in self.lanes else None

    def scaled(self, step: float) -> Timeline:
        """The same with steps of so many seconds, on the average."""
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
    """The timeline of steps from `begin` to `ends`, by when the GPU had work (None without one) and the host waited.

    The host waited for the GPU where it was `blocked`, and to `fetch` from loaders; it was at work else.
    """
    end = ends[-1]
    waits = united(clipped([*blocked, *fetch], begin, end))
    lanes = {HOST: gaps(waits, begin, end), LOADER: united(clipped(fetch, begin, end))}
    if busy is not None:
        lanes = {DEVICE: united(clipped(busy, begin, end)), **lanes}
    finest = _FINEST * (end - begin)
    spans = [
        Span(lane, first - begin, last - begin, share)
        for lane, work in lanes.items()
        for first, last, share in blocks(work, finest)
    ]
    return Timeline(end - begin, tuple(spans), tuple(each - begin for each in ends), tuple(lanes))


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time in the order of time: what overlaps or touches as one, and nothing that takes no time."""
    result: list[Interval] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        elif end > begin:
            result.append((begin, end))
    return result


def clipped(intervals: Iterable[Interval], begin: float, end: float) -> Iterator[Interval]:
    """What lies between `begin` and `end`."""
    for first, last in intervals:
        if first < end and last > begin:
            yield max(first, begin), min(last, end)


def gaps(intervals: Sequence[Interval], begin: float, end: float) -> list[Interval]:
    """What is left from `begin` to `end` by intervals in between, in the order of time."""
    edges = [begin, *(edge for interval in intervals for edge in interval), end]
    return [(first, last) for first, last in zip(edges[::2], edges[1::2], strict=True) if last > first]


def blocks(intervals: Iterable[Interval], finest: float) -> Iterator[tuple[float, float, float]]:
    """Intervals in the order of time, those with gaps of at most `finest` as one: begin, end, and their share of it."""
    group: list[Interval] = []
    for interval in intervals:
        if group and interval[0] - group[-1][1] > finest:
            yield _block(group)
            group = []
        group.append(interval)
    if group:
        yield _block(group)


def _block(group: Sequence[Interval]) -> tuple[float, float, float]:
    begin, end = group[0][0], group[-1][1]
    return begin, end, sum(last - first for first, last in group) / (end - begin)
