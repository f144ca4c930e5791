"""The format junit: a test suite for each file with findings, a failed test case for each of them."""

from __future__ import annotations

import re
from xml.sax.saxutils import quoteattr

from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.report.places import UNREADABLE, is_fixable, posix, within
from perflint.report.style import Style

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: RunResult, style: Style) -> str:
    """An XML document in ASCII."""
    files = [file for file in result.files if file.problem or file.diagnostics]
    suites = [_suite(file) for file in files] or [_clean_suite()]
    failures, errors = len(result.diagnostics), len(result.problems)
    tests = failures + errors or 1
    counts = f'tests="{tests}" failures="{failures}" errors="{errors}"'
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="perflint" {counts}>\n'
    return head + "".join(suites) + "</testsuites>\n"


def _suite(file: FileResult) -> str:
    cases = [_problem_case(file, file.problem.message, file.problem.line)] if file.problem else []
    errors = len(cases)
    cases += map(_case, file.diagnostics)
    counts = f'tests="{len(cases)}" failures="{len(file.diagnostics)}" errors="{errors}" skipped="0"'
    head = f'<testsuite name={_attribute(posix(file.path))} package="perflint" {counts}>'
    return f"  {head}\n{''.join(cases)}  </testsuite>\n"


def _clean_suite() -> str:
    case = '    <testcase name="no findings" classname="perflint"/>\n'
    return f'  <testsuite name="perflint" tests="1" failures="0" errors="0" skipped="0">\n{case}  </testsuite>\n'


def _case(diagnostic: Diagnostic) -> str:
    where = within(diagnostic.start)
    name = _attribute(f"{diagnostic.rule} at {where}")
    fix = "perflint fix can fix it" if is_fixable(diagnostic) else f"perflint explain {diagnostic.rule}"
    body = f"<failure type={_attribute(diagnostic.rule)} message={_attribute(diagnostic.message)}>"
    return _testcase(
        name,
        diagnostic.path,
        diagnostic.start.line,
        f"{body}{_text(f'{posix(diagnostic.path)}:{where}: {fix}')}</failure>",
    )


def _problem_case(file: FileResult, message: str, line: int | None) -> str:
    body = f'<error type="{UNREADABLE}" message={_attribute(message)}/>'
    return _testcase(f'"{UNREADABLE}"', file.path, line or 1, body)


def _testcase(name: str, path: str, line: int, body: str) -> str:
    attributes = f'name={name} classname={_attribute(posix(path))} file={_attribute(posix(path))} line="{line}"'
    return f"    <testcase {attributes}>{body}</testcase>\n"


def _attribute(text: str) -> str:
    return _ascii(quoteattr(_NOT_XML.sub("", text)))


def _text(text: str) -> str:
    return _ascii(_NOT_XML.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def _ascii(text: str) -> str:
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
