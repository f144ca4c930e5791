"""The format concise: one line for each finding, and a summary."""

from __future__ import annotations

from collections.abc import Iterator

from perflint.engine.results import Diagnostic, FileResult, RunResult
from perflint.report.frame import LOOKS
from perflint.report.places import is_fixable, place, problem_place
from perflint.report.style import Style, printable
from perflint.report.summary import summary


def render(result: RunResult, style: Style) -> str:
    """`path:line:column: rule [*] message`, where `[*]` marks what `perflint fix --apply` would fix."""
    lines = [line for file in result.files for line in _lines(file, style)]
    return "".join(f"{line}\n" for line in [*lines, summary(result, style)] if line)


def _lines(file: FileResult, style: Style) -> Iterator[str]:
    if file.problem:
        yield f"{problem_place(file)}: {style.paint('bold red', 'error')}: {printable(file.problem.message)}"
    for diagnostic in file.diagnostics:
        yield _line(diagnostic, style)


def _line(diagnostic: Diagnostic, style: Style) -> str:
    mark = f" {style.paint('green', '[*]')}" if is_fixable(diagnostic) else ""
    rule = style.paint(LOOKS[diagnostic.severity], diagnostic.rule)
    return f"{place(diagnostic.path, diagnostic.start)}: {rule}{mark} {printable(diagnostic.message)}"
