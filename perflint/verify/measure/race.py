"""Runs variants of a program in turn, window by window, each in its own process, the others paused meanwhile."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from perflint.project.cores import available_cores
from perflint.shim.counters import read
from perflint.shim.loaders import Made, made
from perflint.shim.plan import COMPILE
from perflint.shim.tally import Tallied, tallied
from perflint.verify.agent.gate import Arrival
from perflint.verify.agent.journal import elsewhere, put_back, written
from perflint.verify.agent.units import NOTHING
from perflint.verify.measure import rounds
from perflint.verify.measure.protocol import Look, Passage, Protocol
from perflint.verify.measure.protocol import patience as longest
from perflint.verify.measure.rounds import Crowded, Parted, Round, Start
from perflint.verify.measure.samples import ORIGINAL, ORIGINALS, Samples
from perflint.verify.measure.statistics import LEAST_ROUNDS
from perflint.verify.run import tree
from perflint.verify.run.guardian import Guardian
from perflint.verify.run.orders import Orders, Recording
from perflint.verify.run.running import Fault, NoProgress, ProgramEnded, Running
from perflint.verify.spec import Program, Variant

_EVENTS = 24  # of a first look at least
_UNTIMED = 8  # steps of a program that is not timed, between two looks at how far it is
_SLOW = 3  # times as long for a program of slow steps
_LOOKS = 10  # times the seconds of a look may pass until a next step: a program may evaluate its model, or hang
_FEW, _MANY = 3, 8  # runs that are recorded side by side on few cores, and at most

Enough = Callable[[Samples], bool]
Job = tuple[Variant, Recording]  # what is to be recorded, and how
Further = Callable[[Arrival], int]  # to which step a recording goes on from there, 0 for no further


@dataclass(frozen=True)
class Race:
    """All that a race showed. Windows in which a variant captured or compiled something are left out, and counted.

    The `protocol` is that of the end: windows are made shorter where the program ends before the first. `apart` is why
    its processes were never there at once, and empty where they were. Variants that have `faults`, by their names, are
    out of it with all that was measured of them. It began at the time `since`, in seconds since 1970. `printed` is, for
    each round, what the originals and the patch have printed over their common steps.
    """

    samples: Samples = field(default_factory=Samples)
    starts: tuple[Start, ...] = ()
    unsteady: int = 0
    apart: str = ""
    protocol: Protocol = field(default_factory=Protocol)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    since: float = field(default_factory=time.time)
    printed: tuple[Mapping[str, str], ...] = ()

    def without(self, fault: Fault) -> Race:
        """The race without the variant that has a fault; raises the fault where that is an original."""
        if fault.variant in ORIGINALS:
            raise fault
        windows = (each for each in self.samples.windows if each.variant != fault.variant)
        starts = (each for each in self.starts if each.variant != fault.variant)
        faults = {**self.faults, fault.variant: fault}
        return replace(self, samples=Samples(tuple(windows)), starts=tuple(starts), faults=faults)

    def is_lost(self, variants: Sequence[Variant]) -> bool:
        """Whether it has lost all of `variants` but the original."""
        return bool(self.faults) and {variant.name for variant in variants} <= {*ORIGINALS, *self.faults}

    def renamed(self, old: str, new: str) -> Race:
        """The race without the variant `new`, whose name goes to the variant `old`."""
        windows = (each for each in self.samples.windows if each.variant != new)
        starts = (each for each in self.starts if each.variant != new)
        names = {old: new}
        return replace(
            self,
            samples=Samples(tuple(replace(each, variant=names.get(each.variant, each.variant)) for each in windows)),
            starts=tuple(replace(each, variant=names.get(each.variant, each.variant)) for each in starts),
            printed=tuple({names.get(name, name): each[name] for name in each if name != new} for each in self.printed),
        )


@dataclass(frozen=True)
class Recorded:
    """Where a run's records are, its exit code if it came to its end, and what it printed so far.

    `counts` are those of the counters of its plan, `loaders` are those that were made where the plan has some,
    `modules` what became of those that it compiles. `last` is the step that it was let go to, and `unseen` names places
    with fixes that it had never left by then. `files` holds copies of those that it wrote below the program's folders,
    None for those that it removed; of those that it wrote `elsewhere` there are the paths. `stuck` says how it hung, if
    it did. There is `room` in the memory for so many like it, as far as is known.
    """

    folder: Path
    code: int | None
    output: str
    errors: str
    counts: tuple[int, ...] = ()
    loaders: tuple[Made, ...] = ()
    modules: tuple[Tallied, ...] = ()
    files: Mapping[str, Path | None] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    stuck: str = ""
    last: int = 0
    unseen: tuple[str, ...] = ()
    room: int = _FEW

    @property
    def beside(self) -> int:
        """How many runs like this one may be recorded side by side: those that write files would be each other's."""
        return 1 if self.files or self.elsewhere else max(1, min(self.room, max(_FEW, available_cores() // 2), _MANY))


@dataclass(frozen=True)
class Course:
    """Where races are held: a program, who ends it if we are killed, and the seed of the orders of windows."""

    program: Program
    guardian: Guardian
    seed: int = 0

    def look(self, variant: Variant, seconds: float, patience: float) -> Look:
        """Run for about so many seconds behind the first step and note every event; raises ProgramEnded, NoProgress.

        The `patience` is that for the first step.
        """
        begin = time.monotonic()
        passages: list[Passage] = []
        start, is_whole = 0.0, False
        with self._undone(), self.running(variant, "") as running:
            try:
                passages.append(Passage(running.advance(1, patience).kind, 0.0))
                start = time.monotonic() - begin
                later = max(longest(start), _LOOKS * seconds)
                while _goes_on(time.monotonic() - begin - start, len(passages), seconds):
                    arrival = running.advance(len(passages) + 1, later)
                    passages.append(Passage(arrival.kind, arrival.seconds))
            except ProgramEnded as ended:
                if ended.code:
                    raise
                is_whole = True
                start = start or time.monotonic() - begin
            return Look(start, tuple(passages), is_whole, running.platforms)

    def tune(self, variant: Variant, seconds: float, patience: float) -> list[str]:
        """Let a variant that tunes its loaders run until it has, or for so many seconds; what it found out.

        Raises NoProgress, and ProgramEnded where it fails.
        """
        with self._undone(), self.running(variant, "") as running:
            try:
                step = running.advance(1, patience).step
                end = time.monotonic() + seconds
                while time.monotonic() < end and any(each.is_pending for each in made(Path(running.folder))):
                    step += _UNTIMED
                    running.advance(step, patience)
            except ProgramEnded as ended:
                if ended.code:
                    raise
            return [f"{each.path}:{each.line}: {each.note}" for each in made(Path(running.folder)) if each.note]

    def race(self, variants: Sequence[Variant], protocol: Protocol, enough: Enough, apart: str = "") -> Race:
        """Time the windows of all variants until it is `enough`, in as many rounds as there may be, and three at least.

        That is asked behind each round, when no program is left. Each round has a process of each variant. They take
        turns, unless there is a reason to keep them `apart`, or one is found. It goes on without variants that have
        faults; raises the Fault of an original.
        """
        dice = random.Random(self.seed)
        race = Race(apart=apart, protocol=protocol)
        for number in range(protocol.rounds):
            race, part = self._round(variants, race, number, dice)
            race = replace(
                race,
                samples=Samples((*race.samples.windows, *part.windows)),
                starts=(*race.starts, *part.starts),
                unsteady=race.unsteady + part.unsteady,
                printed=(*race.printed, part.printed),
            )
            if race.is_lost(variants) or (enough(race.samples) and number + 1 >= LEAST_ROUNDS):
                break
        return race

    def _round(self, variants: Sequence[Variant], race: Race, number: int, dice: random.Random) -> tuple[Race, Round]:
        """The round of that number, and the race, changed as it must be for there to be one."""
        if race.is_lost(variants):
            return race, Round((), ())
        sound = [variant for variant in variants if variant.name not in race.faults]
        try:
            part = self._held(sound, race, number, dice)
        except Crowded as crowded:
            fault = crowded.fault and self._fault_alone(crowded.fault, sound, race, number)
            race = race.without(fault) if fault else replace(race, apart=str(crowded))
        except Fault as fault:
            if isinstance(fault, Parted):
                self._make_sure_of(fault, sound, race, number, dice)
            race = race.without(fault)
        else:
            if part.windows or part.unsteady or race.samples.windows:
                return race, part
            race = replace(race, protocol=race.protocol.shorter)
        return self._round(variants, race, number, dice)

    def _held(self, variants: Sequence[Variant], race: Race, number: int, dice: random.Random) -> Round:
        is_apart = bool(race.apart) or not race.protocol.unit
        begin = partial(self._alone if is_apart else self.running, unit=race.protocol.unit or NOTHING)
        hold = rounds.windowed if race.protocol.unit else rounds.whole
        with self._undone():
            return hold(begin, variants, race.protocol, number, dice, apart=bool(race.apart))

    def _make_sure_of(
        self, parted: Parted, variants: Sequence[Variant], race: Race, number: int, dice: random.Random
    ) -> None:
        """Raise a fault of the original unless a round in which all start side by side parts at the same windows.

        Programs that stop by the clock come as far as they have turns until then.
        """
        passed: Mapping[str, int] = {}
        try:
            self._held(variants, race, number + 1, dice)
        except Parted as again:
            passed = again.passed
        except (Crowded, Fault):
            return
        if passed != parted.passed:
            unsteady = "is as long as its patch in one run, but not in another"
            raise Fault(ORIGINAL, f"{unsteady}: let it stop by its steps, not by the clock")

    def _fault_alone(self, fault: Fault, variants: Sequence[Variant], race: Race, number: int) -> Fault | None:
        """What becomes of a variant by itself that had a fault beside others."""
        alone = [variant for variant in variants if variant.name == fault.variant]
        try:
            self._held(alone, race, number, random.Random(self.seed))
        except Fault as again:
            return again
        return None

    def record(
        self,
        wanted: Sequence[Job],
        unit: str,
        steps: int,
        patience: float,
        beside: int = 1,
        further: Further = lambda _: 0,
    ) -> list[Recorded]:
        """Run the first `steps` steps of each, or all that there are, and record what they compute.

        So many run `beside` each other. From there they go `further`.

        What fails beside others, as memory may be too small for all of them, is run again by itself, but for what hangs
        where the original comes through; and so is all that writes files: they would be each other's.
        """
        groups = [wanted[start : start + beside] for start in range(0, len(wanted), beside)]
        return [run for group in groups for run in self._recorded(group, unit, steps, patience, further)]

    def _recorded(
        self, wanted: Sequence[Job], unit: str, steps: int, patience: float, further: Further
    ) -> list[Recorded]:
        """A group of runs, side by side."""
        with self._undone():
            with ExitStack() as stack:
                begun = []
                for variant, recording in wanted:
                    Path(recording.folder).mkdir()
                    seed = self.seed + recording.shift
                    running = self.running(variant, unit, seed=seed, until=steps, recording=recording)
                    begun.append(stack.enter_context(running))
                pairs = zip(begun, wanted, strict=True)
                runs = [_seen(running, *job, steps, patience, further) for running, job in pairs]
            files = written(self.guardian.journal, Path(wanted[0][1].folder) / "files")  # now that nobody can write
            beyond = elsewhere(self.guardian.journal)
        came_through = any(job.name == ORIGINAL and not run.stuck for (job, _), run in zip(wanted, runs, strict=True))
        for place, running in enumerate(begun):
            output, errors = running.printed()  # all of it, now that nobody is left to print
            runs[place] = replace(runs[place], output=output, errors=errors, files=files, elsewhere=beyond)
            if len(wanted) > 1 and (files or beyond or runs[place].code or (runs[place].stuck and not came_through)):
                shutil.rmtree(runs[place].folder)
                (runs[place],) = self._recorded([wanted[place]], unit, steps, patience, further)
        return runs

    def running(self, variant: Variant, unit: str, **orders: Any) -> Running:
        """A fresh process of a variant, under further `orders`."""
        folders = {
            "journal": str(self.guardian.journal),
            "roots": (str(self.program.folder), variant.plan.root),
            "ours": (str(self.guardian.folder), variant.plan.store),
        }
        return Running(
            self.program, variant, Orders("", unit, **{"seed": self.seed, **folders, **orders}), self.guardian
        )

    @contextmanager
    def _alone(self, variant: Variant, unit: str) -> Iterator[Running]:
        """A fresh process of a variant, which finds the files as the program is given them."""
        with self._undone(), self.running(variant, unit) as running:
            yield running

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Put back what files were, behind whatever is run in here."""
        try:
            yield
        finally:
            put_back(self.guardian.journal)


def _seen(
    running: Running, variant: Variant, recording: Recording, steps: int, patience: float, further: Further
) -> Recorded:
    """What is seen of a run but for what it prints and writes."""
    code, stuck, last, room = None, "", steps, _FEW
    unseen: tuple[str, ...] = ()
    try:
        arrival = running.advance(steps, patience)
        while step := further(arrival):
            last = step
            arrival = running.advance(step, patience)
        unseen, room = arrival.unseen, _room(running, arrival)
    except ProgramEnded as ended:
        code = ended.code
    except NoProgress as error:
        stuck = str(error)
    folder = Path(running.folder)
    effects = read(folder, variant.plan.counters)
    counts = tuple(map(sum, zip([0] * variant.plan.counters, *(each.counts for each in effects), strict=True)))
    loaders, modules = tuple(made(folder)), tuple(tallied(folder, COMPILE))
    folder = Path(recording.folder)
    return Recorded(folder, code, "", "", counts, loaders, modules, stuck=stuck, last=last, unseen=unseen, room=room)


def _room(running: Running, arrival: Arrival) -> int:
    """For how many processes like this one there is memory, on the host and on its device."""
    others = psutil.virtual_memory().available // max(tree.memory(running.folder), 1)
    return min(1 + others, int(1 / arrival.device_share) if arrival.device_share else _MANY)


def _goes_on(elapsed: float, events: int, seconds: float) -> bool:
    """Whether a first look of about so many seconds has not seen enough yet; of slow steps it sees a few more."""
    return elapsed < seconds or (events < _EVENTS and elapsed < _SLOW * seconds)
