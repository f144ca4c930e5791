"""The HTML page of a profile: one file that needs neither network nor scripts."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from markupsafe import Markup

from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.engine.results import figure
from perflint.profile.kinds import Regime
from perflint.profile.report import charts
from perflint.profile.result import LineCost
from perflint.profile.summary import Report, finding_place, place
from perflint.report.words import count
from perflint.verify import report

_FOLDER = Path(__file__).parent
_LINES = 40  # that are shown
_LEAST = 0.002  # of a step is worth a line


def page(profiled: Report) -> str:
    """The page; users' text is escaped, and encodes in UTF-8."""
    profile = profiled.profile
    lines = [each for each in profile.lines if each.own_ms >= _LEAST * profile.step_ms or each.launches >= 1][:_LINES]
    return report.template(_FOLDER / "page.html").render(
        report=profiled,
        profile=profile,
        lines=lines,
        regimes=[regime.value for regime in Regime],
        style=report.style() + Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
        charts=charts,
        bars=charts.bars(lines),
        roofline=charts.roofline(profile.roofline),
        source=_source,
        figure=figure,
        place=place,
        finding_place=finding_place,
        count=count,
        basename=os.path.basename,
    )


def _source(line: LineCost) -> str:
    """The text of a line, as it is now."""
    texts = _texts(line.path)
    return texts[line.line - 1].strip() if 0 < line.line <= len(texts) else ""


@cache
def _texts(path: str) -> list[str]:
    try:
        return read(Path(path)).text.splitlines()
    except Unreadable:
        return []
