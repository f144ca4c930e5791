"""Draws the paired ratios of a race, round by round, with their intervals and what noise alone makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from markupsafe import Markup

from perflint.verify.measure.samples import AGAIN, ORIGINAL, ORIGINALS, PATCHED, Samples
from perflint.verify.measure.statistics import Estimate, against_original, itself, noise_floor, pair_ratios, threshold
from perflint.verify.report.svg import Axis, drawing, element
from perflint.verify.wording import ratio, ratio_with_interval

_ROW = 26  # pixels
_APART = 5  # what the patch's dots lie below those of the original
_TOP = 6


def chart(samples: Samples) -> Markup | None:
    """Each pair a dot, each round a row, and the intervals in the last one; None where there is no pair."""
    patch, aa = against_original(samples, PATCHED), itself(samples)
    if patch is None or aa is None:
        return None
    dots = {
        "noise": pair_ratios(samples, [ORIGINAL], [AGAIN]),
        "after": pair_ratios(samples, ORIGINALS, [PATCHED]),
    }
    least = threshold(noise_floor(aa))
    shown = [each for rows in dots.values() for ratios in rows.values() for each in ratios]
    axis = Axis.around([*shown, 1.0, least, aa.low, aa.high, patch.low, patch.high], log=True)
    rows = sorted({round_ for each in dots.values() for round_ in each})
    bottom = _TOP + _ROW * (len(rows) + 1)
    title = f"Paired ratios: patched {ratio_with_interval(patch)}, original against itself {ratio_with_interval(aa)}"
    parts = [
        element("rect", class_="band", x=axis.x(aa.low), width=axis.width(aa.low, aa.high), y=0, height=bottom),
        *_grid(axis, bottom),
        _upright(axis, 1.0, bottom, "one"),
        _upright(axis, least, bottom, "threshold"),
        element("line", class_="tick", x1=0, x2="100%", y1=bottom - _ROW, y2=bottom - _ROW),
        *_dots(axis, dots, {round_: _TOP + _ROW * (row + 0.5) for row, round_ in enumerate(rows)}),
        *_interval(axis, aa, bottom - _ROW / 2 - _APART, "noise"),
        *_interval(axis, patch, bottom - _ROW / 2 + _APART, "after"),
    ]
    return drawing(title, bottom + 20, parts)


def rounds(samples: Samples) -> Sequence[tuple[int, int, str, str]]:
    """The same as numbers: of each round its number from 1, its pairs, and the median ratios of patch and original."""
    aa, patch = pair_ratios(samples, [ORIGINAL], [AGAIN]), pair_ratios(samples, ORIGINALS, [PATCHED])
    both = sorted(aa.keys() & patch.keys())
    return [(each + 1, len(patch[each]), ratio(median(patch[each])), ratio(median(aa[each]))) for each in both]


def _grid(axis: Axis, bottom: float) -> Iterator[Markup]:
    """Lines at the ticks of the axis, which lies at `bottom`, and their numbers."""
    for tick in axis.ticks():
        yield _upright(axis, tick, bottom, "tick")
        yield element("text", f"{tick:.6g}x", class_="tick", x=axis.x(tick), y=bottom + 15)


def _upright(axis: Axis, value: float, bottom: float, look: str) -> Markup:
    return element("line", class_=look, x1=axis.x(value), x2=axis.x(value), y1=0, y2=bottom)


def _dots(axis: Axis, dots: Mapping[str, Mapping[int, list[float]]], heights: Mapping[int, float]) -> Iterator[Markup]:
    for look, rows in dots.items():
        for round_, ratios in rows.items():
            y = heights[round_] + (_APART if look == "after" else -_APART)
            for each in ratios:
                yield element("circle", class_=f"dot {look}", cx=axis.x(each), cy=y, r=3.5)


def _interval(axis: Axis, estimate: Estimate, y: float, look: str) -> Iterator[Markup]:
    yield element("line", class_=f"interval {look}", x1=axis.x(estimate.low), x2=axis.x(estimate.high), y1=y, y2=y)
    yield element("circle", class_=f"middle {look}", cx=axis.x(estimate.ratio), cy=y, r=5)
