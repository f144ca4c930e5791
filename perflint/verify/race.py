"""Races variants of a program: in turns by windows, each in a process of its own, the others paused.

Where they have no room beside each other, fewer run at a time; very short programs are timed whole.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

import psutil

from perflint.syntax.walk import grouped
from perflint.verify import processes
from perflint.verify.agent.steps import NOTHING
from perflint.verify.agent.timeline import Timeline
from perflint.verify.messages import Arrival, Variant
from perflint.verify.protocol import Protocol, TimeUp
from perflint.verify.running import Fault, NoProgress, ProgramEnded, Running
from perflint.verify.runs import Course
from perflint.verify.statistics import KEPT, LEAST_ROUNDS, ORIGINAL, ORIGINALS, PATCHED, WHOLE, Samples, Window
from perflint.verify.summary import size

_SAID = (*ORIGINALS, PATCHED, WHOLE)
_SHOWN = (ORIGINAL, PATCHED, WHOLE)  # whose start is timed, and which are observed

Enough = Callable[[Samples], bool]


@dataclass(frozen=True)
class Room:
    """How many processes have room beside each other, None if all tried, and why no more."""

    processes: int | None = None
    reason: str = ""

    def groups(self, variants: Sequence[Variant]) -> list[Sequence[Variant]]:
        most = self.processes or len(variants)
        return [variants[start : start + most] for start in range(0, len(variants), most)]

    def less(self, variants: int, reason: str) -> Room:
        return Room(max(1, min(self.processes or variants, variants) // 2), reason)


class Crowded(Exception):
    """Several processes have no room beside each other, which may cause the `fault` of one."""

    def __init__(self, reason: str, fault: Fault | None = None) -> None:
        super().__init__(reason)
        self.fault = fault


class Parted(Fault):
    """A program ends before the original, or after it; `passed` are the windows of each."""

    def __init__(self, variant: str, words: str, passed: Mapping[str, int]) -> None:
        super().__init__(variant, words)
        self.passed = passed


@dataclass(frozen=True)
class Start:
    """Seconds until one process was warm, NaN if it started beside others, and its peak memory."""

    variant: str
    seconds: float
    device_bytes: int
    host_bytes: int
    timeline: Timeline | None = None


@dataclass(frozen=True)
class Race:
    """What a race or a round showed, without variants that have `faults`.

    `unsteady` pairs of windows are left out: something was compiled or captured in them. The last `protocol` counts:
    windows get shorter where the program ends before the first one, and `room` is for fewer processes at a time. It
    began `since`, in seconds since 1970. `printed` is the output of originals and patch in each round, over their
    common steps.
    """

    samples: Samples = field(default_factory=Samples)
    starts: tuple[Start, ...] = ()
    unsteady: int = 0
    room: Room = field(default_factory=Room)
    protocol: Protocol = field(default_factory=Protocol)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    since: float = field(default_factory=time.time)
    printed: tuple[Mapping[str, str], ...] = ()

    def plus(self, part: Race) -> Race:
        return replace(
            self,
            samples=Samples((*self.samples.windows, *part.samples.windows)),
            starts=(*self.starts, *part.starts),
            unsteady=self.unsteady + part.unsteady,
            printed=(*self.printed, *part.printed),
        )

    def following(self, before: Race) -> Race:
        both = before.plus(self)
        known, faults = before.samples.then(self.samples), {**before.faults, **self.faults}
        return replace(both, samples=known, room=self.room, protocol=self.protocol, faults=faults)

    def without(self, fault: Fault) -> Race:
        """Raises the fault of an original."""
        if fault.variant in ORIGINALS:
            raise fault
        return replace(self.less([fault.variant]), faults={**self.faults, fault.variant: fault})

    def renamed(self, old: str, new: str) -> Race:
        rest, names = self.less([new]), {old: new}
        windows = (replace(each, variant=names.get(each.variant, each.variant)) for each in rest.samples.windows)
        starts = (replace(each, variant=names.get(each.variant, each.variant)) for each in rest.starts)
        printed = ({names.get(name, name): each[name] for name in each if name != new} for each in self.printed)
        faults = {names.get(name, name): fault for name, fault in self.faults.items() if name != new}
        return replace(
            rest, samples=Samples(tuple(windows)), starts=tuple(starts), printed=tuple(printed), faults=faults
        )

    def less(self, variants: Collection[str]) -> Race:
        windows = (each for each in self.samples.windows if each.variant not in variants)
        starts = (each for each in self.starts if each.variant not in variants)
        return replace(self, samples=Samples(tuple(windows)), starts=tuple(starts))

    def is_lost(self, variants: Sequence[Variant]) -> bool:
        is_over = not self.faults.keys().isdisjoint((KEPT, PATCHED))
        return is_over or (bool(self.faults) and {variant.name for variant in variants} <= {*ORIGINALS, *self.faults})


def race(
    course: Course, variants: Sequence[Variant], protocol: Protocol, enough: Enough, room: Room | None = None
) -> Race:
    """Time the windows of all variants until it is `enough`, asked after each round when no program is left.

    There are at least three rounds, unless time is up. Processes take turns, as many as have `room`. Variants with
    faults are dropped; raises the Fault of an original.
    """
    course = course.within(course.budget.part(protocol.seconds))
    return _Racing(course, variants, random.Random(course.seed)).race(
        Race(room=room or Room(), protocol=protocol), enough
    )


@dataclass(frozen=True)
class _Racing:
    course: Course
    variants: Sequence[Variant]
    rng: random.Random

    def race(self, race: Race, enough: Enough) -> Race:
        for number in range(race.protocol.rounds):
            race, part = self._round(race, number)
            race = race.plus(part)
            if race.is_lost(self.variants) or (enough(race.samples) and number + 1 >= LEAST_ROUNDS):
                break
            if not self.course.budget.left:
                break
        return race

    def _round(self, race: Race, number: int) -> tuple[Race, Race]:
        if race.is_lost(self.variants):
            return race, Race()
        sound = [variant for variant in self.variants if variant.name not in race.faults]
        try:
            part = self._held(sound, race, number)
        except Crowded as crowded:
            fault = crowded.fault and self._fault_alone(crowded.fault, sound, race, number)
            race = race.without(fault) if fault else replace(race, room=race.room.less(len(sound), str(crowded)))
        except Fault as fault:
            if isinstance(fault, Parted):
                self._confirm(fault, sound, race, number)
            race = race.without(fault)
        else:
            if part.samples.windows or part.unsteady or race.samples.windows or not self.course.budget.left:
                return race, part
            race = replace(race, protocol=race.protocol.shorter)
        return self._round(race, number)

    def _held(self, variants: Sequence[Variant], race: Race, number: int, rng: random.Random | None = None) -> Race:
        rng = rng or self.rng
        order = rng.sample(variants, len(variants))
        if not race.protocol.unit:
            return _whole(self._together, order, race.protocol, number)
        return _windowed(self._together, race.room.groups(order), race.protocol, number, rng)

    @contextmanager
    def _together(self, unit: str) -> Iterator[Begin]:
        with self.course.undone(), ExitStack() as stack:
            yield lambda variant: stack.enter_context(self.course.running(variant, unit))

    def _confirm(self, parted: Parted, variants: Sequence[Variant], race: Race, number: int) -> None:
        """Raise a fault of the original unless the programs part at the same windows in another round.

        Programs that stop by the clock come as far as their turns allow.
        """
        passed: Mapping[str, int] = {}
        try:
            self._held(variants, race, number + 1)
        except Parted as again:
            passed = again.passed
        except (Crowded, Fault):
            return
        if passed != parted.passed:
            unsteady = "is as long as its patch in one run, but not in another"
            raise Fault(ORIGINAL, f"{unsteady}: let it stop by its steps, not by the clock")

    def _fault_alone(self, fault: Fault, variants: Sequence[Variant], race: Race, number: int) -> Fault | None:
        alone = [variant for variant in variants if variant.name == fault.variant]
        try:
            self._held(alone, race, number, random.Random(self.course.seed))
        except Fault as again:
            return again
        return None


Begin = Callable[[Variant], Running]
Together = Callable[[str], AbstractContextManager[Begin]]


@dataclass(frozen=True)
class _Lap:
    variant: str
    number: int
    seconds: float
    captures: int


class _Lane:
    def __init__(self, variant: Variant, running: Running, protocol: Protocol) -> None:
        self.name, self._running, self._protocol = variant.name, running, protocol
        self._begin = time.monotonic()
        self.is_warm = self.has_ended = False
        self._last: Arrival

    def warm_up(self, *, alone: bool) -> None:
        self.is_warm = self._goes_on(self._protocol.warm_up)
        self.has_ended = not self.is_warm
        self._seconds = time.monotonic() - self._begin if alone else math.nan

    def lap(self, number: int) -> _Lap | None:
        captures = self._last.captures
        self.has_ended = not self._goes_on(self._protocol.warm_up + (number + 1) * self._protocol.window)
        if self.has_ended:
            return None
        return _Lap(self.name, number, self._last.seconds, self._last.captures - captures)

    def printed(self) -> str:
        return self._running.output.so_far()

    def start(self, *, observed: bool) -> Start:
        timed, host_bytes = self._last, max(self._last.host_bytes, self.memory())
        if observed and self._protocol.observed and self.name in _SHOWN:
            with suppress(ProgramEnded, NoProgress, TimeUp):
                self._advance(timed.step + self._protocol.observed, observed=True)
        return Start(self.name, self._seconds, timed.device_bytes, host_bytes, self._last.timeline)

    def memory(self) -> int:
        return processes.memory(self._running.folder)

    def _goes_on(self, until: int) -> bool:
        try:
            self._advance(until)
        except ProgramEnded as ended:
            if ended.code != self._protocol.code:
                raise
            return False
        return True

    def _advance(self, until: int, *, observed: bool = False) -> None:
        self._last = self._running.advance(until, self._protocol.patience, observed=observed)
        self._running.pause()


def _windowed(
    together: Together, groups: Sequence[Sequence[Variant]], protocol: Protocol, number: int, rng: random.Random
) -> Race:
    laps: list[_Lap] = []
    starts: list[Start] = []
    passed: dict[str, int] = {}
    printed: dict[str, str] = {}
    is_cut = False
    for group in groups:
        with together(protocol.unit) as begin:
            lanes: list[_Lane] = []
            try:
                _warm_up(lanes, begin, group, protocol, number)
                laps += _in_turn(lanes, protocol.pairs, rng)
            except TimeUp:
                is_cut = True
            except Fault as fault:
                original_is_warm = any(lane.name in ORIGINALS and lane.is_warm for lane in lanes)
                if len(group) == 1 or (isinstance(fault, NoProgress) and original_is_warm):
                    raise
                raise Crowded(str(fault), fault) from fault
            passed |= {lane.name: lane.is_warm + sum(lap.variant == lane.name for lap in laps) for lane in lanes}
            printed |= {lane.name: lane.printed() for lane in lanes if lane.name in _SAID}
            starts += [lane.start(observed=number == 0 and not is_cut) for lane in lanes if lane.is_warm]
    if not is_cut:
        _check_lengths(passed)
    if len(starts) < sum(map(len, groups)):
        return Race()
    said = () if is_cut else (printed,)  # not all have come equally far
    return replace(_paired(laps, starts, number, protocol.window), printed=said)


def _whole(together: Together, variants: Sequence[Variant], protocol: Protocol, number: int) -> Race:
    windows, starts = [], []
    printed: dict[str, str] = {}
    for variant in variants:
        since = time.monotonic()
        with together(NOTHING) as begin:
            running = begin(variant)
            try:
                code = running.finish(protocol.patience)
            except TimeUp:
                return Race()
            seconds = time.monotonic() - since
            if code != protocol.code:
                raise running.ended()
        windows.append(Window(variant.name, number, 0, seconds, 1))
        starts.append(Start(variant.name, 0.0, 0, 0))
        printed |= {variant.name: running.output.so_far()} if variant.name in _SAID else {}
    return Race(Samples(tuple(windows)), tuple(starts), printed=(printed,))


def _warm_up(lanes: list[_Lane], begin: Begin, group: Sequence[Variant], protocol: Protocol, number: int) -> None:
    """Add warm lanes, started side by side; in the first round one by one, to time starts."""
    is_timed = number == 0 and protocol.times_starts
    first = [variant for variant in group if is_timed and variant.name in _SHOWN]
    rest = [variant for variant in group if variant not in first]
    for some in [*([variant] for variant in first), rest]:
        begun = [_Lane(variant, begin(variant), protocol) for variant in some]
        for lane in begun:
            lane.warm_up(alone=len(some) == 1)
            lanes.append(lane)
        if others := len(group) - len(lanes):
            needed, available = others * lanes[0].memory(), psutil.virtual_memory().available
            if needed > available:
                raise Crowded(f"{others} more would take {size(needed)} of memory, and {size(available)} are left")


def _in_turn(lanes: Sequence[_Lane], pairs: int, rng: random.Random) -> Iterator[_Lap]:
    for number in range(pairs):
        if any(lane.has_ended for lane in lanes):
            return
        yield from filter(None, [lane.lap(number) for lane in rng.sample(lanes, len(lanes))])


def _check_lengths(passed: Mapping[str, int]) -> None:
    usual = {passed[name] for name in ORIGINALS if name in passed}
    others = [name for name in passed if passed[name] not in usual]
    if len(usual) == 1 and others:
        sooner = passed[others[0]] < usual.pop()
        raise Parted(others[0], f"comes to its end {'sooner' if sooner else 'later'} than the original", passed)


def _paired(laps: Sequence[_Lap], starts: Sequence[Start], number: int, steps: int) -> Race:
    pairs = grouped((lap.number, lap) for lap in laps).values()
    whole = [pair for pair in pairs if len(pair) == len(starts)]
    steady = [pair for pair in whole if not any(lap.captures for lap in pair)]
    windows = (Window(lap.variant, number, lap.number, lap.seconds, steps) for pair in steady for lap in pair)
    return Race(Samples(tuple(windows)), tuple(starts), len(whole) - len(steady))
