"""What a profile has found, as it is kept, shown and compared, and what each finding costs by it."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from perflint.documents import digest
from perflint.documents.disk import Unreadable
from perflint.documents.document import decode
from perflint.engine.catalogue import all_rules, rules_by_name
from perflint.engine.results import Cost, Diagnostic, FileResult, RunResult
from perflint.profile.roofline import Regime, Roofline
from perflint.project import stored

_IDLING, _IDLE = ("overhead", "input", "host reads"), 1.1

Milliseconds = dict[str, float]  # of a step, by the regime that they go to

_VERSION, _NAME = 2, "profiles"
_MOST = 20
EMPTY: Mapping[str, bytes] = {}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)  # which take time where they are called
_OF_GROUP = {"sync": (Regime.READS, Regime.INPUT), "data": (Regime.INPUT,)}  # what fixes of a group save


@dataclass
class LineCost:
    """What a line costs in a step: its `own` wall time, in `total` with the user's functions that it calls.

    `launches` are of kernels and copies, which took `device_ms`; the host was `host_ms` at the line. `copies` go
    between host and device, `pageable` of them from or to memory that is not pinned.
    """

    path: str
    line: int
    function: str = ""
    own: Milliseconds = field(default_factory=dict)
    total: Milliseconds = field(default_factory=dict)
    launches: float = 0.0
    device_ms: float = 0.0
    host_ms: float = 0.0
    copies: float = 0.0
    pageable: float = 0.0

    @property
    def own_ms(self) -> float:
        return sum(self.own.values())

    @property
    def total_ms(self) -> float:
        return sum(self.total.values())


@dataclass(frozen=True)
class Rank:
    """`communication_ms` are those in which it only communicated."""

    rank: int
    step_ms: float
    communication_ms: float


@dataclass(frozen=True)
class Fact:
    path: str
    function: str
    name: str
    seen: tuple[str, ...]


@dataclass(frozen=True)
class Profile:
    """A program's profile; `files` holds digests of the files of its lines.

    `steps` of the kind `unit` took `step_ms` each, traced ones `slowdown` times as long. `shares` by regime add up to
    1, or are missing where only lines were seen. `made` are the lines that make loaders and optimizers, with their
    costs. A batch takes a worker `batch_ms`, spread over `worker_lines`. With several `ranks`, all else is of the
    slowest.
    """

    program: str
    date: str
    device: str
    is_gpu: bool
    versions: Mapping[str, str]
    unit: str
    steps: int
    step_ms: float
    slowdown: float
    shares: Mapping[str, float]
    lines: tuple[LineCost, ...]
    made: tuple[LineCost, ...]
    roofline: Roofline
    files: Mapping[str, str]
    workers: int = 0
    batch_ms: float = 0.0
    worker_lines: tuple[LineCost, ...] = ()
    ranks: tuple[Rank, ...] = ()
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def regime(self) -> str:
        """What takes most of a step; where it is close, what keeps a device waiting."""
        return max(self.shares, key=lambda name: self.shares[name] * (_IDLE if name in _IDLING else 1), default="")

    @property
    def idle_rules(self) -> frozenset[str]:
        """Rules whose cost this profile can't tell, as there was no GPU to keep waiting."""
        return frozenset() if self.is_gpu else frozenset(each.name for each in all_rules() if each.needs_gpu)

    def ms(self, regime: str) -> float:
        return self.shares.get(regime, 0.0) * self.step_ms


def read(file: Path) -> tuple[Profile, ...]:
    with suppress(*stored.DAMAGED):
        profiles, project = stored.load(file, _VERSION, _NAME, Profile), stored.project_of(file)
        return tuple(_with_paths(each, lambda name: os.path.normpath(project / name)) for each in profiles)
    return ()


def keep(project: Path, profile: Profile) -> Path:
    """Raises OSError."""
    file = stored.made(project) / stored.PROFILES
    others = [each for each in read(file) if each.program != profile.program]
    root = stored.project_of(file)
    moved = [_with_paths(each, lambda name: os.path.relpath(name, root)) for each in (profile, *others)]
    stored.store(file, _VERSION, _NAME, moved[:_MOST])
    return file


