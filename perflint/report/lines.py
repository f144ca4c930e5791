"""The format json-lines: the objects of the format json, one per line."""

from __future__ import annotations

import json

from perflint.engine.results import RunResult
from perflint.report.objects import objects
from perflint.report.style import Style


def render(result: RunResult, style: Style) -> str:
    """One JSON object a line; nothing where there is nothing to report."""
    return "".join(json.dumps(item) + "\n" for item in objects(result))
