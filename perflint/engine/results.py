"""The results that reports render: diagnostics with positions, results of files and of runs, and why a file failed."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perflint.analysis.links import Context, HotPlace
from perflint.documents.disk import PlacedEdit, Position, Problem
from perflint.engine.rule import Safety, Severity, Terms

TOO_LARGE = (RecursionError, MemoryError)
FILE_FAULTS = (SyntaxError, UnicodeError, *TOO_LARGE)

_NEWER = (
    ((3, 14), re.compile(r"\bt['\"]|^\s*except\s+[\w.]+(\s*,\s*[\w.]+)+\s*:")),
    ((3, 12), re.compile(r"^\s*type\s+\w+.*=|^\s*(async\s+)?(def|class)\s+\w+\[|\bf['\"]")),
    ((3, 11), re.compile(r"^\s*except\s*\*|\[\s*\*|,\s*\*\w+\s*\]|\*args\s*:\s*\*")),
)


class RuleCrash(Exception):
    """The rule called `rule` (or the model of the program, where it is "") raised `__cause__`: a defect of ours."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def problem_of(error: BaseException, text: str = "") -> Problem:
    """The problem that `error`, raised while `text` was checked, stands for."""
    if isinstance(error, SyntaxError):
        return _syntax_problem(error, text)
    if isinstance(error, TOO_LARGE):
        return Problem("is nested too deeply, or is too large, to be analysed")
    if isinstance(error, UnicodeError):
        return Problem("holds lone surrogates: it is not Python source")
    return _internal_problem(error)


def _syntax_problem(error: SyntaxError, text: str) -> Problem:
    lines = re.split(r"\r\n|\r|\n", text)
    line = error.lineno if error.lineno and error.lineno <= len(lines) else None
    hint = _hint(lines[line - 1]) if line else ""
    return Problem(f"is not valid Python: {error.msg}{hint}", line)


def _hint(line: str) -> str:
    for version, syntax in _NEWER:
        if sys.version_info < version and syntax.search(line):
            running = f"{sys.version_info.major}.{sys.version_info.minor}"
            newer = f"Python {version[0]}.{version[1]}"
            return f" (is it for {newer}? perflint runs on Python {running}, and reads what that can)"
    return ""


def _internal_problem(error: BaseException) -> Problem:
    cause, where = error, ""
    if isinstance(error, RuleCrash) and error.__cause__:
        cause, where = error.__cause__, f" in the rule {error.rule}" if error.rule else " in the model of the program"
    summary = " ".join(traceback.format_exception_only(cause)[-1].split())
    return Problem(
        f"internal error{where}, which is a bug: {summary}", traceback="".join(traceback.format_exception(cause))
    )


@dataclass(frozen=True)
class PlacedFix(Terms):
    title: str
    safety: Safety
    edits: tuple[PlacedEdit, ...] = ()
    requires: str = ""
    assumes: str = ""
    is_awkward: bool = False


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
        return tuple(file for file in self.files if file.problem)
