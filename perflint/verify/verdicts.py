"""Reads and writes `verdicts.json`, and finds the fixes that won.

Verdicts have the fields of `Verdict`, and below `result` what follows from these. Times are in seconds, memory in
bytes; a number that isn't finite is "nan", "inf" or "-inf". Further fields may be added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perflint.engine import UserError
from perflint.engine.catalogue import rules_by_name
from perflint.engine.results import Diagnostic, RunResult
from perflint.project import stored
from perflint.project.patch import ANY, Place
from perflint.verify.statistics import Outcome
from perflint.verify.summary import advice, ratio_with_interval, sentence
from perflint.verify.verdict import FixVerdict, Verdict

VERSION, _NAME = 1, "verdicts"


def with_gains(result: RunResult, root: Path) -> RunResult:
    """Raises UserError."""
    known = stored.nearest(root.resolve(), stored.VERDICTS)
    return Won.read(known).with_gains(result) if known else result


def read(path: Path) -> tuple[Verdict, ...]:
    """The verdicts in a file, none where there is no such file; UserError where it can't be read."""
    try:
        found = stored.load(path, VERSION, _NAME, Verdict)
        return tuple(_with_paths(each, lambda name: os.path.normpath(stored.project_of(path) / name)) for each in found)
    except OSError as error:
        raise _useless(path, f"it can't be read ({error.strerror})") from error
    except stored.OtherVersion as error:
        raise _useless(path, f"it is not of version {VERSION}, which this perflint reads") from error
    except stored.DAMAGED as error:
        raise _useless(path, "it holds no verdicts that can be read") from error


def _useless(path: Path, why: str) -> UserError:
    return UserError(f"{path}: {why}: delete it or verify again")


def aside(path: Path) -> Path:
    return path.with_suffix(".old")


def add(path: Path, verdict: Verdict) -> None:
    """Add `verdict` to the file, replacing the last on its program and device; raises UserError.

    An unreadable file is moved aside.
    """
    known: tuple[Verdict, ...] | None = None
    with suppress(UserError):
        known = read(path)
    others = [each for each in known or () if (each.program, each.device) != (verdict.program, verdict.device)]
    root = stored.project_of(path)
    moved = (_with_paths(each, lambda name: os.path.relpath(name, root)) for each in (verdict, *others))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if known is None:
            path.replace(aside(path))
        stored.store(path, VERSION, _NAME, map(as_object, moved))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _with_paths(verdict: Verdict, change: Callable[[str], str]) -> Verdict:
    return replace(verdict, fixes=tuple(replace(fix, path=change(fix.path)) for fix in verdict.fixes))


def as_object(verdict: Verdict) -> dict[str, Any]:
    result = {
        "advice": advice(verdict),
        "sentence": sentence(verdict),
        "outcome": verdict.outcome,
        "is_same": verdict.is_same,
        "is_faster": verdict.is_faster,
        "speed": verdict.speed,
        "aa": verdict.aa,
        "floor": verdict.floor,
        "step_seconds": verdict.step_seconds,
        "break_even_steps": verdict.break_even_steps,
        "busy": (verdict.before.busy, verdict.after.busy),
    }
    return {"result": stored.encoded(result), **stored.encoded(verdict)}


@dataclass(frozen=True)
class Won:
    """Kept fixes with their verdicts, the newest first."""

    fixes: tuple[tuple[FixVerdict, Verdict], ...]

    @classmethod
    def read(cls, file: Path) -> Won:
        won = (verdict for verdict in read(file) if verdict.outcome is Outcome.FASTER)
        return cls(tuple((fix, verdict) for verdict in won for fix in verdict.fixes if fix.kept))

    @property
    def rules(self) -> tuple[str, ...]:
        known = rules_by_name()
        return tuple(dict.fromkeys(fix.rule for fix, _ in self.fixes if fix.rule in known))

    @property
    def settings(self) -> tuple[str, ...]:
        known = rules_by_name()
        return tuple(dict.fromkeys(fix.rule for fix, _ in self.fixes if fix.rule not in known))

    def places(self, result: RunResult) -> Mapping[str, frozenset[Place]]:
        return {
            file.path: frozenset(
                (each.rule, each.start.program_line, ANY if fix.at_run_time else fix.title)
                for each in file.diagnostics
                for fix, _ in self._of(each)
            )
            for file in result.files
        }

    def with_gains(self, result: RunResult) -> RunResult:
        files = (
            replace(file, diagnostics=tuple(replace(each, measured=self._gain(each)) for each in file.diagnostics))
            for file in result.files
        )
        return replace(result, files=tuple(files))

    def _of(self, diagnostic: Diagnostic) -> Iterator[tuple[FixVerdict, Verdict]]:
        path = os.path.realpath(diagnostic.path)
        for fix, verdict in self.fixes:
            if (fix.rule, fix.path, fix.fingerprint) == (diagnostic.rule, path, diagnostic.fingerprint):
                yield fix, verdict

    def _gain(self, diagnostic: Diagnostic) -> str:
        for fix, verdict in self._of(diagnostic):
            if gain := verdict.speed if fix.is_joint else fix.gain:
                others = " with other fixes" if fix.is_joint else ""
                return f"{ratio_with_interval(gain)} as fast{others} on {verdict.device}, {verdict.date[:10]}"
            return ""
        return ""
