"""The format junit: a test suite for each file with findings, a failed test case for each of them."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from perflint.engine.results import FileResult, RunResult
from perflint.report.places import code_of, posix, with_notes, within
from perflint.report.style import Style

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: RunResult, style: Style) -> str:
    """An XML document in ASCII."""
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
    given = {name: _NOT_XML.sub("", str(value)) for name, value in attributes.items()}
    return Element(tag, given) if parent is None else SubElement(parent, tag, given)
