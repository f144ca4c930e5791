"""Has the clocks of the user's process go unevenly: what a program prints of them then differs from its other runs.

Short times are longer, so that few digits tell of them, and long ones shorter. No clock is far ahead at any time, as a
program may wait for something, or work, until one says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_CYCLE, _FAST = 2.5, 0.1  # seconds, and how many of them at their begin are fast


def upset(times: int) -> None:
    """From now on, have clocks be so many times as fast for a moment, then as slow for a while, and so on.

    Dates are left as they are: they aren't compared, and their class can't be changed, but only taken for another.
    """
    for name in _CLOCKS:
        for suffix, second in (("", 1), ("_ns", 1_000_000_000)):
            if clock := getattr(time, f"{name}{suffix}", None):
                setattr(time, f"{name}{suffix}", _Upset(clock, clock(), times, second))


@dataclass(frozen=True)
class _Upset:
    """A clock that is upset from where it began, with how many of its units make a second."""

    clock: Callable[[], float]
    begin: float
    times: int
    second: int

    def __call__(self) -> float:
        cycles, rest = divmod(self.clock() - self.begin, _CYCLE * self.second)
        passed = cycles * self._passed(_CYCLE * self.second) + self._passed(rest)
        return self.begin + type(self.begin)(passed)

    def _passed(self, rest: float) -> float:
        """What seems to have passed of one cycle."""
        fast = min(rest, _FAST * self.second)
        return fast * self.times + (rest - fast) / self.times
