"""Runs variants of a program in turn, window by window, each in its own process, the others paused meanwhile."""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from perflint.shim.counters import read
from perflint.shim.loaders import made
from perflint.verify.gate import Arrival
from perflint.verify.guardian import Guardian
from perflint.verify.orders import Orders, Recording
from perflint.verify.protocol import Look, Passage, Protocol
from perflint.verify.running import ProgramEnded, Running
from perflint.verify.samples import ORIGINAL, PATCHED, Samples, Window
from perflint.verify.spec import Program, Variant
from perflint.verify.statistics import LEAST_ROUNDS

_EVENTS = 24  # of a first look at least
_SLOW = 3  # times as long for a program of slow steps

Enough = Callable[[Samples], bool]
Job = tuple[Variant, Recording]  # what is to be recorded, and how


@dataclass(frozen=True)
class Start:
    """One process of a variant: the seconds until it was warm, NaN if it started beside others, and its most memory."""

    variant: str
    seconds: float
    device_bytes: int
    host_bytes: int


@dataclass(frozen=True)
class Race:
    """All that a race showed. Windows in which a variant captured or compiled something are left out, and counted."""

    samples: Samples = field(default_factory=Samples)
    starts: tuple[Start, ...] = ()
    unsteady: int = 0


@dataclass(frozen=True)
class Recorded:
    """Where a run's records are, its exit code if it came to its end, and what it printed so far.

    `counts` are those of the counters of its plan, `loaders` is how many loaders were given arguments.
    """

    folder: Path
    code: int | None
    output: str
    errors: str
    counts: tuple[int, ...] = ()
    loaders: int = 0


@dataclass(frozen=True)
class Course:
    """Where races are held: a program, who ends it if we are killed, and the seed of the orders of windows."""

    program: Program
    guardian: Guardian
    seed: int = 0

    def look(self, variant: Variant, seconds: float, patience: float) -> Look:
        """Run for about so many seconds behind the first step and note every event; raises ProgramEnded, NoProgress."""
        begin = time.monotonic()
        passages: list[Passage] = []
        start, is_whole = 0.0, False
        with Running(self.program, variant, Orders("", seed=self.seed), self.guardian) as running:
            try:
                passages.append(Passage(running.advance(1, patience).kind, 0.0))
                start = time.monotonic() - begin
                while _goes_on(time.monotonic() - begin - start, len(passages), seconds):
                    arrival = running.advance(len(passages) + 1, patience)
                    passages.append(Passage(arrival.kind, arrival.seconds))
            except ProgramEnded as ended:
                if ended.code:
                    raise
                is_whole = True
                start = start or time.monotonic() - begin
            hello = running.hello
            return Look(start, tuple(passages), is_whole, *((hello.device, hello.versions) if hello else ()))

    def race(self, variants: Sequence[Variant], protocol: Protocol, enough: Enough) -> Race:
        """Time the windows of all variants until it is `enough`, in as many rounds as there may be, and three at least.

        Raises ProgramEnded, NoProgress.
        """
        dice = random.Random(self.seed)
        held = _windowed_round if protocol.unit else _whole_round
        race = Race()
        for number in range(protocol.rounds):
            part = held(self, variants, protocol, number, dice)
            windows = Samples((*race.samples.windows, *part.samples.windows))
            race = Race(windows, (*race.starts, *part.starts), race.unsteady + part.unsteady)
            if number + 1 >= LEAST_ROUNDS and enough(race.samples):
                break
        return race

    def record(
        self, wanted: Sequence[tuple[Variant, Recording]], unit: str, steps: int, patience: float
    ) -> list[Recorded]:
        """Run the first `steps` steps of each, or all that there are, side by side, and record what they compute.

        What fails beside others, as memory may be too small for all of them, is run again by itself. Raises NoProgress.
        """
        with ExitStack() as stack:
            begun = []
            for variant, recording in wanted:
                Path(recording.folder).mkdir()
                orders = Orders("", unit, self.seed, recording)
                begun.append(stack.enter_context(Running(self.program, variant, orders, self.guardian)))
            seen = [
                _seen(running, variant, steps, patience) for running, (variant, _) in zip(begun, wanted, strict=True)
            ]
        runs = []
        for running, facts, (variant, recording) in zip(begun, seen, wanted, strict=True):
            output, errors = running.printed()  # all of it, now that nobody is left to print
            runs.append(replace(facts, folder=Path(recording.folder), output=output, errors=errors))
            if runs[-1].code and len(wanted) > 1:
                shutil.rmtree(recording.folder)
                runs[-1:] = self.record([(variant, recording)], unit, steps, patience)
        return runs

    def running(self, variant: Variant, unit: str) -> Running:
        """A fresh process of a variant."""
        return Running(self.program, variant, Orders("", unit, self.seed), self.guardian)


