"""One round of a race: fresh processes that take turns, or run one after the other, or whole runs."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace

import psutil

from perflint.verify.measure.protocol import Protocol
from perflint.verify.measure.samples import ORIGINAL, ORIGINALS, PATCHED, WHOLE, Window
from perflint.verify.measure.timeline import Timeline
from perflint.verify.run import tree
from perflint.verify.run.running import Fault, NoProgress, ProgramEnded, Running
from perflint.verify.spec import Variant
from perflint.verify.wording import size

_SAID = (*ORIGINALS, PATCHED, WHOLE)  # what these print is compared
_SHOWN = (ORIGINAL, PATCHED, WHOLE)  # whose start is timed, and which are observed

Begin = Callable[[Variant], AbstractContextManager[Running]]


class Crowded(Exception):
    """Several processes have no room beside each other; if one of them failed, its `fault` may go if it is alone."""

    def __init__(self, reason: str, fault: Fault | None = None) -> None:
        super().__init__(reason)
        self.fault = fault


class Parted(Fault):
    """A program comes to its end where the original goes on, or goes on where that ends: how far each has `passed`."""

    def __init__(self, variant: str, words: str, passed: Mapping[str, int]) -> None:
        super().__init__(variant, words)
        self.passed = passed


@dataclass(frozen=True)
class Start:
    """One process of a variant: the seconds until it was warm, NaN if it started beside others, and its most memory.

    If it was observed behind its windows, there is a `timeline`.
    """

    variant: str
    seconds: float
    device_bytes: int
    host_bytes: int
    timeline: Timeline | None = None


@dataclass(frozen=True)
class Round:
    """Windows, each with one of every other variant, and how many are left out: something was compiled or captured.

    `printed` is what the originals and the patch had printed behind the last of them.
    """

    windows: tuple[Window, ...]
    starts: tuple[Start, ...]
    unsteady: int = 0
    printed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Lap:
    variant: str
    number: int
    seconds: float
    captures: int


class _Lane:
    """One variant's process, which is paused but for its turns."""

    def __init__(self, variant: Variant, running: Running, protocol: Protocol) -> None:
        self._name, self._running, self._protocol = variant.name, running, protocol
        self._begin = time.monotonic()
        self.is_warm = self.has_ended = False

    @property
    def name(self) -> str:
        """That of the variant."""
        return self._name

    def warm_up(self, *, alone: bool) -> None:
        """Pass the steps before the first window; how long that takes is of interest if it is `alone`."""
        self.is_warm = self._goes_on(self._protocol.warm_up)
        self.has_ended = not self.is_warm
        self._seconds = time.monotonic() - self._begin if alone else math.nan

    def lap(self, number: int) -> _Lap | None:
        """The window of that number; None where the program has come to its end."""
        captures = self._last.captures
        self.has_ended = not self._goes_on(self._protocol.warm_up + (number + 1) * self._protocol.window)
        if self.has_ended:
            return None
        return _Lap(self._name, number, self._last.seconds, self._last.captures - captures)

    def printed(self) -> str:
        """What it has printed so far."""
        return self._running.output.so_far()

    def start(self, *, observed: bool) -> Start:
        """What is known of the process in the end; it may be `observed` for some more steps, if there are any."""
        timed, host_bytes = self._last, max(self._last.host_bytes, self.memory())
        if observed and self._protocol.observed and self._name in _SHOWN:
            with suppress(ProgramEnded, NoProgress):
                self._advance(timed.step + self._protocol.observed, observed=True)
        return Start(self._name, self._seconds, timed.device_bytes, host_bytes, self._last.timeline)

    def memory(self) -> int:
        """The bytes of the host's memory that it takes now, with all its children."""
        return tree.memory(self._running.folder)

    def _goes_on(self, until: int) -> bool:
        try:
            self._advance(until)
        except ProgramEnded as ended:
            if ended.code:
                raise
            return False
        return True

    def _advance(self, until: int, *, observed: bool = False) -> None:
        self._last = self._running.advance(until, self._protocol.patience, observed=observed)
        self._running.pause()


