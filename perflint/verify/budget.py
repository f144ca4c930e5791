"""The time that a verification may take, its parts, and where it went."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

_HALF, _MINUTE, _LONG = 30, 60, 300  # seconds, by which budgets are named, and from where on by minutes
_SOON = 1e-3  # seconds: a timer of none would never ring


class Share(float, Enum):
    """What each part of a verification may take of its budget."""

    FINDING = 0.6  # finding fixes, before anything runs
    TUNING = 0.2  # a run that tunes loaders
    PROFILE = 0.15  # a profile of a few steps
    LOOK = 0.1  # a first look at the program, from its first step on
    RACE = 0.5  # what is kept for races, at most, while results are compared
    FURTHER = 0.05  # a run of the original beyond the steps that are compared, from there on
    SEEDS = 0.25  # runs of one variant with several seeds
    PROOF = 0.4  # what is kept of the time that is left for recordings of what has won a race
    EARLY, LATE = 0.6, 1.0  # of what is left: for what runs early, if that is enough, and then for what runs late
    LEAVING = 0.08  # what comes after the last run, at most
    OVER = 0.04  # beyond its end, where what has been recorded and raced is still compared, at most


@dataclass(frozen=True)
class Spent:
    """What a part of a verification took: all of its `seconds`, and those of its `starts` of programs among them."""

    part: str
    seconds: float
    starts: int = 0
    starting: float = 0.0


class TimeUp(Exception):
    """The time for what was done is over, which is nobody's fault."""


class _Alarm(BaseException):
    """The same where it comes, which nothing handles as an error of its own."""


class Ledger:
    """Notes where the time goes, by parts that come one after the other, each `within` something larger."""

    def __init__(self) -> None:
        self.within = ""
        self._parts: dict[str, Spent] = {}
        self._now, self._since = "", time.monotonic()

    def enter(self, part: str) -> None:
        part = f"{self.within}{part}"
        before, now = self._parts.get(self._now), time.monotonic()
        if before:
            self._parts[self._now] = replace(before, seconds=before.seconds + now - self._since)
        self._now, self._since = part, now
        self._parts.setdefault(part, Spent(part, 0.0))

    def started(self, seconds: float) -> None:
        """Note that a program came to its first step, or to that which was asked for."""
        if known := self._parts.get(self._now):
            self._parts[self._now] = replace(known, starts=known.starts + 1, starting=known.starting + seconds)

    @property
    def spent(self) -> tuple[Spent, ...]:
        self.within = ""
        self.enter(self._now)
        return tuple(each for each in self._parts.values() if each.part)


class Budget:
    """The seconds that something may take, from `begin` on, which is now; as a part of a `whole`, none beyond that."""

    def __init__(self, seconds: float, whole: Budget | None = None, begin: float | None = None) -> None:
        self.seconds = min(seconds, whole.left) if whole else seconds
        self._begin = time.monotonic() if begin is None else begin

    @property
    def spent(self) -> float:
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.spent)

    def of(self, share: Share) -> float:
        return share * self.seconds

    def longer(self, seconds: float = 0.0) -> float:
        """The seconds of a budget that gives so many, and is twice as long as this one at least: a round number."""
        unit = _MINUTE if seconds > _LONG else _HALF
        return unit * math.ceil(max(2 * self.seconds, seconds) / unit)

    def part(self, seconds: float) -> Budget:
        """So many seconds from now on, but no more than are left."""
        return Budget(seconds, self)


@contextmanager
def deadline(budget: Budget) -> Iterator[None]:
    """Stop what is done in here at the end of a budget, wherever it is, by TimeUp; in the main thread alone.

    Within another one it is that which ends first.
    """
    if math.isinf(budget.left) or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _stop)
    around = Budget(signal.getitimer(signal.ITIMER_REAL)[0] or math.inf)
    signal.setitimer(signal.ITIMER_REAL, max(min(budget.left, around.left), _SOON))
    try:
        yield
    except _Alarm:
        raise TimeUp from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0 if math.isinf(around.left) else max(around.left, _SOON))
        signal.signal(signal.SIGALRM, before)


def _stop(*_: object) -> None:
    raise _Alarm
