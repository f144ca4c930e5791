"""The HTML report on a verdict: one file, which needs neither a network nor scripts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from perflint.report.style import printable
from perflint.verify import wording
from perflint.verify.figures import figures
from perflint.verify.outcome import Outcome
from perflint.verify.report import diffs, gains, losses, ratios, timelines
from perflint.verify.verdict import Verdict

_FOLDER = Path(__file__).parent


def page(verdict: Verdict) -> str:
    """The report. Whatever users' text the verdict holds, it is shown as text, and can be encoded in UTF-8."""
    return _template().render(
        verdict=verdict,
        figures=list(figures(verdict)),
        open=(Outcome.LEVEL, Outcome.UNSURE, Outcome.UNFIXED),
        style=Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
        charts={
            "ratios": ratios.chart(verdict.samples),
            "timelines": timelines.chart(verdict.before.timeline, verdict.after.timeline),
            "losses": losses.chart(verdict),
        },
        rounds=ratios.rounds(verdict.samples),
        gains=gains.scaled(verdict.fixes),
        lines=diffs.lines,
        words=wording,
    )


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    return environment.from_string((_FOLDER / "page.html").read_text(encoding="utf-8"))


def _shown(value: object) -> object:
    """Text with what can't be seen escaped; drawings as they are."""
    return printable(value) if type(value) is str else value
