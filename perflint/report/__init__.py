"""Renders the results of a run in a format, whose module is imported on demand, and the pages of rules."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint.engine.results import RunResult
    from perflint.engine.rule import Rule
    from perflint.report.text import Style

_RENDERERS = {
    "full": ("text", "full"),
    "concise": ("text", "concise"),
    "json": ("machine", "as_list"),
    "json-lines": ("machine", "as_lines"),
    "sarif": ("machine", "as_sarif"),
    "github": ("machine", "github"),
    "gitlab": ("machine", "gitlab"),
    "junit": ("machine", "junit"),
}
FORMATS = tuple(_RENDERERS)
FOR_HUMANS = ("full", "concise")
COUNTED = (*FOR_HUMANS, "json", "json-lines")  # those that tell how many findings a rule has
WITH_EDITS = ("json", "json-lines", "sarif")  # those that tell what a fix changes


def render(name: str, result: RunResult, style: Style) -> str:
    """The report on `result` in the format `name`, one of FORMATS: empty, or text that ends with a line break.

    Machine formats ignore `style`. Whatever the user's files hold, the text can be encoded in UTF-8.
    """
    module, function = _RENDERERS[name]
    text: str = getattr(import_module(f"perflint.report.{module}"), function)(result, style)
    return text


def render_statistics(name: str, result: RunResult, style: Style) -> str:
    from perflint.report.text import statistics

    return statistics(name, result, style)


GROUPS = {
    "overhead": "the GPU waits for Python: many small launches where one would do",
    "sync": "the host waits for the GPU: a value is read back while work could be queued",
    "data": "the GPU waits for its input",
    "memory": "memory is written or moved that need not be",
    "compute": "the GPU computes more than the result needs",
    "measure": "a figure is reported that is not what it says",
}

_MORE = "What severities mean, and how to say no: `perflint docs checking`; what fixes promise: `perflint docs fixing`."


def page(rule: Rule) -> str:
    facts = f"Group `{rule.group}`, severity `{rule.severity}`, {'on' if is_default(rule) else 'off'} by default."
    parts = [f"# {rule.name}", facts, rule.page.strip()]
    if rule.options:
        options = "\n".join(
            f"- `{name}` (default `{json.dumps(option.default)}`): {option.help}"
            for name, option in rule.options.items()
        )
        parts.append(f"## Options\n\nUnder `[tool.perflint.rules.{rule.name}]`:\n\n{options}")
    return "\n\n".join(parts) + "\n"


def overview(rules: Iterable[Rule]) -> str:
    rules = list(rules)
    parts = ["# The rules", "`perflint explain RULE` shows one of them in full."]
    order = [*GROUPS, *sorted({rule.group for rule in rules} - {*GROUPS})]
    for group in filter({rule.group for rule in rules}.__contains__, order):
        lines = [f"- `{rule.name}`: {summary(rule)}" for rule in rules if rule.group == group]
        parts.append("\n".join([f"## {group}" + (f": {GROUPS[group]}" if group in GROUPS else ""), "", *lines]))
    return "\n\n".join([*parts, _MORE]) + "\n"


def summary(rule: Rule) -> str:
    return rule.page.strip().partition("\n")[0]


def is_default(rule: Rule) -> bool:
    from perflint.engine.rule import Severity  # here: a command line without it starts sooner

    return rule.severity is not Severity.ADVICE


def as_markdown(rules: Iterable[Rule]) -> str:
    rows = [(f"`{rule.name}`", rule.group, str(rule.severity), summary(rule).replace("|", "\\|")) for rule in rules]
    lines = [("Rule", "Group", "Severity", "What it finds"), ("---",) * 4, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_json(rules: Iterable[Rule]) -> str:
    entries = [
        {
            "name": rule.name,
            "group": rule.group,
            "severity": str(rule.severity),
            "default": is_default(rule),
            "summary": summary(rule),
            "options": {
                name: {"default": option.default, "help": option.help} for name, option in rule.options.items()
            },
        }
        for rule in rules
    ]
    return json.dumps(entries, indent=2) + "\n"


def as_text(rules: Iterable[Rule], width: int) -> str:
    import textwrap

    rows = [(rule.name, rule.group, str(rule.severity), summary(rule)) for rule in rules]
    rows.insert(0, ("RULE", "GROUP", "SEVERITY", "WHAT IT FINDS"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    indent = sum(widths) + 6
    lines = []
    for *cells, text in rows:
        head = "".join(f"{cell:<{size}}  " for cell, size in zip(cells, widths, strict=True))
        lines += textwrap.wrap(text, max(width, indent + 30), initial_indent=head, subsequent_indent=" " * indent)
    return "\n".join(lines) + "\n"
