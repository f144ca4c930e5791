"""The verdict on a program and its patch, as data, and grades of how alike results are."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from math import ceil
from typing import Any

from perflint import __version__
from perflint.documents.lines import at_line
from perflint.engine.edits import Lines
from perflint.engine.rule import Safety
from perflint.project.patch import hunks_between
from perflint.verify import statistics
from perflint.verify.agent.timeline import Timeline
from perflint.verify.statistics import ORIGINALS, PATCHED, Estimate, Outcome, Samples

NO_TIME = "there was no time to record what it computes"
MORE_TIME = "a larger budget may tell"  # the end of evidence
QUIET = 0.2  # the share of the cores that others may keep busy


class Grade(str, Enum):
    """How alike results are, the most alike first."""

    BITWISE = "bitwise"
    ROUNDING = "rounding"  # floats were added in another order
    ALIKE = "alike"  # no more different than two runs with different seeds
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # can't be checked

    def __str__(self) -> str:
        return self.value

    @property
    def is_same(self) -> bool:
        return self in _SAME


_SAME = (Grade.BITWISE, Grade.ROUNDING, Grade.ALIKE)
_PROMISED = {Safety.EXACT: Grade.BITWISE, Safety.ROUNDING: Grade.ROUNDING}  # others: statistically alike


@dataclass(frozen=True)
class Likeness:
    """A grade and its evidence: sentences without full stops, the most telling first.

    It `is_crowded` if it is that of a run with other fixes, too.
    """

    grade: Grade
    evidence: tuple[str, ...] = ()
    is_crowded: bool = False

    def keeps(self, promise: Safety, own: Grade) -> bool:
        """Whether a fix with that promise owes no more, where two runs of the original are alike by `own`."""
        if not self.grade.is_same or not own.is_same:
            return False
        owed = max(_PROMISED.get(promise, Grade.ALIKE), own, key=_SAME.index)
        return _SAME.index(self.grade) <= _SAME.index(owed)

    @property
    def crowded(self) -> Likeness:
        """Of a fix that ran with others, what differs need not be its doing."""
        told = tuple(f"together with the others {each}" for each in self.evidence)
        return replace(self, evidence=told, is_crowded=True)


def worst(likenesses: Iterable[Likeness]) -> Likeness:
    grades = (Grade.BITWISE, Grade.ROUNDING, Grade.ALIKE, Grade.UNKNOWN, Grade.DIFFERENT)
    return max(likenesses, key=lambda each: grades.index(each.grade))


_UNCHECKED = Likeness(Grade.UNKNOWN)


@dataclass(frozen=True)
class Reading:
    """The GPU of the UUID `gpu` at a `time` in seconds since 1970, in MHz, W and °C, NaN if it doesn't tell.

    `reasons` are NVML's bits for why its clocks are held back.
    """

    time: float
    gpu: str
    driver: str
    sm_mhz: float
    memory_mhz: float
    watts: float
    celsius: float
    reasons: int


@dataclass(frozen=True)
class Stranger:
    gpu: str
    pid: str
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


@dataclass(frozen=True)
class FixVerdict:
    """The verdict on the fix of the finding at `line` of the original file `path`, known by `fingerprint`.

    `name` is unique in a verdict. At most one of a finding's fixes is kept. `likeness` and `alone` are of the original
    with this fix, `on_top` is its gain over the fixes kept before. `is_joint`: kept for what it gains with others. It
    ran `activations` times.
    """

    name: str
    rule: str
    path: str
    line: int
    title: str
    safety: Safety
    fingerprint: str
    likeness: Likeness
    activations: int
    alone: Estimate | None = None
    on_top: Estimate | None = None
    kept: bool = False
    reason: str = ""
    is_joint: bool = False
    at_run_time: bool = False

    @property
    def place(self) -> str:
        return f"{self.rule} {at_line(self.path, self.line)}" if self.line else self.rule

    @property
    def gain(self) -> Estimate | None:
        return self.on_top or self.alone


@dataclass(frozen=True)
class Hunk:
    """A hunk of a unified diff, and the names of the fixes that it is made of."""

    path: str
    text: str
    fixes: tuple[str, ...] = ()

    @classmethod
    def between(cls, path: str, before: str, after: str, alone: Mapping[str, str]) -> Iterator[Hunk]:
        """The hunks that turn `before`, the text of the file `path`, into `after`.

        `alone` has what each fix, by name, makes of the file by itself.
        """
        touched = {name: _touched(before.split("\n"), text.split("\n")) for name, text in alone.items()}
        old, new = (text.encode("utf-8", "surrogatepass") for text in (before, after))
        for shown, hunk in hunks_between(old, new):
            span = range(shown.start, shown.stop + 1)
            fixes = tuple(name for name, places in touched.items() if not places.isdisjoint(span))
            yield cls(path, hunk.decode("utf-8", "surrogatepass"), fixes)


def _touched(old: Sequence[str], new: Sequence[str]) -> frozenset[int]:
    opcodes = Lines(old, new).get_opcodes()
    changed = (range(start, max(stop, start + 1)) for kind, start, stop, _, _ in opcodes if kind != "equal")
    return frozenset(line for lines in changed for line in lines)


@dataclass(frozen=True)
class Side:
    """What was measured of one program."""

    setup_seconds: float = 0.0
    device_bytes: int = 0
    host_bytes: int = 0
    losses: tuple[float, ...] = ()
    timeline: Timeline | None = None

    @property
    def busy(self) -> float | None:
        return self.timeline.busy if self.timeline else None


@dataclass(frozen=True)
class Reach:
    """How far results were compared: over so many `steps`, the whole program if it `is_whole`.

    `unseen` names functions and loops with fixes never left by then. Files written `elsewhere` than below the program's
    folder were not compared.
    """

    steps: int = 0
    is_whole: bool = False
    unseen: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        end = f"is used after step {self.steps} only: a larger --horizon looks further"
        notes = [f"what {place} computes {end}" for place in self.unseen]
        if self.elsewhere:
            more = f" and {len(self.elsewhere) - 1} more" if len(self.elsewhere) > 1 else ""
            notes.append(
                f"the content of {self.elsewhere[0]}{more}: only files below the program's folder are compared"
            )
        return tuple(notes)


@dataclass(frozen=True)
class Spent:
    """`seconds` of a part of a verification; its `starts` of programs took `starting` of them."""

    part: str
    seconds: float
    starts: int = 0
    starting: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """All that a verification of `program` showed, on `date` (ISO 8601).

    `own` is how alike two runs of the original are, `likeness` original and patch, compared up to `reach`. `samples`
    are of the patch's last race, after `warm_up` steps. `excluded` says in sentences what was left out or disturbed;
    `failure`, why there is no verdict. `readings` are of the GPUs during the race; with `strangers` on them, speed
    can't be measured; others kept a share of the cores busy, the `load`. A budget of `longer` seconds may tell what is
    open; `spent` is what each part took. It `is_shortened`: a copy was timed that comes soon to what runs late. It
    `is_idle` if no fix took effect, each for a reason seen at run time.
    """

    program: str
    date: str
    device: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    warm_up: int = 0
    samples: Samples = field(default_factory=Samples)
    own: Likeness = _UNCHECKED
    likeness: Likeness = _UNCHECKED
    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)
    again: Side | None = None
    fixes: tuple[FixVerdict, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    excluded: tuple[str, ...] = ()
    failure: str = ""
    readings: tuple[Reading, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    load: float = 0.0
    reach: Reach = Reach()
    longer: float = 0.0
    spent: tuple[Spent, ...] = ()
    is_shortened: bool = False
    is_idle: bool = False

    def having(self, fixes: Iterable[FixVerdict]) -> Verdict:
        known = {fix.name: fix for fix in fixes}
        return replace(self, fixes=tuple(known.get(fix.name, fix) for fix in self.fixes))

    @cached_property
    def speed(self) -> Estimate | None:
        return statistics.against_original(self.samples, PATCHED)

    @cached_property
    def aa(self) -> Estimate | None:
        return statistics.itself(self.samples)

    @property
    def floor(self) -> float:
        return statistics.noise_floor(self.aa)

    @property
    def is_faster(self) -> bool:
        return self._raced is Outcome.FASTER

    @property
    def is_same(self) -> bool:
        """Whether the patch keeps its fixes' promises; without a patch, whether honest fixes do."""
        own = self.own.grade
        honest = [fix for fix in self.fixes if fix.activations and fix.likeness.keeps(fix.safety, own)]
        patch = [fix for fix in self.fixes if fix.kept] or honest
        return self.likeness.keeps(weakest(patch), own)

    @property
    def outcome(self) -> Outcome:
        if self.failure:
            return Outcome.FAILED
        if not self.fixes or self.is_idle:
            return Outcome.UNFIXED
        if Grade.UNKNOWN in (self.own.grade, self.likeness.grade):
            is_useless = self.is_cut and self._raced in (Outcome.SLOWER, Outcome.LEVEL)
            return self._raced if is_useless else Outcome.UNCHECKED
        return self._raced if self.is_same else Outcome.DIFFERENT

    @property
    def _raced(self) -> Outcome:
        return statistics.speed(self.speed, self.floor) if self.speed and not self.strangers else Outcome.UNSURE

    @property
    def is_open(self) -> bool:
        said = (words for each in (self.own, self.likeness) for words in each.evidence)
        is_late = self.is_cut or any(words.endswith(MORE_TIME) for words in said)
        return self.outcome is Outcome.UNSURE or (is_late and self.longer > 0 and self.outcome is Outcome.UNCHECKED)

    @property
    def is_cut(self) -> bool:
        return any(NO_TIME in each.evidence for each in (self.own, self.likeness))

    @property
    def step_seconds(self) -> tuple[float, float] | None:
        """The original's median step, and what it would be at the measured ratio; None without both.

        Two medians may contradict the paired ratio: a shared machine is slower for a while.
        """
        before = statistics.step_seconds(self.samples, ORIGINALS)
        return (before, before / self.speed.ratio) if before is not None and self.speed else None

    @property
    def break_even_steps(self) -> int | None:
        """After how many steps a longer set-up pays off; None if never."""
        if not self.is_faster or self.step_seconds is None:
            return None
        before, after = self.step_seconds
        longer = max(0.0, self.after.setup_seconds - self.before.setup_seconds)
        return ceil(longer / (before - after)) if before > after else None


def weakest(fixes: Iterable[FixVerdict]) -> Safety:
    """What fixes promise together; without any, exactness."""
    return max((fix.safety for fix in fixes), key=list(Safety).index, default=Safety.EXACT)


def begun(program: str, **known: Any) -> Verdict:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Verdict(program, now, environment={"perflint": __version__}, **known)
