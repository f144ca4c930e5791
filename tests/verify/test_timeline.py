"""Timelines: when there was work, and how much of it, however finely it is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflint.verify.agent.timeline import DEVICE, HOST, LANES, LOADER, timeline, united

TIMES = st.integers(0, 1000)
INTERVALS = st.lists(st.tuples(TIMES, TIMES).map(lambda pair: (min(pair), max(pair))), max_size=40)


@given(INTERVALS)
def test_united_intervals_cover_the_same_time_once(intervals: list[tuple[int, int]]) -> None:
    covered = {moment for begin, end in intervals for moment in range(begin, end)}
    result = united(intervals)
    assert sum(end - begin for begin, end in result) == len(covered)
    assert all(first[1] < second[0] for first, second in itertools.pairwise(result))


@given(INTERVALS, INTERVALS, INTERVALS)
def test_no_time_is_lost_or_counted_twice(
    busy: list[tuple[int, int]], blocked: list[tuple[int, int]], fetches: list[tuple[int, int]]
) -> None:
    seen = timeline(100, [400, 900], busy, blocked, fetches)
    moments = range(100, 900)
    waits = {moment for begin, end in (*blocked, *fetches) for moment in range(begin, end)}
    for lane, at_work in (
        (DEVICE, {moment for begin, end in busy for moment in range(begin, end)}),
        (HOST, set(moments) - waits),
        (LOADER, {moment for begin, end in fetches for moment in range(begin, end)}),
    ):
        assert seen.share(lane) * 800 == pytest.approx(len(at_work.intersection(moments)))
    assert all(0 <= span.begin < span.end <= 800 and span.share <= 1 for span in seen.spans)


def test_ten_thousand_kernels_are_a_few_blocks() -> None:
    kernels = [(number * 1e-5, number * 1e-5 + 2.5e-6) for number in range(10_000) if number % 1000 < 600]
    seen = timeline(0.0, [0.05, 0.1], kernels, [], [])
    blocks = [span for span in seen.spans if span.lane == DEVICE]
    assert [span.share for span in blocks] == pytest.approx([0.25] * 10, rel=0.01)
    assert seen.share(DEVICE) == pytest.approx(0.15)


def test_without_a_device_the_host_works_unless_it_waits_for_the_loader() -> None:
    seen = timeline(0.0, [1.0], None, [], [(0.0, 0.25)])
    assert seen.lanes == (HOST, LOADER)
    assert (seen.share(HOST), seen.share(LOADER), seen.busy) == (0.75, 0.25, None)


def test_what_slows_the_host_down_does_not_keep_the_device_busier() -> None:
    seen = timeline(0.0, [0.03, 0.06], [(0.0, 0.01), (0.03, 0.04)], [], []).scaled(0.02)
    assert seen.lanes == LANES
    assert seen.steps == pytest.approx((0.02, 0.04))
    assert seen.slowdown == pytest.approx(1.5)
    assert seen.share(DEVICE) == pytest.approx(1 / 3)
    assert seen.busy == pytest.approx(0.5)
