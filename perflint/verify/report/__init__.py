"""The HTML report on a verdict: one file that needs neither network nor scripts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from perflint.report.style import printable
from perflint.report.words import count
from perflint.verify import summary
from perflint.verify.grade import Outcome
from perflint.verify.report import charts
from perflint.verify.verdict import Verdict

_FOLDER = Path(__file__).parent
_LOOKS = {"+": "added", "-": "removed", "@": "place", "\\": "place"}  # of lines of a diff


def page(verdict: Verdict) -> str:
    """The report; users' text is escaped, and encodes in UTF-8."""
    return template(_FOLDER / "page.html").render(
        verdict=verdict,
        figures=list(summary.figures(verdict)),
        open=(Outcome.LEVEL, Outcome.UNSURE, Outcome.UNFIXED),
        style=style(),
        charts={
            "ratios": charts.ratios(verdict.samples),
            "timelines": charts.timelines(verdict.before.timeline, verdict.after.timeline),
            "losses": charts.losses(verdict),
        },
        rounds=charts.rounds(verdict.samples),
        gains=charts.gains(verdict.fixes),
        lines=_lines,
        words=summary,
        count=count,
    )


def style() -> Markup:
    """The style sheet of all pages: for light and dark screens, and for paper."""
    return Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))


@cache
def template(path: Path) -> Template:
    """The template in a file, which may use the macros here; what it is given is escaped."""
    environment = Environment(
        loader=FileSystemLoader([path.parent, _FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    return environment.get_template(path.name)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line of a hunk with its look."""
    for line in text.removesuffix("\n").split("\n"):
        yield _LOOKS.get(line[:1], "kept"), line.removesuffix("\r").expandtabs(8)
