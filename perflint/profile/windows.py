"""Chooses the steps that count: the end of an epoch, a checkpoint or a full buffer say nothing of a step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from perflint.profile.record import Owned

TIMED, TRACED = 4.0, 1.5  # times the median that a step may take
_LEAST = 2_000_000  # nanoseconds above it
_AHEAD = 3.0  # times the median

Window = tuple[int, int]  # nanoseconds: the begin and the end of a step


def usual(marks: Sequence[int], fetches: Sequence[Owned], most: float) -> list[Window]:
    """The steps between `marks` that take at most so many times the median, or hardly more.

    Waits for batches come in bursts, and don't count here. The last step ends with an idle device: if it takes by far
    the longest, the host was ahead in the others, whose lengths say nothing then.
    """
    steps = list(pairwise(marks))
    lengths = [end - begin - waited([(begin, end)], fetches) for begin, end in steps]
    *others, last = lengths or [0]
    middle = statistics.median(others or [last])
    if last > _AHEAD * middle:
        return steps
    longest = max(most * middle, middle + _LEAST)
    return [step for step, length in zip(steps, lengths, strict=True) if length <= longest]


def waited(windows: Sequence[Window], fetches: Sequence[Owned]) -> int:
    """The nanoseconds in some steps that passed in waits for batches."""
    return sum(max(0, min(each.end, end) - max(each.begin, begin)) for begin, end in windows for each in fetches)


def mean(windows: Sequence[Window]) -> float:
    """The nanoseconds of a step; 0 without any."""
    return sum(end - begin for begin, end in windows) / len(windows) if windows else 0.0
