"""What a report says of a finding besides its message: the fixes and their promises, or the obstacle."""

from __future__ import annotations

from collections.abc import Iterator

from perflint.engine.results import Diagnostic, PlacedFix
from perflint.engine.rule import Safety

_PROMISE = {
    Safety.EXACT: "exact: the same results",
    Safety.ROUNDING: "rounding: the same mathematics, floats in another order",
    Safety.PRECISION: "precision: other number formats; needs --unsafe",
    Safety.BEHAVIOUR: "behaviour: results may differ; needs --unsafe",
}


def notes(diagnostic: Diagnostic) -> Iterator[tuple[str, str]]:
    """Labels and texts: each fix, what blocks one, and what was measured of its cost and gain."""
    for number, fix in enumerate(diagnostic.fixes):
        yield ("or" if number else "fix"), _fix(fix)
    if diagnostic.blocked:
        yield "not fixed", diagnostic.blocked
    elif not diagnostic.fixes:
        yield "not fixed", "perflint has no fix for this one"
    if diagnostic.cost:
        yield "costs", str(diagnostic.cost)
    if diagnostic.measured:
        yield "measured", diagnostic.measured


def with_notes(diagnostic: Diagnostic) -> str:
    """The message and the notes as lines, for services that show a text beside the code."""
    return "\n".join([diagnostic.message, *(f"{label}: {text}" for label, text in notes(diagnostic))])


def _fix(fix: PlacedFix) -> str:
    needs = f"; adds a dependency, {fix.requires}: needs --unsafe" if fix.requires else ""
    needs = needs or ("; assumes what a run has shown: needs --unsafe" if fix.assumes else "")
    return f"{fix.title} ({_PROMISE[fix.safety]}{needs})"