def _seen(running: Running, variant: Variant, steps: int, patience: float) -> Recorded:
    """What is seen of a run but for its records and what it prints."""
    code = None
    try:
        running.advance(steps, patience)
    except ProgramEnded as ended:
        code = ended.code
    effects = read(Path(running.folder), variant.plan.counters)
    counts = tuple(map(sum, zip([0] * variant.plan.counters, *(each.counts for each in effects), strict=True)))
    return Recorded(Path(), code, "", "", counts, sum(bool(each.arguments) for each in made(Path(running.folder))))


def _goes_on(elapsed: float, events: int, seconds: float) -> bool:
    """Whether a first look of about so many seconds has not seen enough yet; of slow steps it sees a few more."""
    return elapsed < seconds or (events < _EVENTS and elapsed < _SLOW * seconds)


def _windowed_round(
    course: Course, variants: Sequence[Variant], protocol: Protocol, number: int, dice: random.Random
) -> Race:
    with ExitStack() as stack:
        order = dice.sample(variants, len(variants))
        timed = [variant for variant in order if not number and variant.name in (ORIGINAL, PATCHED)]
        lanes = [_started(stack, course, [variant], protocol)[0] for variant in timed]
        lanes += _started(stack, course, [variant for variant in order if variant not in timed], protocol)
        pairs = list(_pairs(lanes, protocol, dice))
        steady = [pair for pair in pairs if not any(window.captures for window in pair)]
        windows = [
            Window(each.variant, number, place, each.arrival.seconds, protocol.window)
            for place, pair in enumerate(steady)
            for each in pair
        ]
        starts = tuple(lane.start_and_peak() for lane in lanes)
        return Race(Samples(tuple(windows)), starts, len(pairs) - len(steady))


def _started(stack: ExitStack, course: Course, variants: Sequence[Variant], protocol: Protocol) -> list[_Lane]:
    """The variants, started side by side, warm and paused; only of one by itself it is known how long that took."""
    begin = time.monotonic()
    begun = [stack.enter_context(course.running(variant, protocol.unit)) for variant in variants]
    lanes = []
    for variant, running in zip(variants, begun, strict=True):
        warm = running.advance(protocol.warm_up, protocol.patience)
        running.pause()
        seconds = time.monotonic() - begin if len(variants) == 1 else math.nan
        lanes.append(_Lane(running, warm, Start(variant.name, seconds, warm.device_bytes, warm.host_bytes)))
    return lanes


@dataclass
class _Lane:
    """One variant's process in a round, and where it stands."""

    running: Running
    last: Arrival
    start: Start

    @property
    def variant(self) -> str:
        return self.start.variant

    def start_and_peak(self) -> Start:
        return replace(self.start, device_bytes=self.last.device_bytes, host_bytes=self.last.host_bytes)


@dataclass(frozen=True)
class _Lap:
    variant: str
    arrival: Arrival
    captures: int


def _pairs(lanes: Sequence[_Lane], protocol: Protocol, dice: random.Random) -> Iterator[list[_Lap]]:
    for number in range(protocol.pairs):
        laps = []
        try:
            for lane in dice.sample(lanes, len(lanes)):
                until = protocol.warm_up + (number + 1) * protocol.window
                arrival = lane.running.advance(until, protocol.patience)
                lane.running.pause()
                laps.append(_Lap(lane.variant, arrival, arrival.captures - lane.last.captures))
                lane.last = arrival
        except ProgramEnded as ended:
            if ended.code:
                raise
            return
        yield laps


def _whole_round(
    course: Course, variants: Sequence[Variant], protocol: Protocol, number: int, dice: random.Random
) -> Race:
    windows, starts = [], []
    for variant in dice.sample(variants, len(variants)):
        begin = time.monotonic()
        with course.running(variant, "none") as running:
            code = running.finish(protocol.patience)
            seconds = time.monotonic() - begin
            if code:
                raise running.ended()
        windows.append(Window(variant.name, number, 0, seconds, 1))
        starts.append(Start(variant.name, 0.0, 0, 0))
    return Race(Samples(tuple(windows)), tuple(starts), 0)
