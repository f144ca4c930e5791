"""The summary of a report for humans."""

from __future__ import annotations

from collections.abc import Iterator

from perflint.engine.results import RunResult
from perflint.report.places import count, is_fixable
from perflint.report.style import Style, printable


def summary(result: RunResult, style: Style) -> str:
    """What was checked, found and could be fixed, in how long; what was skipped where `verbose`; nothing if `quiet`."""
    return "" if style.quiet else "\n".join(_lines(result, style))


def _lines(result: RunResult, style: Style) -> Iterator[str]:
    if style.verbose:
        for file in result.files:
            if file.skipped:
                yield style.paint("dim", f"{printable(file.path)}: {printable(file.skipped)}")
    yield _found(result, style)
    if result.diagnostics:
        yield _fixable(result)
    if result.problems:
        problems = f"{count(len(result.problems), 'file')} could not be checked, in whole or in part."
        yield style.paint("bold red", problems)
    yield from map(printable, style.notes)


def _found(result: RunResult, style: Style) -> str:
    checked = sum(not file.skipped and (not file.problem or bool(file.diagnostics)) for file in result.files)
    if not checked:
        return style.paint("bold", "No file was checked.")
    where = f"{count(checked, 'file')} in {result.seconds:.2f} s"
    if not result.diagnostics:
        return style.paint("bold green", f"No findings in {where}.")
    hit = sum(1 for file in result.files if file.diagnostics)
    return style.paint("bold", f"{count(len(result.diagnostics), 'finding')} in {hit} of {where}.")


def _fixable(result: RunResult) -> str:
    safe = sum(is_fixable(diagnostic) for diagnostic in result.diagnostics)
    unsafe = sum(bool(diagnostic.fixes) for diagnostic in result.diagnostics) - safe
    if not safe and not unsafe:
        return "None of them can be fixed automatically."
    more = f"{unsafe} more with `--unsafe`" if safe else f"{unsafe} can be fixed with `perflint fix --apply --unsafe`"
    parts = [f"{safe} can be fixed with `perflint fix --apply`"] if safe else []
    return ", ".join([*parts, *([more] if unsafe else [])]) + "."
