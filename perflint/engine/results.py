"""The results that reports render: diagnostics with positions, results of files, results of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perflint.analysis.links import Context, HotPlace
from perflint.documents.places import PlacedEdit, Position, Problem
from perflint.engine.rule import Safety, Severity, is_safe


@dataclass(frozen=True)
class PlacedFix:
    """A fix of the user's file; without edits where nobody asked for them."""

    title: str
    safety: Safety
    edits: tuple[PlacedEdit, ...] = ()
    requires: str = ""
    assumes: str = ""

    @property
    def is_safe(self) -> bool:
        """Is it applied without being asked for?"""
        return is_safe(self.safety, self.requires, self.assumes)


@dataclass(frozen=True)
class Cost:
    """What a profile has measured at a finding: `ms` of each step, of `step_ms`, of a program at a date."""

    ms: float
    step_ms: float
    program: str
    date: str

    def __str__(self) -> str:
        return f"{figure(self.ms)} ms of a {figure(self.step_ms)} ms step ({self.program}, {self.date})"


def figure(value: float) -> str:
    """A number with two digits, or all of those before the point: 0.25, 7.1, 2,041."""
    if 0 < value < 0.01:
        return "<0.01"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


@dataclass(frozen=True)
class Diagnostic:
    """A finding with its place in the user's file.

    `frame` holds the source lines around it, the first being line number `frame_line` of the file or cell.
    `fingerprint` depends on the rule and the text of the finding, not on line numbers. `measured` says what its fix has
    gained, where it was verified; `cost` what a profile has measured at most for it to save. `hot_by` is what makes the
    code hot: a place in this file where it names none.
    """

    path: str
    rule: str
    kind: str
    severity: Severity
    message: str
    start: Position
    end: Position
    fixes: tuple[PlacedFix, ...]
    blocked: str
    frame: tuple[str, ...]
    frame_line: int
    fingerprint: str
    measured: str = ""
    hot_by: HotPlace | None = None
    cost: Cost | None = None


@dataclass(frozen=True)
class FileResult:
    """What is known of one file: its diagnostics, or the problem; `skipped` says what was not run."""

    path: str
    diagnostics: tuple[Diagnostic, ...] = ()
    problem: Problem | None = None
    skipped: str = ""


@dataclass(frozen=True)
class RunResult:
    """The files of a run, sorted by path, and how long it took in seconds.

    `contexts` has, by path, what the other files told of a file when it was checked.
    """

    files: tuple[FileResult, ...]
    seconds: float
    contexts: Mapping[str, Context] = field(default_factory=dict)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Every diagnostic of the run, sorted by path and place."""
        return tuple(diagnostic for file in self.files for diagnostic in file.diagnostics)

    @property
    def by_cost(self) -> tuple[FileResult, ...]:
        """The files, those of findings whose cost is known before the others, one for each finding, the dearest first.

        What remains of the files follows as it is.
        """
        known = [
            (each.cost.ms, FileResult(file.path, (each,)))
            for file in self.files
            for each in file.diagnostics
            if each.cost
        ]
        rest = (
            replace(file, diagnostics=tuple(each for each in file.diagnostics if not each.cost)) for file in self.files
        )
        dearest = sorted(known, key=lambda pair: -pair[0])
        return (*(file for _, file in dearest), *rest) if known else self.files

    @property
    def problems(self) -> tuple[FileResult, ...]:
        """The files that could not be checked."""
        return tuple(file for file in self.files if file.problem)
