"""The formats json and json-lines: an object for each finding, and for each file that could not be checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perflint.documents.places import PlacedEdit
from perflint.engine.results import Diagnostic, RunResult
from perflint.report.places import entries, posix
from perflint.report.style import Style


def as_list(result: RunResult, style: Style) -> str:
    """A JSON list, by path and place."""
    return json.dumps(list(objects(result)), indent=2) + "\n"


def as_lines(result: RunResult, style: Style) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(item) + "\n" for item in objects(result))


def objects(result: RunResult) -> Iterator[dict[str, Any]]:
    """The objects that stand for the findings and problems of `result`.

    Lines and columns count characters from 1; `start` and `end` of an edit are offsets from 0 into the file or, in a
    notebook, into the source of the cell that the edit names. `end_column` is the first column after the finding.
    """
    return map(_finding, entries(result))


def _finding(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.rule,
        "path": posix(diagnostic.path),
        "cell": diagnostic.start.cell,
        "line": diagnostic.start.line,
        "column": diagnostic.start.column,
        "end_line": diagnostic.end.line,
        "end_column": diagnostic.end.column,
        "message": diagnostic.message,
        "kind": diagnostic.kind,
        "severity": str(diagnostic.severity),
        "fixes": [
            {
                "title": fix.title,
                "safety": str(fix.safety),
                "requires": fix.requires,
                "assumes": fix.assumes,
                "edits": list(map(_edit, fix.edits)),
            }
            for fix in diagnostic.fixes
        ],
        "blocked": diagnostic.blocked,
        "hot_by": _hot_by(diagnostic),
        "fingerprint": diagnostic.fingerprint,
        **({"cost_ms": round(diagnostic.cost.ms, 4)} if diagnostic.cost else {}),
    }


def _hot_by(diagnostic: Diagnostic) -> dict[str, Any] | None:
    """The loop that makes the code hot, or the function that is called in every step, which it then names."""
    by = diagnostic.hot_by
    if by is None:
        return None
    return {"path": posix(by.file or diagnostic.path), "cell": by.cell, "line": by.line, "function": by.runs or None}


def _edit(edit: PlacedEdit) -> dict[str, Any]:
    cell = {} if edit.start.cell is None else {"cell": edit.start.cell}
    return {**cell, "start": edit.start.offset, "end": edit.end.offset, "text": edit.text}
