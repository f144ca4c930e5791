"""The count of findings for each rule, and how many of them `perflint fix --apply` would fix."""

from __future__ import annotations

import json
from collections import Counter

from perflint.engine.results import RunResult
from perflint.report.places import is_fixable
from perflint.report.style import Style
from perflint.report.summary import summary


def render(name: str, result: RunResult, style: Style) -> str:
    """A table with the most frequent rule first; objects where the format `name` is a json one."""
    counts = Counter(diagnostic.rule for diagnostic in result.diagnostics)
    fixable = Counter(diagnostic.rule for diagnostic in result.diagnostics if is_fixable(diagnostic))
    rows = [
        (rule, number, fixable[rule]) for rule, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    if name in ("json", "json-lines"):
        objects = [{"code": rule, "count": number, "fixable": fixed} for rule, number, fixed in rows]
        return (
            json.dumps(objects, indent=2) + "\n" if name == "json" else "".join(json.dumps(o) + "\n" for o in objects)
        )
    table = _table(rows, style)
    return "".join(f"{part}\n" for part in (table, summary(result, style)) if part)


def _table(rows: list[tuple[str, int, int]], style: Style) -> str:
    width = max((len(str(number)) for _, number, _ in rows), default=0)
    longest = max((len(rule) for rule, _, _ in rows), default=0)
    lines = [
        f"{number:>{width}}  {style.paint('bold', rule)}{' ' * (longest - len(rule))}  {_mark(fixed, style)}".rstrip()
        for rule, number, fixed in rows
    ]
    return "\n".join(lines)


def _mark(fixed: int, style: Style) -> str:
    return f"{style.paint('green', '[*]')} {fixed} fixable" if fixed else ""