def windowed(
    begin: Begin, variants: Sequence[Variant], protocol: Protocol, number: int, dice: random.Random, *, apart: bool
) -> Round:
    """The round of that number, of processes that take turns, or, `apart`, that are never there at once.

    Programs that end before they are warm make an empty one. Raises Fault, or Crowded where that may be due to the
    other processes.
    """
    order = dice.sample(variants, len(variants))
    laps: list[_Lap] = []
    starts: list[Start] = []
    passed: dict[str, int] = {}
    printed: dict[str, str] = {}
    for group in [[variant] for variant in order] if apart else [order]:
        with ExitStack() as stack:
            lanes: list[_Lane] = []
            try:
                _warm_up(lanes, stack, begin, group, protocol, number)
                laps += _in_turn(lanes, protocol.pairs, dice)
            except Fault as fault:
                if len(group) == 1 or _is_its_own(fault, lanes):
                    raise
                raise Crowded(str(fault), fault) from fault
            passed |= {lane.name: lane.is_warm + sum(lap.variant == lane.name for lap in laps) for lane in lanes}
            printed |= {lane.name: lane.printed() for lane in lanes if lane.name in _SAID}
            starts += [lane.start(observed=number == 0) for lane in lanes if lane.is_warm]
    _check_lengths(passed)
    if len(starts) < len(variants):
        return Round((), ())
    return replace(_paired(laps, starts, number, protocol.window), printed=printed)


def whole(
    begin: Begin, variants: Sequence[Variant], protocol: Protocol, number: int, dice: random.Random, *, apart: bool
) -> Round:
    """The round of that number, of whole runs, which are always `apart`; raises Fault."""
    windows, starts = [], []
    printed: dict[str, str] = {}
    for variant in dice.sample(variants, len(variants)):
        since = time.monotonic()
        with begin(variant) as running:
            code = running.finish(protocol.patience)
            seconds = time.monotonic() - since
            if code:
                raise running.ended()
        windows.append(Window(variant.name, number, 0, seconds, 1))
        starts.append(Start(variant.name, 0.0, 0, 0))
        printed |= {variant.name: running.output.so_far()} if variant.name in _SAID else {}
    return Round(tuple(windows), tuple(starts), printed=printed)


def _is_its_own(fault: Fault, lanes: Sequence[_Lane]) -> bool:
    """Whether a fault is none of the other processes': it hangs where the original comes through."""
    return isinstance(fault, NoProgress) and any(lane.name in ORIGINALS and lane.is_warm for lane in lanes)


def _warm_up(
    lanes: list[_Lane], stack: ExitStack, begin: Begin, group: Sequence[Variant], protocol: Protocol, number: int
) -> None:
    """Add warm lanes, which started side by side, but for those whose start is timed, in the first round."""
    first = [variant for variant in group if number == 0 and variant.name in _SHOWN]
    rest = [variant for variant in group if variant not in first]
    for some in [*([variant] for variant in first), rest]:
        begun = [_Lane(variant, stack.enter_context(begin(variant)), protocol) for variant in some]
        for lane in begun:
            lane.warm_up(alone=len(some) == 1)
            lanes.append(lane)
        _make_sure_of_room(lanes[0], len(group) - len(lanes))


def _make_sure_of_room(lane: _Lane, others: int) -> None:
    """Raise Crowded if the host's memory won't do for so many others like this one."""
    if not others:
        return
    needed, available = others * lane.memory(), psutil.virtual_memory().available
    if needed > available:
        raise Crowded(f"{others} more would take {size(needed)} of memory, and {size(available)} are left")


def _in_turn(lanes: Sequence[_Lane], pairs: int, dice: random.Random) -> Iterator[_Lap]:
    for number in range(pairs):
        if any(lane.has_ended for lane in lanes):
            return
        yield from filter(None, [lane.lap(number) for lane in dice.sample(lanes, len(lanes))])


def _check_lengths(passed: Mapping[str, int]) -> None:
    """Raise Parted unless all have `passed` as many windows, the warm-up counted, as both originals."""
    usual = {passed[name] for name in ORIGINALS if name in passed}
    others = [name for name in passed if passed[name] not in usual]
    if len(usual) == 1 and others:
        sooner = passed[others[0]] < usual.pop()
        raise Parted(others[0], f"comes to its end {'sooner' if sooner else 'later'} than the original", passed)


def _paired(laps: Sequence[_Lap], starts: Sequence[Start], number: int, steps: int) -> Round:
    pairs: dict[int, list[_Lap]] = {}
    for lap in laps:
        pairs.setdefault(lap.number, []).append(lap)
    whole = [pair for pair in pairs.values() if len(pair) == len(starts)]
    steady = [pair for pair in whole if not any(lap.captures for lap in pair)]
    windows = (Window(lap.variant, number, lap.number, lap.seconds, steps) for pair in steady for lap in pair)
    return Round(tuple(windows), tuple(starts), len(whole) - len(steady))
