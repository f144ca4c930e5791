"""The formats for machines: json, json-lines and sarif, and those of services, github, gitlab and junit."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perflint import __version__
from perflint.documents import digest
from perflint.documents.disk import PlacedEdit, Position, Problem
from perflint.engine.results import Diagnostic, FileResult, PlacedFix, RunResult
from perflint.engine.rule import Rule, Severity
from perflint.report import summary
from perflint.report.text import Style, printable, with_notes, within

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://pypi.org/project/perflint-torch/"
UNREADABLE = "unreadable-file"  # stands where a rule's name would, for a file that could not be checked
INTERNAL = "internal-error"  # likewise, where that is our fault
_MOST = 1024  # characters of a description that GitHub takes
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "note"}


def code_of(problem: Problem) -> str:
    return UNREADABLE if problem.traceback is None else INTERNAL


def entries(result: RunResult) -> Iterator[Diagnostic]:
    for file in result.files:
        if file.problem:
            start = Position(None, 0, file.problem.line or 1, 1)
            said = (code_of(file.problem), "problem", Severity.ERROR, file.problem.message)
            yield Diagnostic(file.path, *said, start, start, (), "", (), start.line, "")
        yield from file.diagnostics


def posix(path: str) -> str:
    return path.replace(os.sep, "/")


def uri(path: str) -> str:
    try:
        quoted = quote(posix(path), errors="surrogateescape")
    except UnicodeEncodeError:  # a name that only Windows allows
        quoted = quote(posix(path), errors="surrogatepass")
    if Path(path).is_absolute():
        return f"file://{'' if quoted.startswith('/') else '/'}{quoted}"
    return quoted


def in_cell(diagnostic: Diagnostic) -> str:
    """What to put before a message where a format knows lines of files only: lines of a cell would mislead there."""
    start = diagnostic.start
    return "" if start.cell is None else f"cell {start.cell}, line {start.line}: "


def as_sarif(result: RunResult, style: Style) -> str:
    from perflint.engine.catalogue import all_rules

    return json.dumps(document(result, all_rules()), indent=2) + "\n"


def document(result: RunResult, rules: Iterable[Rule]) -> dict[str, Any]:
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
    problems = [_notification(file, file.problem) for file in result.files if file.problem]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "newlineSequences": ["\r\n", "\n", "\r"],
        "invocations": [{"executionSuccessful": not problems, "toolExecutionNotifications": problems}],
        "results": [_result(diagnostic, index) for diagnostic in result.diagnostics],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    page = rule.page.strip()
    about = re.search(r"^## What it does\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    what = " ".join((about[1] if about else page).split()) or rule.name
    return {
        "id": rule.name,
        "shortDescription": {"text": summary(rule) or rule.name},
        "fullDescription": {"text": textwrap.shorten(what, _MOST, placeholder=" ...")},
        "helpUri": f"{HOME}#rules",
        "help": {"text": page or what, "markdown": page or what},
        "defaultConfiguration": {"level": _LEVEL[rule.severity]},
        "properties": {"tags": ["performance", rule.group]},
    }


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
    start, end = diagnostic.start, diagnostic.end
    fixes = [_fix(fix, diagnostic.path) for fix in diagnostic.fixes] if start.cell is None else []
    return {
        "ruleId": diagnostic.rule,
        **known,
        "level": _LEVEL[diagnostic.severity],
        "message": {"text": _plain(in_cell(diagnostic) + with_notes(diagnostic))},
        "locations": [_place(diagnostic.path, start.cell, _region(start, end))],
        **({"relatedLocations": [_hot_by(diagnostic)]} if diagnostic.hot_by is not None else {}),
        "partialFingerprints": {"perflint/v1": diagnostic.fingerprint},
        **({"fixes": fixes} if fixes else {}),
        "properties": {"kind": diagnostic.kind, "blocked": diagnostic.blocked},
    }


def _hot_by(diagnostic: Diagnostic) -> dict[str, Any]:
    by = diagnostic.hot_by
    assert by is not None
    text = f"`{by.runs}` runs in every step" if by.runs else "this loop runs it in every iteration"
    return {"message": {"text": text}, **_place(by.file or diagnostic.path, by.cell, {"startLine": by.line})}


def _place(path: str, cell: int | None, region: dict[str, int]) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri(path)}}
    if cell is None:
        return {"physicalLocation": {**physical, "region": region}}
    # Lines are those of the notebook's JSON, and GitHub refuses results that have none.
    place = {"cell": cell, "line": region["startLine"]}
    place |= {"column": region["startColumn"]} if "startColumn" in region else {}
    named = {"name": f"cell {cell}", "fullyQualifiedName": f"{posix(path)}:cell {cell}"}
    physical["region"] = {"startLine": 1}
    return {"physicalLocation": physical, "logicalLocations": [named], "properties": place}


def _region(start: Position, end: Position) -> dict[str, int]:
    return {"startLine": start.line, "startColumn": start.column, "endLine": end.line, "endColumn": end.column}


def _fix(fix: PlacedFix, path: str) -> dict[str, Any]:
    replacements = [
        {"deletedRegion": _region(edit.start, edit.end), "insertedContent": {"text": edit.text}} for edit in fix.edits
    ]
    return {
        "description": {"text": f"{fix.title} ({fix.safety})"},
        "artifactChanges": [{"artifactLocation": {"uri": uri(path)}, "replacements": replacements}],
        "properties": {"safety": str(fix.safety), **_terms(fix)},
    }


def _terms(fix: PlacedFix) -> dict[str, Any]:
    return {"requires": fix.requires, "assumes": fix.assumes, "awkward": fix.is_awkward}


def _plain(text: str) -> str:
    return re.sub(r"\[(?=[^\]]*\]\()", r"\\[", text)


def as_list(result: RunResult, style: Style) -> str:
    return json.dumps(list(objects(result)), indent=2) + "\n"


def as_lines(result: RunResult, style: Style) -> str:
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
                **_terms(fix),
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
    by = diagnostic.hot_by
    if by is None:
        return None
    return {"path": posix(by.file or diagnostic.path), "cell": by.cell, "line": by.line, "function": by.runs or None}


def _edit(edit: PlacedEdit) -> dict[str, Any]:
    cell = {} if edit.start.cell is None else {"cell": edit.start.cell}
    return {**cell, "start": edit.start.offset, "end": edit.end.offset, "text": edit.text}


_COMMAND = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "notice"}
_SEVERITY = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.ADVICE: "minor"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def github(result: RunResult, style: Style) -> str:
    """Workflow commands, one a line, which become annotations of the changed lines."""
    commands = []
    for file in result.files:
        if file.problem:
            commands.append(_annotated_problem(file, file.problem))
        commands += map(_annotation, file.diagnostics)
    return "".join(f"{command}\n" for command in commands)


def _annotation(diagnostic: Diagnostic) -> str:
    properties: dict[str, str | int] = {"file": posix(diagnostic.path)}
    if diagnostic.start.cell is None:
        properties |= {"line": diagnostic.start.line, "endLine": diagnostic.end.line}
        if diagnostic.start.line == diagnostic.end.line:  # columns of other ranges are refused
            properties |= {"col": diagnostic.start.column, "endColumn": diagnostic.end.column}
    properties["title"] = f"perflint ({diagnostic.rule})"
    return _command(_COMMAND[diagnostic.severity], properties, in_cell(diagnostic) + with_notes(diagnostic))


def _annotated_problem(file: FileResult, problem: Problem) -> str:
    properties: dict[str, str | int] = {"file": posix(file.path), "title": f"perflint ({code_of(problem)})"}
    return _command("error", properties | ({"line": problem.line} if problem.line else {}), problem.message)


def _command(name: str, properties: dict[str, str | int], message: str) -> str:
    listed = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    return f"::{name} {listed}::{_data(message)}"


def _data(text: str) -> str:
    lines = (_escaped(line) for line in text.replace("\r\n", "\n").split("\n"))
    return "%0A".join(lines)


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return printable(text).replace("%", "%25")


def gitlab(result: RunResult, style: Style) -> str:
    """A code quality report: issues, no two with the same fingerprint, as GitLab would drop the second."""
    issues = []
    seen: Counter[str] = Counter()
    for entry in entries(result):
        identity = f"{posix(entry.path)}\0{entry.fingerprint}"
        seen[identity] += 1
        fingerprint = digest(f"{identity}\0{seen[identity]}".encode("utf-8", "surrogatepass"))
        issues.append(_issue(entry, fingerprint))
    return json.dumps(issues, indent=2) + "\n"


def _issue(diagnostic: Diagnostic, fingerprint: str) -> dict[str, Any]:
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


def junit(result: RunResult, style: Style) -> str:
    from xml.etree.ElementTree import indent, tostring  # here: the other formats do without

    failures, errors = len(result.diagnostics), len(result.problems)
    root = _element(None, "testsuites", name="perflint", tests=failures + errors or 1, failures=failures, errors=errors)
    for file in result.files:
        if file.problem or file.diagnostics:
            _suite(root, file)
    if not len(root):
        suite = _element(root, "testsuite", name="perflint", tests=1, failures=0, errors=0, skipped=0)
        _element(suite, "testcase", name="no findings", classname="perflint")
    indent(root)
    text: str = tostring(root, "us-ascii").decode()
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(root: Element, file: FileResult) -> None:
    failures, errors = len(file.diagnostics), int(file.problem is not None)
    counts = {"tests": failures + errors, "failures": failures, "errors": errors, "skipped": 0}
    suite = _element(root, "testsuite", name=posix(file.path), package="perflint", **counts)
    if file.problem:
        case = _case(suite, code_of(file.problem), file.path, file.problem.line or 1)
        _element(case, "error", type=code_of(file.problem), message=file.problem.message)
    for each in file.diagnostics:
        where = within(each.start)
        case = _case(suite, f"{each.rule} at {where}", each.path, each.start.line)
        failure = _element(case, "failure", type=each.rule, message=each.message)
        failure.text = _NOT_XML.sub("", f"{posix(each.path)}:{where}: {with_notes(each)}")


def _case(suite: Element, name: str, path: str, line: int) -> Element:
    return _element(suite, "testcase", name=name, classname=posix(path), file=posix(path), line=line)


def _element(parent: Element | None, tag: str, **attributes: object) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    given = {name: _NOT_XML.sub("", str(value)) for name, value in attributes.items()}
    return Element(tag, given) if parent is None else SubElement(parent, tag, given)
