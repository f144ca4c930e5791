"""The format full: a code frame for each finding, its reason, its fix, and a summary."""

from __future__ import annotations

from collections.abc import Iterator

from perflint.engine.results import Diagnostic, FileResult, PlacedFix, RunResult
from perflint.engine.rule import Safety
from perflint.report.frame import LOOKS, code_frame
from perflint.report.places import place, problem_place
from perflint.report.style import Style, printable
from perflint.report.summary import summary

_PROMISE = {
    Safety.EXACT: "exact: the same results",
    Safety.ROUNDING: "rounding: the same mathematics, floats in another order",
    Safety.BEHAVIOUR: "behaviour: results may differ; needs --unsafe",
}


def render(result: RunResult, style: Style) -> str:
    """Blocks of lines, one for each finding or problem, with a blank line between them."""
    blocks = [block for file in result.files for block in _blocks(file, style)]
    return "\n".join(f"{block}\n" for block in [*blocks, summary(result, style)] if block)


def _blocks(file: FileResult, style: Style) -> Iterator[str]:
    if file.problem:
        head = f"{style.paint('bold red', 'error')}{style.paint('bold', f': {printable(file.problem.message)}')}"
        yield f"{head}\n {style.paint('bold blue', '-->')} {problem_place(file)}"
    for diagnostic in file.diagnostics:
        yield "\n".join(_lines(diagnostic, style))


def _lines(diagnostic: Diagnostic, style: Style) -> Iterator[str]:
    label = f"{diagnostic.severity}[{diagnostic.rule}]"
    message = style.paint("bold", f": {printable(diagnostic.message)}")
    yield f"{style.paint(LOOKS[diagnostic.severity], label)}{message}"
    frame = code_frame(diagnostic, style)
    indent = " " * len(str(diagnostic.frame_line + max(len(diagnostic.frame) - 1, 0)))
    yield f"{indent}{style.paint('bold blue', '-->')} {place(diagnostic.path, diagnostic.start)}"
    yield from frame
    for label, text in _notes(diagnostic):
        yield f"{indent} {style.paint('bold blue', '=')} {style.paint('bold', label)}: {text}"


def _notes(diagnostic: Diagnostic) -> Iterator[tuple[str, str]]:
    for number, fix in enumerate(diagnostic.fixes):
        yield ("or" if number else "fix"), _fix(fix)
    if diagnostic.blocked:
        yield "not fixed", printable(diagnostic.blocked)
    elif not diagnostic.fixes:
        yield "not fixed", "perflint has no fix for this one"
    if diagnostic.measured:
        yield "measured", printable(diagnostic.measured)
    yield "see", f"perflint explain {diagnostic.rule}"


def _fix(fix: PlacedFix) -> str:
    needs = f"; adds a dependency, {fix.requires}: needs --unsafe" if fix.requires else ""
    return f"{printable(fix.title)} ({_PROMISE[fix.safety]}{needs})"
