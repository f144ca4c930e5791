"""The format gitlab: a code quality report."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from perflint.engine.results import Diagnostic, RunResult
from perflint.engine.rule import Severity
from perflint.report.places import INTERNAL, UNREADABLE, entries, in_cell, posix, with_notes
from perflint.report.style import Style

_SEVERITY = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.ADVICE: "minor"}


def render(result: RunResult, style: Style) -> str:
    """A JSON list of issues, no two with the same fingerprint, as GitLab would drop the second."""
    issues = []
    seen: Counter[str] = Counter()
    for entry in entries(result):
        identity = f"{posix(entry.path)}\0{entry.fingerprint}"
        seen[identity] += 1
        issues.append(_finding(entry, _digest(f"{identity}\0{seen[identity]}")))
    return json.dumps(issues, indent=2) + "\n"


def _finding(diagnostic: Diagnostic, fingerprint: str) -> dict[str, Any]:
    start, end = diagnostic.start, diagnostic.end
    lines = {"begin": 1, "end": 1} if start.cell is not None else {"begin": start.line, "end": end.line}
    return {
        "description": in_cell(diagnostic) + diagnostic.message,
        "content": {"body": with_notes(diagnostic)},
        "check_name": diagnostic.rule,
        "fingerprint": fingerprint,
        "severity": "blocker" if diagnostic.rule in (INTERNAL, UNREADABLE) else _SEVERITY[diagnostic.severity],
        "location": {"path": posix(diagnostic.path), "lines": lines},
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