def _with_paths(profile: Profile, change: Callable[[str], str]) -> Profile:
    names = ("lines", "made", "worker_lines", "facts")
    moved: dict[str, Any] = {
        name: tuple(replace(each, path=change(each.path)) for each in getattr(profile, name)) for name in names
    }
    return replace(profile, files={change(path): value for path, value in profile.files.items()}, **moved)


def with_known_costs(result: RunResult, root: Path, open_: Mapping[str, bytes] = EMPTY) -> RunResult:
    """`result` with what the project's profiles have measured of its findings.

    Files by the paths `open_` hold other bytes than the disk, as in an editor.
    """
    file = stored.nearest(root.resolve(), stored.PROFILES)
    return with_costs(result, read(file), open_) if file else result


def with_costs(result: RunResult, profiles: Iterable[Profile], open_: Mapping[str, bytes] = EMPTY) -> RunResult:
    known = list(profiles)
    return replace(result, files=tuple(_costed(file, known, open_.get(file.path)) for file in result.files))


def _costed(file: FileResult, profiles: Iterable[Profile], data: bytes | None) -> FileResult:
    path = os.path.realpath(file.path)
    seen = [each for each in profiles if path in each.files] if file.diagnostics else []
    if not seen:
        return file
    code = Code.of(Path(path), data)
    costs = [(each, Costs(each, code)) for each in seen if each.files[path] == code.digest]
    return replace(file, diagnostics=tuple(_of(each, costs) for each in file.diagnostics))


def _of(diagnostic: Diagnostic, profiles: Iterable[tuple[Profile, Costs]]) -> Diagnostic:
    for profile, costs in profiles:
        ms = None if diagnostic.rule in profile.idle_rules else costs.of(diagnostic)
        if ms is not None:
            program = os.path.basename(profile.program.split()[0])  # noqa: PTH119
            return replace(diagnostic, cost=Cost(ms, profile.step_ms, program, profile.date))
    return diagnostic


@dataclass(frozen=True)
class Code:
    """A file's digest, its statements' last lines by their first, and the names in each line."""

    path: str
    digest: str
    ends: Mapping[int, int]
    names: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, path: Path, data: bytes | None = None) -> Code:
        ends: dict[int, int] = {}
        names: defaultdict[int, set[str]] = defaultdict(set)
        with suppress(Unreadable, OSError, SyntaxError, ValueError, RecursionError):
            data = path.read_bytes() if data is None else data
            for node in ast.walk(ast.parse(decode(str(path), data).text)):
                if isinstance(node, ast.stmt) and not isinstance(node, _DEFINITIONS):
                    ends[node.lineno] = max(ends.get(node.lineno, 0), node.end_lineno or node.lineno)
                elif isinstance(node, ast.Name):
                    names[node.lineno].add(node.id)
        return cls(str(path), digest(data or b""), ends, {line: frozenset(each) for line, each in names.items()})

    def region(self, diagnostic: Diagnostic) -> range:
        first, last = diagnostic.start.program_line, diagnostic.end.program_line
        return range(first, max(last, self.ends.get(first, last)) + 1)


@dataclass(frozen=True)
class Costs:
    profile: Profile
    code: Code

    @cached_property
    def lines(self) -> Mapping[int, LineCost]:
        return {each.line: each for each in self.profile.lines if each.path == self.code.path}

    def of(self, diagnostic: Diagnostic) -> float | None:
        group = rules_by_name()[diagnostic.rule].group if diagnostic.rule in rules_by_name() else ""
        region = range(diagnostic.start.program_line, diagnostic.end.program_line + 1)
        owned = [each for each in self.profile.made if each.path == self.code.path and each.line in region]
        if owned or group == "data":
            return sum(sum(_saved(each.own, group)) for each in owned) if owned else None
        ran = [self.lines[line] for line in self.code.region(diagnostic) if line in self.lines]
        return sum(sum(_saved(each.total, group)) for each in ran) if ran else None


def _saved(cost: Mapping[str, float], group: str) -> Iterator[float]:
    return (ms for regime, ms in cost.items() if Regime(regime) in _OF_GROUP.get(group, tuple(Regime)))
