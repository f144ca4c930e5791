"""Divides the wall time of a step: each moment goes to one regime and to the responsible line.

While the GPU works, a moment is of the kernel's kind and of the line that launched it; while it idles, of what the host
does: it waits for a loader, or works. A read makes the host fall behind by as long as it waited for a busy GPU: so much
of the idling that follows, and no more, is the read's.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

from perflint.profile.record import TIMED, TRACED, Owned, Record, Span, Window, innermost, mean, usual, waited
from perflint.profile.roofline import Regime, of_operation, of_work

_PRIORITY = (Regime.COMPUTE, Regime.MEMORY, Regime.INPUT, Regime.READS, Regime.COMMUNICATION)
_CALL_TICKS = 4
_LEAST_LEFT = 0.7  # of what it would be if tracing slowed all that the host does alike
_WAITS = ("Synchronize", "Memcpy")
_SECOND = 1e9

Place = tuple[str, int]
NOBODY: Place = ("", 0)


class Cell(NamedTuple):
    """The seconds of a step in a regime at a node, for an object made at the place `owner`, or nobody."""

    regime: Regime
    node: int
    owner: Place
    seconds: float


_Key = tuple[Regime, int, Place]
_Sums = dict[_Key, float]


class _Busy(NamedTuple):
    """Work from `begin` to `end`; its line is where the host was at the `moment` of launch."""

    begin: int
    end: int
    regime: Regime
    moment: int


_Timed = TypeVar("_Timed", Owned, Span, _Busy)


@dataclass(frozen=True)
class Division:
    """The cells of an average step of `seconds`; recorded steps took `slowdown` times as long.

    Only steps in the `windows` count; the `left_out` were much longer, as where an epoch ends.
    """

    cells: tuple[Cell, ...]
    seconds: float
    slowdown: float
    windows: tuple[Window, ...]
    left_out: int

    def counts(self, moment: int) -> bool:
        return any(begin <= moment < end for begin, end in self.windows)

    @property
    def shares(self) -> dict[Regime, float]:
        total = sum(cell.seconds for cell in self.cells)
        sums = {regime: sum(cell.seconds for cell in self.cells if cell.regime is regime) for regime in Regime}
        return {regime: seconds / total if total else 0.0 for regime, seconds in sums.items()}


def divide(record: Record) -> Division:
    """Divide the wall time of the traced steps, scaled to the timed ones.

    GPU work takes no longer for being traced; host work does, by as much for each line, call or operation noted.
    """
    timed = usual(record.timed, record.fetches, TIMED)
    traced = usual(record.marks, record.fetches, TRACED)
    step = mean(timed) or mean(traced)
    busy, idle = _swept(record, Host(record), traced)
    number = max(len(traced), 1)
    ratio = _waits(record, timed, traced)
    cells = _scaled(record, busy, idle, ratio, step * number)
    kept = (Cell(*key, nanoseconds / number / _SECOND) for key, nanoseconds in cells if nanoseconds)
    left_out = len(record.marks) - 1 - len(traced)
    return Division(tuple(kept), step / _SECOND, mean(traced) / (step or 1), tuple(traced), left_out)


def _scaled(record: Record, busy: _Sums, idle: _Sums, ratio: float, wanted: float) -> Iterator[tuple[_Key, float]]:
    """Nanoseconds of busy and idle times, scaled to add up to those `wanted`.

    Timed steps waited `ratio` times as long for batches.
    """
    fixed, free = (busy, idle) if record.is_gpu else ({}, {**idle, **busy})
    waits = {key: each for key, each in free.items() if key[0] is Regime.INPUT}
    fixed = {**fixed, **{key: each * ratio for key, each in waits.items()}}
    free = {key: each for key, each in free.items() if key not in waits}
    known, left = sum(fixed.values()), sum(free.values())
    if known >= wanted or not left:
        yield from ((key, each * wanted / known) for key, each in fixed.items())
        return
    ticks = _ticks(record)
    excess = max(0.0, left - (wanted - known))
    each_tick = excess / (sum(ticks[key[1]] for key in free) or 1)
    least = _LEAST_LEFT * (wanted - known) / left
    less = {key: max(each - each_tick * ticks[key[1]], least * each) for key, each in free.items()}
    scale = (wanted - known) / sum(less.values())
    yield from fixed.items()
    yield from ((key, nanoseconds * scale) for key, nanoseconds in less.items())


def _waits(record: Record, timed: Sequence[Window], traced: Sequence[Window]) -> float:
    before, after = (waited(windows, record.fetches) for windows in (timed, traced))
    return before / len(timed) / (after / len(traced)) if before and after else 1.0


def _ticks(record: Record) -> Counter[int]:
    host = Host(record)
    ticks = Counter[int](record.at)
    ticks.update(host.node(each.begin) for each in record.ops)
    for call in record.calls:
        ticks[host.node(call.begin)] += _CALL_TICKS
    return ticks


class Host:
    def __init__(self, record: Record) -> None:
        self._times, self._at = record.times, record.at
        self._owned = sorted([*record.fetches, *record.optimizers])
        self._begins = [each.begin for each in self._owned]
        self.fetches = sorted(record.fetches)

    def node(self, moment: int) -> int:
        place = bisect_right(self._times, moment) - 1
        return self._at[place] if place >= 0 else 0

    def owner(self, moment: int) -> Place:
        place = bisect_right(self._begins, moment) - 1
        if place >= 0 and moment < self._owned[place].end:
            return self._owned[place].path, self._owned[place].line
        return NOBODY

    def lines(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        place = bisect_right(self._times, begin)
        while begin < end:
            until = min(self._times[place], end) if place < len(self._times) else end
            if until > begin:
                yield begin, until, self._at[place - 1] if place else 0
            begin, place = max(until, begin), place + 1


def _swept(record: Record, host: Host, windows: Sequence[tuple[int, int]]) -> tuple[_Sums, _Sums]:
    busy: _Sums = defaultdict(float)
    idle: _Sums = defaultdict(float)
    works, launches = _work(record, host), record.launches
    begun = {span.begin: launches.get(span.link, span.begin) for span in record.work}
    segments = list(_segments(works))
    reads = _Reads(record, segments)
    collectives = sorted(span for span in record.ops if of_operation(span.name) is Regime.COMMUNICATION)
    for first, last in windows:
        now = first
        for work in _within(segments, first, last):
            key = work.regime, host.node(work.moment), host.owner(work.moment)
            if work.begin > now:
                if record.is_gpu and begun.get(work.begin, work.begin) < now:  # the device itself took so long
                    busy[key] += work.begin - now
                else:
                    _idle(idle, host, reads, collectives, now, work.begin)
            busy[key] += work.end - work.begin
            now = work.end
        if now < last:
            _idle(idle, host, reads, collectives, now, last)
    return busy, idle


def _work(record: Record, host: Host) -> list[_Busy]:
    if record.is_gpu:
        launched = record.launches
        return [
            _Busy(span.begin, span.end, of_work(span.name), launched.get(span.link, span.begin)) for span in record.work
        ]
    found = [
        _Busy(begin, end, of_operation(span.name), begin)
        for begin, end, span in innermost(record.ops)
        if of_operation(span.name) in (Regime.COMPUTE, Regime.MEMORY)
    ]
    return [each for each in found if not _within(host.fetches, each.begin, each.begin + 1)]


def _segments(works: Iterable[_Busy]) -> Iterator[_Busy]:
    pending = deque(sorted(works))
    active: list[tuple[int, int, _Busy]] = []
    now = 0
    while pending or active:
        if not active:
            now = pending[0].begin
        while pending and pending[0].begin <= now:
            work = pending.popleft()
            if work.end > now:
                heapq.heappush(active, (_PRIORITY.index(work.regime), work.begin, work))
        while active and active[0][2].end <= now:
            heapq.heappop(active)
        if active:
            until = min(active[0][2].end, pending[0].begin if pending else active[0][2].end)
            if until > now:
                yield active[0][2]._replace(begin=now, end=until)
            now = until


class _Reads:
    """Calls that waited for a busy device, and by how much the host could be ahead without them."""

    def __init__(self, record: Record, segments: Sequence[_Busy]) -> None:
        threads = {call.thread for call in record.calls}
        self.calls = sorted(
            call
            for call in record.calls
            if any(word in call.name for word in _WAITS) and (record.main not in threads or call.thread == record.main)
        )
        self._segments = segments
        self._next = 0
        self._credits: deque[tuple[int, int]] = deque()  # nanoseconds, and when the call began

    def charged(self, moment: int, nanoseconds: int) -> Iterator[tuple[int, int]]:
        """What part of some idling earlier calls caused: nanoseconds, and their moments."""
        while self._next < len(self.calls) and self.calls[self._next].end <= moment:
            call = self.calls[self._next]
            waited = sum(each.end - each.begin for each in _within(self._segments, call.begin, call.end))
            if waited:
                self._credits.append((waited, call.begin))
            self._next += 1
        while nanoseconds and self._credits:
            credit, begun = self._credits.popleft()
            used = min(credit, nanoseconds)
            yield used, begun
            nanoseconds -= used
            if credit > used:
                self._credits.appendleft((credit - used, begun))


def _idle(idle: _Sums, host: Host, reads: _Reads, collectives: Sequence[Span], begin: int, end: int) -> None:
    for first, last, regime in _doing(host, reads, collectives, begin, end):
        for start, until, node in host.lines(first, last):
            owner, left = host.owner(start), until - start
            if regime is Regime.OVERHEAD:
                for charged, moment in reads.charged(until, left):
                    idle[Regime.READS, host.node(moment), host.owner(moment)] += charged
                    left -= charged
            idle[regime, node, owner] += left


def _doing(
    host: Host, reads: _Reads, collectives: Sequence[Span], begin: int, end: int
) -> Iterator[tuple[int, int, Regime]]:
    parts: list[tuple[Regime, Owned | Span]] = [
        *((Regime.INPUT, each) for each in _within(host.fetches, begin, end)),
        *((Regime.READS, each) for each in _within(reads.calls, begin, end)),
        *((Regime.COMMUNICATION, each) for each in _within(collectives, begin, end)),
    ]
    edges = sorted({begin, end, *(edge for _, part in parts for edge in (part.begin, part.end))})
    for first, last in pairwise(edges):
        held = (regime for regime, part in parts if part.begin <= first and last <= part.end)
        yield first, last, next(held, Regime.OVERHEAD)


def _within(spans: Sequence[_Timed], begin: int, end: int) -> list[_Timed]:
    place = max(bisect_right(spans, begin, key=lambda each: each.begin) - 1, 0)
    found = []
    while place < len(spans) and spans[place].begin < end:
        span = spans[place]
        if span.end > begin:
            found.append(span._replace(begin=max(span.begin, begin), end=min(span.end, end)))
        place += 1
    return found
