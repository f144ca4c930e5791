"""The formats of services that run checks: github, gitlab and junit."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from perflint.documents.places import Problem
from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.engine.rule import Severity
from perflint.report.places import INTERNAL, UNREADABLE, code_of, entries, in_cell, posix, with_notes, within
from perflint.report.style import Style, printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

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
        issues.append(_issue(entry, _digest(f"{identity}\0{seen[identity]}")))
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


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def junit(result: RunResult, style: Style) -> str:
    """An XML document in ASCII: a test suite for each file with findings, a failed test case for each of them."""
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
