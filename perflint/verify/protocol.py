"""Plans the time of a verification: its budget, and the windows, pairs and rounds of races that fit into it."""

from __future__ import annotations

import math
import signal
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from perflint.verify.agent.steps import unit_of
from perflint.verify.messages import Platform
from perflint.verify.verdict import Spent

_HALF, _MINUTE, _LONG = 30, 60, 300  # seconds, by which budgets are named, and from where on by minutes
_SOON = 1e-3  # seconds: a timer of none would never ring


class Share(float, Enum):
    FINDING = 0.6  # finding fixes, before anything runs
    TUNING = 0.2
    PROFILE = 0.15
    LOOK = 0.1  # a first look at the program, from its first step on
    RACE = 0.5  # what is kept for races, at most, while results are compared
    FURTHER = 0.05  # a run of the original beyond the steps that are compared, from there on
    SEEDS = 0.25  # runs of one variant with several seeds
    PROOF = 0.4  # what is kept of the time that is left for recordings of what has won a race
    EARLY, LATE = 0.6, 1.0  # of what is left: for what runs early, if that is enough, and then for what runs late
    LEAVING = 0.08  # what comes after the last run, at most
    OVER = 0.04  # beyond its end, where what has been recorded and raced is still compared, at most


class TimeUp(Exception):
    """The time for what was done is over, which is nobody's fault."""


class _Alarm(BaseException):
    """TimeUp where it is raised: no handler of the program's errors catches it."""


class Ledger:
    """Notes where the time goes, by consecutive parts, each named `within` a larger one."""

    def __init__(self) -> None:
        self.within = ""
        self._parts: dict[str, Spent] = {}
        self._now, self._since = "", time.monotonic()
        self._started = self._since  # up to when starts are noted

    def enter(self, part: str) -> None:
        part = f"{self.within}{part}"
        before, now = self._parts.get(self._now), time.monotonic()
        if before:
            self._parts[self._now] = replace(before, seconds=before.seconds + now - self._since)
        self._now, self._since = part, now
        self._parts.setdefault(part, Spent(part, 0.0))

    def started(self, seconds: float) -> None:
        """Note a start; where starts overlap, time counts once."""
        if known := self._parts.get(self._now):
            before, self._started = max(self._since, self._started), time.monotonic()
            alone = min(seconds, self._started - before)
            self._parts[self._now] = replace(known, starts=known.starts + 1, starting=known.starting + alone)

    @property
    def spent(self) -> tuple[Spent, ...]:
        self.within = ""
        self.enter(self._now)
        return tuple(each for each in self._parts.values() if each.part)


class Budget:
    """Seconds that something may take from `begin` on, by default now; as part of a `whole`, never beyond it."""

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
        """A round number of seconds, at least those given and twice this budget."""
        unit = _MINUTE if seconds > _LONG else _HALF
        return unit * math.ceil(max(2 * self.seconds, seconds) / unit)

    def part(self, seconds: float) -> Budget:
        return Budget(seconds, self)


