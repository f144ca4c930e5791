"""The format gitlab: a code quality report."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.engine.rule import Severity
from perflint.report.places import UNREADABLE, in_cell, posix
from perflint.report.style import Style

_SEVERITY = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.ADVICE: "minor"}


def render(result: RunResult, style: Style) -> str:
    """A JSON list of issues, no two with the same fingerprint, as GitLab would drop the second."""
    issues = [_problem(file, file.problem.message, file.problem.line) for file in result.files if file.problem]
    seen: Counter[str] = Counter()
    for diagnostic in result.diagnostics:
        identity = f"{posix(diagnostic.path)}\0{diagnostic.fingerprint}"
        seen[identity] += 1
        issues.append(_finding(diagnostic, _digest(f"{identity}\0{seen[identity]}")))
    return json.dumps(issues, indent=2) + "\n"


def _finding(diagnostic: Diagnostic, fingerprint: str) -> dict[str, Any]:
    start, end = diagnostic.start, diagnostic.end
    lines = {"begin": 1, "end": 1} if start.cell is not None else {"begin": start.line, "end": end.line}
    return {
        "description": in_cell(diagnostic) + diagnostic.message,
        "check_name": diagnostic.rule,
        "fingerprint": fingerprint,
        "severity": _SEVERITY[diagnostic.severity],
        "location": {"path": posix(diagnostic.path), "lines": lines},
    }


def _problem(file: FileResult, message: str, line: int | None) -> dict[str, Any]:
    return {
        "description": message,
        "check_name": UNREADABLE,
        "fingerprint": _digest(f"{posix(file.path)}\0{UNREADABLE}"),
        "severity": "blocker",
        "location": {"path": posix(file.path), "lines": {"begin": line or 1, "end": line or 1}},
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
