"""The format github: workflow commands, which become annotations of the changed lines."""

from __future__ import annotations

from perflint.documents.places import Problem
from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.engine.rule import Severity
from perflint.report.places import code_of, in_cell, posix, with_notes
from perflint.report.style import Style, printable

_COMMAND = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "notice"}


def render(result: RunResult, style: Style) -> str:
    """One command a line."""
    commands = []
    for file in result.files:
        if file.problem:
            commands.append(_problem(file, file.problem))
        commands += map(_finding, file.diagnostics)
    return "".join(f"{command}\n" for command in commands)


def _finding(diagnostic: Diagnostic) -> str:
    properties: dict[str, str | int] = {"file": posix(diagnostic.path)}
    if diagnostic.start.cell is None:
        properties |= {"line": diagnostic.start.line, "endLine": diagnostic.end.line}
        if diagnostic.start.line == diagnostic.end.line:  # columns of other ranges are refused
            properties |= {"col": diagnostic.start.column, "endColumn": diagnostic.end.column}
    properties["title"] = f"perflint ({diagnostic.rule})"
    return _command(_COMMAND[diagnostic.severity], properties, in_cell(diagnostic) + with_notes(diagnostic))


def _problem(file: FileResult, problem: Problem) -> str:
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
