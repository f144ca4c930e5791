"""Runs variants of a program: a first look, tuning of loaders, recordings."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from perflint.project import available_cores
from perflint.shim.hooks import FIXES, Tallied, tallied
from perflint.shim.session import Made, made
from perflint.shim.settings import SETTINGS
from perflint.verify import forks, processes
from perflint.verify.agent.cover import changes, outermost, remove
from perflint.verify.agent.journal import elsewhere, put_back, written
from perflint.verify.agent.recorder import recorded
from perflint.verify.agent.steps import unit_of
from perflint.verify.messages import EVALUATION, OPTIMIZER, PATIENT, Arrival, Kind, Orders, Program, Recording, Variant
from perflint.verify.processes import Guardian
from perflint.verify.protocol import HORIZON, Budget, Ledger, Look, Passage, TimeUp, deadline
from perflint.verify.running import NoProgress, ProgramEnded, Running
from perflint.verify.statistics import ORIGINAL

_EVENTS = 24  # of a first look at least
_UNTIMED = 8  # steps of a program that is not timed, between two looks at how far it is
_SLOW, _SLOW_EVENTS = 3, 8  # times as long at most for a program of slow steps, of which fewer are enough
_FEW_CORES, _SLOW_START = 2, 4.0  # cores, and seconds
_PERIODS = 4
_CLEAR = 2.0  # seconds are enough of the steps of an optimizer, which count before all others, and of known calls
_FULL = os.strerror(errno.ENOSPC)  # in the last words of a program that found no room
_FEW, _MANY = 3, 8  # runs that are recorded side by side on few cores, and at most

Job = tuple[Variant, Recording]
Further = Callable[[Arrival], int]  # to which step a recording goes on from there, 0 for no further


@dataclass(frozen=True)
class Recorded:
    """A recorded run: its folder, its exit code if it ended, and what it printed.

    `counts`, `loaders` and `settings` are the shim's. `last` is the step that it had leave for; `unseen` names places
    with fixes never left by then. `files` holds copies of files written below its folders, None for removed ones, and
    `elsewhere` the paths of others. `stuck` says how it hung. Where it `is_cut`, time was up, and `last` is the last
    step recorded. The memory has `room` for so many runs like it, as far as is known.
    """

    folder: Path
    code: int | None
    output: str
    errors: str
    counts: Mapping[str, int] = field(default_factory=dict)
    loaders: tuple[Made, ...] = ()
    settings: tuple[Tallied, ...] = ()
    files: Mapping[str, Path | None] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    stuck: str = ""
    last: int = 0
    unseen: tuple[str, ...] = ()
    room: int = _FEW
    is_cut: bool = False

    @property
    def is_lost(self) -> bool:
        return self.is_cut and not self.last

    @property
    def beside(self) -> int:
        """How many runs like this may be recorded side by side; those that write files would disturb each other."""
        return 1 if self.files or self.elsewhere else max(1, min(self.room, max(_FEW, available_cores() // 2), _MANY))


@dataclass(frozen=True)
class Course:
    """Runs variants of a program within a budget; a guardian cleans up if this process is killed.

    Processes are forks of one that has imported `libraries`, unless None. Recordings may run `side_by_side`. Where it
    `covers`, no process changes the program's folders. The program ends with exit `code`.
    """

    program: Program
    guardian: Guardian
    seed: int = 0
    budget: Budget = field(default_factory=partial(Budget, math.inf))
    ledger: Ledger = field(default_factory=Ledger)
    libraries: tuple[str, ...] | None = ()
    side_by_side: bool = True
    covers: bool = False
    code: int = 0

    def prepare(self) -> None:
        forks.begin(os.environ, self.libraries)
        if available_cores() > _FEW_CORES:
            forks.begin({**os.environ, **PATIENT}, self.libraries)

    def after(self, look: Look) -> Course:
        """The best course for a program that has been looked at.

        Programs side by side must wait passively, as libraries are told at import: on few cores, that pays only for
        slow starts.
        """
        side_by_side = available_cores() > _FEW_CORES or look.start > _SLOW_START
        return replace(self, side_by_side=side_by_side, code=look.code)

    def prepared(self, *, recording: bool = False) -> None:
        self.ledger.enter("imports")
        with deadline(self.budget):
            forks.address({**os.environ, **(PATIENT if recording and self.side_by_side else {})}, self.libraries)

    def within(self, budget: Budget) -> Course:
        return replace(self, budget=self.budget.part(budget.left))

    def until(self, budget: Budget) -> Course:
        return replace(self, budget=budget)

    def kept(self, root: str, *ours: str) -> dict[str, Any]:
        """Orders that let writes below the project's `root`, and the program's own folder, be undone."""
        roots = str(self.program.folder), root
        cover = outermost(roots) if self.covers else ()
        return {
            "journal": str(self.guardian.journal),
            "roots": roots,
            "ours": (str(self.guardian.folder), *ours),
            "cover": cover,
        }

    def running(self, variant: Variant, unit: str, **orders: Any) -> Running:
        kept = self.kept(variant.plan.root, variant.plan.store)
        given = Orders(unit, **{"seed": self.seed, "side_by_side": self.side_by_side, **kept, **orders})
        return Running(self.program, variant, given, self.guardian, self.budget, self.ledger, self.libraries)

    @contextmanager
    def undone(self) -> Iterator[None]:
        try:
            yield
        finally:
            put_back(self.guardian.journal)

    def look(self, variant: Variant, seconds: float, period: int = 1) -> Look:
        """Run for about so many seconds after the first step, and note all steps, alike every `period`.

        Raises ProgramEnded, and TimeUp before the first step.
        """
        ran: frozenset[str] = frozenset()
        frames: tuple[tuple[str, int], ...] = ()
        places = {kind: frozenset[tuple[str, int]]() for kind in (OPTIMIZER, EVALUATION)}
        begin = time.monotonic()
        passages: list[Passage] = []
        start = last = 0.0
        is_whole, code = False, 0
        with self.undone(), self.running(variant, "") as running:
            try:
                arrival = running.advance(1, math.inf)
                passages.append(Passage(arrival.kind, 0.0))
                start = last = time.monotonic() - begin
                slow = max(seconds, _SLOW * seconds - start)
                while self._goes_on(last - start, passages, seconds, slow, period):
                    arrival = running.advance(len(passages) + 1, start + slow - last)
                    passages.append(Passage(arrival.kind, arrival.seconds))
                    last = time.monotonic() - begin
                    if arrival.kind in places:
                        places[arrival.kind] |= {*arrival.frames}
                    kinds = [each.kind for each in passages]
                    if not ran:
                        frames = arrival.frames
                        ran = _ran(running) if kinds.count(unit_of(kinds)) >= HORIZON else ran
            except ProgramEnded as ended:
                if ended.is_failure or (ended.code and not passages):
                    raise
                is_whole, code, last = True, ended.code, time.monotonic() - begin
                start = start or last
            except (NoProgress, TimeUp):
                if not passages:
                    raise
            ran = ran or _ran(running)
            rest = time.monotonic() - begin - last
            return Look(
                start, tuple(passages), is_whole, running.platforms, rest, period, ran, frames, places, code=code
            )

    def _goes_on(self, elapsed: float, passages: Sequence[Passage], seconds: float, slow: float, period: int) -> bool:
        kinds = {each.kind for each in passages[-_EVENTS:]}
        if period > 1 and [each.kind for each in passages].count(OPTIMIZER) < _PERIODS * period:
            return elapsed < slow
        if elapsed >= _CLEAR and len(passages) >= _EVENTS and (OPTIMIZER in kinds or self.program.kind is Kind.CALL):
            return False
        return elapsed < seconds or (len(passages) < _SLOW_EVENTS and elapsed < slow)

    def tune(self, variant: Variant, seconds: float) -> list[str]:
        """Run a variant until its loaders are tuned, or for so many seconds; return what it found.

        Raises ProgramEnded where it fails.
        """
        with self.undone(), self.running(variant, "") as running:
            try:
                step = running.advance(1, math.inf).step
                end = time.monotonic() + seconds
                while time.monotonic() < end and any(each.is_pending for each in made(Path(running.folder))):
                    step += _UNTIMED
                    running.advance(step, end - time.monotonic())
            except (NoProgress, TimeUp):
                pass
            except ProgramEnded as ended:
                if ended.code:
                    raise
            return [f"{each.path}:{each.line}: {each.note}" for each in made(Path(running.folder)) if each.note]

    def record(
        self,
        jobs: Sequence[Job],
        unit: str,
        steps: int,
        patience: float,
        beside: int = 1,
        further: Further = lambda _: 0,
    ) -> list[Recorded]:
        """Run and record the first `steps` steps of each job, or all that there are, and go `further` from there.

        So many run `beside` each other. What fails so, as for want of memory, runs again alone, unless it hangs where
        the original comes through; so does all that writes files. When time is up, runs are cut.
        """
        beside = beside if self.side_by_side else 1
        groups = [jobs[start : start + beside] for start in range(0, len(jobs), beside)]
        return [run for group in groups for run in self._recorded(group, unit, steps, patience, further)]

    def _recorded(
        self, jobs: Sequence[Job], unit: str, steps: int, patience: float, further: Further
    ) -> list[Recorded]:
        with self.undone():
            with ExitStack() as stack:
                begun = []
                for variant, recording in jobs:
                    Path(recording.folder).mkdir()
                    seed = self.seed + recording.shift
                    running = self.running(variant, unit, seed=seed, until=steps, recording=recording)
                    begun.append(stack.enter_context(running))
                pairs = zip(begun, jobs, strict=True)
                runs = [_seen(running, recording, steps, patience, further) for running, (_, recording) in pairs]
            files = written(self.guardian.journal, Path(jobs[0][1].folder) / "files")  # now that nobody can write
            beyond = elsewhere(self.guardian.journal)
        originals = (run for (job, _), run in zip(jobs, runs, strict=True) if job.name == ORIGINAL)
        came_through = any(not run.stuck and not run.is_cut for run in originals)
        for place, running in enumerate(begun):
            output, errors = running.output.text, running.errors.text  # all of it, now that nobody is left to print
            variant, recording = jobs[place]
            roots = outermost((str(self.program.folder), variant.plan.root))
            own = changes(Path(recording.folder), roots)
            run = runs[place] = replace(
                runs[place], output=output, errors=errors, files=files if own is None else own, elsewhere=beyond
            )
            if run.code and _FULL in errors:
                raise OSError(errno.ENOSPC, _FULL, str(self.guardian.folder))
            fails_beside = run.code not in (None, self.code) or (run.stuck and not came_through)
            if len(jobs) > 1 and (files or beyond or fails_beside) and self.budget.left:
                remove(run.folder)
                (runs[place],) = self._recorded([jobs[place]], unit, steps, patience, further)
        return runs


def _seen(running: Running, recording: Recording, steps: int, patience: float, further: Further) -> Recorded:
    code, stuck, last, room, is_cut = None, "", steps, _FEW, False
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
    except TimeUp:
        is_cut, last = True, recorded(Path(recording.folder))
    folder = Path(running.folder)
    counts = {each.name: each.times for each in tallied(folder, FIXES)}
    counted = counts, tuple(made(folder)), tuple(tallied(folder, SETTINGS))
    seen = Recorded(Path(recording.folder), code, "", "", *counted, stuck=stuck, last=last)
    return replace(seen, unseen=unseen, room=room, is_cut=is_cut)


def _ran(running: Running) -> frozenset[str]:
    return frozenset(("", *(each.name for each in tallied(Path(running.folder), FIXES))))


def _room(running: Running, arrival: Arrival) -> int:
    others = psutil.virtual_memory().available // max(processes.memory(running.folder), 1)
    return min(1 + others, int(1 / arrival.device_share) if arrival.device_share else _MANY)
