"""The formats for humans: full with a code frame for each finding, concise with a line; statistics; the summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from perflint.engine.results import Diagnostic, FileResult, PlacedFix, RunResult
from perflint.engine.rule import Safety
from perflint.report.frame import LOOKS, code_frame
from perflint.report.places import is_fixable, place, problem_place
from perflint.report.style import Style, printable
from perflint.report.words import count

_PROMISE = {
    Safety.EXACT: "exact: the same results",
    Safety.ROUNDING: "rounding: the same mathematics, floats in another order",
    Safety.BEHAVIOUR: "behaviour: results may differ; needs --unsafe",
}


def concise(result: RunResult, style: Style) -> str:
    """`path:line:column: rule [*] message`, where `[*]` marks what `perflint fix --apply` would fix."""
    lines = []
    for file in result.by_cost:
        if file.problem:
            lines.append(
                f"{problem_place(file)}: {style.paint('bold red', 'error')}: {printable(file.problem.message)}"
            )
        for each in file.diagnostics:
            mark = f" {style.paint('green', '[*]')}" if is_fixable(each) else ""
            rule = style.paint(LOOKS[each.severity], each.rule)
            lines.append(f"{place(each.path, each.start)}: {rule}{mark} {printable(each.message)}")
    return "".join(f"{line}\n" for line in [*lines, summary(result, style)] if line)


def full(result: RunResult, style: Style) -> str:
    """Blocks of lines, one for each finding or problem, separated by blank lines; what was profiled by its cost."""
    blocks = [block for file in result.by_cost for block in _blocks(file, style)]
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
    if diagnostic.cost:
        yield "costs", printable(str(diagnostic.cost))
    if diagnostic.measured:
        yield "measured", printable(diagnostic.measured)
    yield "see", f"perflint explain {diagnostic.rule}"


def _fix(fix: PlacedFix) -> str:
    needs = f"; adds a dependency, {fix.requires}: needs --unsafe" if fix.requires else ""
    return f"{printable(fix.title)} ({_PROMISE[fix.safety]}{needs})"


def statistics(name: str, result: RunResult, style: Style) -> str:
    """The count of findings for each rule, most frequent first: a table, or objects where `name` is a json format."""
    counts = Counter(diagnostic.rule for diagnostic in result.diagnostics)
    fixable = Counter(diagnostic.rule for diagnostic in result.diagnostics if is_fixable(diagnostic))
    rows = [(rule, number, fixable[rule]) for rule, number in sorted(counts.items(), key=lambda row: (-row[1], row[0]))]
    objects = [{"code": rule, "count": number, "fixable": fixed} for rule, number, fixed in rows]
    if name == "json":
        return json.dumps(objects, indent=2) + "\n"
    if name == "json-lines":
        return "".join(json.dumps(each) + "\n" for each in objects)
    width = max((len(str(number)) for _, number, _ in rows), default=0)
    longest = max((len(rule) for rule, _, _ in rows), default=0)
    lines = []
    for rule, number, fixed in rows:
        mark = f"{style.paint('green', '[*]')} {fixed} fixable" if fixed else ""
        lines.append(f"{number:>{width}}  {style.paint('bold', rule)}{' ' * (longest - len(rule))}  {mark}".rstrip())
    return "".join(f"{part}\n" for part in ("\n".join(lines), summary(result, style)) if part)


def summary(result: RunResult, style: Style) -> str:
    """What was checked, found and could be fixed; what was skipped if `verbose`; nothing if `quiet`."""
    return "" if style.quiet else "\n".join(_summary(result, style))


def _summary(result: RunResult, style: Style) -> Iterator[str]:
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
