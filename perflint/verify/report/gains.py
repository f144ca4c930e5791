"""Draws what each fix gains, alone and on top of the others, all on one scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup

from perflint.verify.measure.statistics import Estimate
from perflint.verify.report.svg import Axis, drawing, element
from perflint.verify.verdict import FixVerdict
from perflint.verify.wording import ratio_with_interval

_BAR = 9  # pixels
_GAP = 4


def scaled(fixes: Sequence[FixVerdict]) -> Callable[[FixVerdict], Markup | str]:
    """A function that draws the bars of one of the fixes, by the scale of all of them."""
    estimates = [estimate for fix in fixes for estimate in (fix.alone, fix.on_top) if estimate]
    ends = [end for each in estimates for end in (each.ratio, each.low, each.high)]
    axis = Axis.around([1.0, *ends], log=True)
    return lambda fix: _bars(fix, axis)


def _bars(fix: FixVerdict, axis: Axis) -> Markup | str:
    measured = [(look, estimate) for look, estimate in (("alone", fix.alone), ("on-top", fix.on_top)) if estimate]
    if not measured:
        return ""
    height = len(measured) * (_BAR + _GAP) + _GAP
    parts = [part for row, each in enumerate(measured) for part in _bar(axis, *each, _GAP + row * (_BAR + _GAP))]
    one = element("line", class_="one", x1=axis.x(1), x2=axis.x(1), y1=0, y2=height)
    words = {"alone": "alone", "on-top": "on top of the others"}
    title = ", ".join(f"{ratio_with_interval(estimate)} {words[look]}" for look, estimate in measured)
    return drawing(title, height, [*parts, one])


def _bar(axis: Axis, look: str, estimate: Estimate, top: float) -> Iterator[Markup]:
    begin, end = sorted((1.0, estimate.ratio))
    kind = "loss" if estimate.ratio < 1 else "gain"
    yield element(
        "rect", class_=f"bar {look} {kind}", x=axis.x(begin), width=axis.width(begin, end), y=top, height=_BAR
    )
    y = top + _BAR / 2
    yield element("line", class_="whisker", x1=axis.x(estimate.low), x2=axis.x(estimate.high), y1=y, y2=y)
