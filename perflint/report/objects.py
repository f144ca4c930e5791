"""The formats json, json-lines and sarif: objects for findings, and for files that could not be checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from perflint import __version__
from perflint.documents.places import PlacedEdit, Position, Problem
from perflint.engine.results import Diagnostic, FileResult, PlacedFix, RunResult
from perflint.engine.rule import Rule, Severity
from perflint.report.places import INTERNAL, UNREADABLE, code_of, entries, in_cell, posix, uri, with_notes
from perflint.report.style import Style

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://pypi.org/project/perflint-torch/"
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "note"}


def as_sarif(result: RunResult, style: Style) -> str:
    """One run as a JSON document, with the pages of all rules."""
    from perflint.engine.catalogue import all_rules

    return json.dumps(document(result, all_rules()), indent=2) + "\n"


def document(result: RunResult, rules: Iterable[Rule]) -> dict[str, Any]:
    """The SARIF log of `result`, with `rules` as its tool's rules."""
    known = {rule.name: rule for rule in rules}
    index = {name: number for number, name in enumerate(known)}
    driver = {
        "name": "perflint",
        "version": __version__,
        "informationUri": HOME,
        "rules": [_rule(rule) for rule in known.values()],
        "notifications": [
            {"id": UNREADABLE, "shortDescription": {"text": "A file that could not be checked."}},
            {"id": INTERNAL, "shortDescription": {"text": "A defect of perflint, or of a rule, met in a file."}},
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "newlineSequences": ["\r\n", "\n", "\r"],
        "invocations": [_invocation(result)],
        "results": [_result(diagnostic, index) for diagnostic in result.diagnostics],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    page = rule.page.strip()
    about = re.search(r"^## What it does\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    what = " ".join((about[1] if about else page).split()) or rule.name
    return {
        "id": rule.name,
        "shortDescription": {"text": re.split(r"(?<=\.)\s", what, maxsplit=1)[0]},
        "fullDescription": {"text": what},
        "helpUri": f"{HOME}#rules",
        "help": {"text": page or what, "markdown": page or what},
        "defaultConfiguration": {"level": _LEVEL[rule.severity]},
        "properties": {"tags": ["performance", rule.group]},
    }


def _invocation(result: RunResult) -> dict[str, Any]:
    problems = [_notification(file, file.problem) for file in result.files if file.problem]
    return {"executionSuccessful": not problems, "toolExecutionNotifications": problems}


def _notification(file: FileResult, problem: Problem) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri(file.path)}}
    if problem.line:
        physical["region"] = {"startLine": problem.line}
    return {
        "descriptor": {"id": code_of(problem)},
        "level": "error",
        "message": {"text": f"{_plain(posix(file.path))}: {_plain(problem.message)}"},
        "locations": [{"physicalLocation": physical}],
    }


def _result(diagnostic: Diagnostic, index: dict[str, int]) -> dict[str, Any]:
    known = {"ruleIndex": index[diagnostic.rule]} if diagnostic.rule in index else {}
    fixes = [_fix(fix, diagnostic.path) for fix in diagnostic.fixes] if diagnostic.start.cell is None else []
    return {
        "ruleId": diagnostic.rule,
        **known,
        "level": _LEVEL[diagnostic.severity],
        "message": {"text": _plain(in_cell(diagnostic) + with_notes(diagnostic))},
        "locations": [_location(diagnostic)],
        **({"relatedLocations": [_hot_by(diagnostic)]} if diagnostic.hot_by is not None else {}),
        "partialFingerprints": {"perflint/v1": diagnostic.fingerprint},
        **({"fixes": fixes} if fixes else {}),
        "properties": {"kind": diagnostic.kind, "blocked": diagnostic.blocked},
    }


def _location(diagnostic: Diagnostic) -> dict[str, Any]:
    start, end = diagnostic.start, diagnostic.end
    return _place(diagnostic.path, start.cell, _region(start, end))


def _hot_by(diagnostic: Diagnostic) -> dict[str, Any]:
    """What makes the code hot, as a location."""
    by = diagnostic.hot_by
    assert by is not None
    text = f"`{by.runs}` runs in every step" if by.runs else "this loop runs it in every iteration"
    return {"message": {"text": text}, **_place(by.file or diagnostic.path, by.cell, {"startLine": by.line})}


def _place(path: str, cell: int | None, region: dict[str, int]) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri(path)}}
    if cell is None:
        return {"physicalLocation": {**physical, "region": region}}
    # A region would be read as lines of the notebook's JSON.
    place = {"cell": cell, "line": region["startLine"]}
    place |= {"column": region["startColumn"]} if "startColumn" in region else {}
    named = {"name": f"cell {cell}", "fullyQualifiedName": f"{posix(path)}:cell {cell}"}
    return {"physicalLocation": physical, "logicalLocations": [named], "properties": place}


def _region(start: Position, end: Position) -> dict[str, int]:
    return {"startLine": start.line, "startColumn": start.column, "endLine": end.line, "endColumn": end.column}


def _fix(fix: PlacedFix, path: str) -> dict[str, Any]:
    change = {"artifactLocation": {"uri": uri(path)}, "replacements": [_replacement(edit) for edit in fix.edits]}
    return {
        "description": {"text": f"{fix.title} ({fix.safety})"},
        "artifactChanges": [change],
        "properties": {"safety": str(fix.safety), "requires": fix.requires, "assumes": fix.assumes},
    }


def _replacement(edit: PlacedEdit) -> dict[str, Any]:
    return {"deletedRegion": _region(edit.start, edit.end), "insertedContent": {"text": edit.text}}


def _plain(text: str) -> str:
    """`text` for a SARIF message, where `[0](x)` would be a link."""
    return re.sub(r"\[(?=[^\]]*\]\()", r"\\[", text)


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
        "hot_by": _hot_object(diagnostic),
        "fingerprint": diagnostic.fingerprint,
        **({"cost_ms": round(diagnostic.cost.ms, 4)} if diagnostic.cost else {}),
    }


def _hot_object(diagnostic: Diagnostic) -> dict[str, Any] | None:
    """The loop that makes the code hot, or the function that is called in every step, which it then names."""
    by = diagnostic.hot_by
    if by is None:
        return None
    return {"path": posix(by.file or diagnostic.path), "cell": by.cell, "line": by.line, "function": by.runs or None}


def _edit(edit: PlacedEdit) -> dict[str, Any]:
    cell = {} if edit.start.cell is None else {"cell": edit.start.cell}
    return {**cell, "start": edit.start.offset, "end": edit.end.offset, "text": edit.text}
