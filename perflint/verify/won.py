"""What verifications have found of a project's fixes: which to apply, and what each has gained."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perflint.engine.results import Diagnostic, RunResult
from perflint.project.patch import ANY, Place
from perflint.verify import verdicts
from perflint.verify.outcome import Outcome
from perflint.verify.verdict import FixVerdict, Verdict
from perflint.verify.wording import ratio_with_interval


@dataclass(frozen=True)
class Won:
    """The fixes that were kept, each with its verdict, the newest first."""

    fixes: tuple[tuple[FixVerdict, Verdict], ...]

    @classmethod
    def read(cls, file: Path) -> Won:
        """Those of a file of verdicts; raises UserError."""
        won = (verdict for verdict in verdicts.read(file) if verdict.outcome is Outcome.FASTER)
        return cls(tuple((fix, verdict) for verdict in won for fix in verdict.fixes if fix.kept))

    def places(self, result: RunResult) -> Mapping[str, frozenset[Place]]:
        """For each file, what of its findings is to be fixed: those whose code is as it was verified."""
        return {
            file.path: frozenset(
                (each.rule, each.start.line, ANY if fix.at_run_time else fix.title)
                for each in file.diagnostics
                for fix, _ in self._of(each)
            )
            for file in result.files
        }

    def with_gains(self, result: RunResult) -> RunResult:
        """`result`, its findings with what their fixes have gained."""
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
            gain, others = (verdict.speed, " with other fixes") if fix.is_joint else (fix.gain, "")
            return (
                f"{ratio_with_interval(gain)} as fast{others} on {verdict.device}, {verdict.date[:10]}" if gain else ""
            )
        return ""
