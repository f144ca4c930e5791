"""Renders the results of a run in the chosen format, whose module is imported on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint.engine.results import RunResult
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
    """How many findings each rule has: as objects where `name` is a json format, else as a table for humans."""
    from perflint.report.text import statistics

    return statistics(name, result, style)