@contextmanager
def deadline(budget: Budget) -> Iterator[None]:
    """Raise TimeUp inside the block when the budget ends, in the main thread alone. Of nested ones the first to end
    counts.
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


_WINDOW = 0.25  # seconds that a window lasts at least, so that a stall of a few milliseconds is no 5 % of it
_LONGEST = 1.0  # seconds
_FOR_STARTS = 0.6  # of the time there is may go into starting processes
_SURE = 0.85  # of the time is planned: the last round counts as much as the first
_PAIRS, _FEWEST_PAIRS = 10, 3
_ROUNDS, _FEWEST_ROUNDS = 8, 3  # what finds a gain of 5 % nearly always: `python -m tests.bench.protocols`
_WARM_UP = 4  # steps at least: graphs are captured at the second call or the third
_SETTLED = 1.3
HORIZON = 20  # steps; whoever trains for longer compares chaos
_LEAST_HORIZON = 4
_RECORDINGS, _SLOWER = 4, 2.0  # one after the other, in which steps take so many times as long
_OBSERVED = 0.2  # seconds of steps, or a little more: they are drawn, and events kept of all that they do
_FEWEST_OBSERVED, _MOST_OBSERVED = 3, 10
_TICK = 1e-9  # seconds
AT_ONCE = 6
_MORE = 1.5
_WHOLE = 6  # steps of a program that has too few for windows
_PATIENCE, _LEAST_PATIENCE = 10, 60.0  # times as long as the original takes, and seconds
_COMPILED = 8  # steps until compiled modules are replayed: three calls before they are, two that capture graphs
_COMPILING = 300.0  # seconds, as long may it take to compile large models


@dataclass(frozen=True)
class Passage:
    """A step of any kind in the first look, and the seconds since the one before."""

    kind: str
    seconds: float


@dataclass(frozen=True)
class Look:
    """A first run of the original: seconds to its first step, its steps, whether that was all, and its ranks.

    The step after the last had run for `rest` seconds. Steps are alike every `period`, as in short epochs. `ran` is
    what was counted within the horizon, `frames` the places where the program was then, innermost first. `places` has
    those at steps of optimizers and evaluation batches, by kind; `chosen` is the kind that counts as a step. A whole
    program ended with exit `code`.
    """

    start: float
    passages: tuple[Passage, ...]
    is_whole: bool
    platforms: tuple[Platform, ...] = ()
    rest: float = 0.0
    period: int = 1
    ran: frozenset[str] = frozenset()
    frames: tuple[tuple[str, int], ...] = ()
    places: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    chosen: str = ""
    code: int = 0

    @property
    def device(self) -> str:
        return next((each.device for each in self.platforms), "")

    @property
    def versions(self) -> Mapping[str, str]:
        return next((each.versions for each in self.platforms), {})

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(sorted({each.gpu for each in self.platforms if each.gpu is not None}))

    @cached_property
    def unit(self) -> str:
        return self.chosen or unit_of(passage.kind for passage in self.passages)

    @cached_property
    def steps(self) -> tuple[float, ...]:
        times, since = [], 0.0
        for passage in self.passages:
            since += passage.seconds
            if passage.kind == self.unit:
                times.append(since)
                since = 0.0
        return tuple(times)

    @property
    def usual(self) -> float:
        warm = self.steps[len(self.steps) // 2 :]
        if self.period > 1:
            warm = warm[len(warm) % self.period if len(warm) > self.period else 0 :]
            return statistics.fmean(warm) or self.rest or _TICK
        mean = statistics.fmean(sorted(warm)[:-1] or warm)  # without the longest, which may be a stall
        return max(statistics.median(warm), mean) or statistics.fmean(warm) or self.rest or _TICK

    @property
    def seconds(self) -> float:
        return self.start + sum(passage.seconds for passage in self.passages)

    def until(self, step: int) -> float:
        steps = self.steps[:step]
        return self.start + sum(steps) + ((step - len(steps)) * self.usual if step > len(steps) else 0.0)


@dataclass(frozen=True)
class Protocol:
    """A measurement: in each of `rounds`, `pairs` of windows of `window` steps after `warm_up` steps.

    Without a `unit` whole runs are timed, one a round. `horizon` steps are compared. A program fails that takes
    `patience` seconds for the steps it may take, or exits with another `code`; all may take `seconds`. The first round
    starts processes one by one if it `times_starts`, and observes `observed` further steps.
    """

    unit: str = ""
    warm_up: int = 0
    window: int = 1
    pairs: int = 1
    rounds: int = 1
    horizon: int = 0
    patience: float = 60.0
    observed: int = 0
    seconds: float = math.inf
    times_starts: bool = True
    code: int = 0

    @property
    def shorter(self) -> Protocol:
        if self.window > 1:
            return replace(self, window=math.ceil(self.window / 4))
        return replace(self, unit="", warm_up=0, pairs=1, observed=0)


@dataclass(frozen=True)
class Schedule:
    """Chooses protocols after a first `look`; `asked` holds the fields that the user has set.

    `beside` processes start in the time of one. Some variants may `compile` before their steps.
    """

    look: Look
    asked: Mapping[str, int] = field(default_factory=dict)
    beside: int = 1
    compile: bool = False

    def protocol(self, variants: int, budget: float) -> Protocol:
        chosen = replace(_chosen(self.look, variants, budget, self.beside), **self.asked)  # type: ignore[arg-type]
        steps = max(chosen.horizon, chosen.warm_up + chosen.pairs * chosen.window)
        longest = self.look.until(steps) if chosen.unit else self.look.seconds
        starts = chosen.rounds * variants * self.look.until(chosen.warm_up) if chosen.unit else 0.0
        is_tight = starts > _FOR_STARTS * budget
        code = self.look.code
        return replace(chosen, patience=patience(longest), seconds=budget, times_starts=not is_tight, code=code)

    def of_faster(self, gain: float) -> Schedule:
        """The schedule of a program whose steps take so many times less: windows of as many more."""
        steps = tuple(replace(each, seconds=each.seconds / gain) for each in self.look.passages)
        return replace(self, look=replace(self.look, passages=steps, rest=self.look.rest / gain))

    def shortest(self, variants: int, seconds: float) -> Protocol:
        chosen = _patient(replace(self.protocol(variants, 0.0), seconds=seconds))
        if not self.compile or not chosen.unit or self.look.is_whole or "warm_up" in self.asked:
            return chosen
        return replace(chosen, warm_up=max(chosen.warm_up, _COMPILED))

    def recordings(self, seconds: float) -> Protocol:
        chosen = self.protocol(3, seconds)
        chosen = _patient(chosen) if self.compile else chosen
        if "horizon" in self.asked or not self.look.steps:
            return chosen
        horizons = range(chosen.horizon, self._least_horizon, -1)
        fits = (horizon for horizon in horizons if _RECORDINGS * self._recording(horizon) <= seconds)
        return replace(chosen, horizon=next(fits, min(chosen.horizon, self._least_horizon)))

    @property
    def recorded(self) -> float:
        """About the seconds of the shortest recordings that tell anything."""
        return _RECORDINGS * self._recording(self._least_horizon)

    @property
    def proved(self) -> float:
        """About the seconds of recordings that prove promises which need no seeds."""
        return _MORE * _RECORDINGS * self._recording(HORIZON)

    @property
    def _least_horizon(self) -> int:
        return _LEAST_HORIZON if self.look.period == 1 else self.look.period + 2

    def _recording(self, horizon: int) -> float:
        if not self.look.steps:
            return self.look.seconds
        return self.look.start + _SLOWER * (self.look.until(horizon) - self.look.start)

    def enough(self, fixes: int) -> float:
        races = [2 + min(fixes, AT_ONCE), 3] if fixes > 1 else [3]
        recorded = (_RECORDINGS + fixes) * self._recording(HORIZON // 2)
        return self.look.seconds + recorded + _MORE * sum(map(self.least, races))

    def is_tight(self, seconds: float) -> bool:
        return self.recorded + _MORE * self.least(3) > seconds

    def least(self, variants: int, known: int = 0) -> float:
        """About the seconds of the shortest race, where so many of its rounds are `known`."""
        shortest = self.shortest(variants, 0.0)
        rounds = max(1, shortest.rounds - known)
        if not shortest.unit:
            return rounds * variants * self.look.seconds
        start, end = (self.look.until(shortest.warm_up + pairs * shortest.window) for pairs in (0, shortest.pairs))
        return rounds * (math.ceil(variants / self.beside) * start + variants * (end - start))


def _patient(protocol: Protocol) -> Protocol:
    return replace(protocol, patience=max(protocol.patience, min(_COMPILING, protocol.seconds / 2)))


def patience(seconds: float) -> float:
    return max(_LEAST_PATIENCE, _PATIENCE * seconds)


def _chosen(look: Look, variants: int, budget: float, beside: int) -> Protocol:
    steps = look.steps
    seen = len(steps) + 1 if look.is_whole else max(len(steps), _LEAST_HORIZON)  # what comes after the last step, too
    horizon = min(HORIZON, seen)
    if not steps or (look.is_whole and len(steps) < _WHOLE):
        rounds = max(_FEWEST_ROUNDS, min(_ROUNDS, int(budget / max(look.seconds * variants, 1e-9))))
        return Protocol("", 0, 1, 1, rounds, horizon)
    usual = look.usual
    warm_up = min(max(_WARM_UP, _settled(steps, usual) + 2), max(_WARM_UP, len(steps) // 4))
    start = math.ceil(variants / beside) * look.until(warm_up)
    shortest = max(_WINDOW, look.period * usual)  # of a window; of slow steps one a process, as rounds tell more
    fewest = _FEWEST_PAIRS if shortest == _WINDOW else 1
    most = min(_FOR_STARTS * budget / start, _SURE * budget / (start + variants * fewest * shortest))
    rounds = max(_FEWEST_ROUNDS, min(_ROUNDS, int(most)))
    seconds = max(0.0, _SURE * budget - rounds * start) / (rounds * variants)  # for the windows of one process
    pairs = max(fewest, min(_PAIRS, int(seconds / shortest)))
    window = max(1, math.ceil(min(max(seconds / pairs, _WINDOW), _LONGEST) / usual))
    window = look.period * math.ceil(window / look.period)
    observed = 1 + min(max(_FEWEST_OBSERVED, math.ceil(_OBSERVED / usual)), _MOST_OBSERVED)
    if look.is_whole:
        steady = max(1, len(steps) - warm_up)
        observed = min(observed, steady // 4)
        steady -= observed
        window = max(1, min(window, steady // _FEWEST_PAIRS))
        pairs = min(pairs, steady // window)
    return Protocol(look.unit, warm_up, window, pairs, rounds, horizon, observed=observed)


def _settled(steps: Sequence[float], usual: float) -> int:
    for number in range(len(steps) - 2):
        if statistics.median(steps[number : number + 3]) <= _SETTLED * usual:
            return number
    return len(steps)
