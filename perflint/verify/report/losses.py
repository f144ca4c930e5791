"""Draws the losses of the original and of the patched program over each other, and below how they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from perflint.verify.report.svg import Axis, drawing, element
from perflint.verify.verdict import Verdict
from perflint.verify.wording import count

_HEIGHT, _FIRST_LINE = 160, 10  # pixels


def chart(verdict: Verdict) -> Sequence[tuple[str, str, Markup]]:
    """The drawings, each with its title and a note; none where no losses were recorded."""
    before, after = verdict.before.losses, verdict.after.losses
    again = verdict.again.losses if verdict.again else ()
    if not before or not after:
        return ()
    differences = {"noise": _differences(before, again), "after": _differences(before, after)}
    has_any = any(value for values in differences.values() for value in values)
    return [
        ("Losses", _note(before, after), _plot("Losses", {"before": before, "after": after})),
        (
            "Difference from the original",
            " ".join(_said(differences)) if has_any else "There is none at any step.",
            _plot("Differences of losses", differences) if has_any else Markup(""),
        ),
    ]


def _differences(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    """The difference at each step, of which NaN and NaN have none; NaN where it is no number."""
    return tuple(0.0 if _is_same(*pair) else pair[1] - pair[0] for pair in zip(first, second, strict=False))


def _is_same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _note(before: Sequence[float], after: Sequence[float]) -> str:
    odd = sum(not math.isfinite(loss) for loss in (*before, *after))
    notes = [f"{odd} of {len(before) + len(after)} losses are not finite, and not drawn."] if odd else []
    lengths = [] if len(before) == len(after) else [f"There are {len(before)} losses before, {len(after)} after."]
    return " ".join([*notes, *lengths])


def _said(differences: Mapping[str, Sequence[float]]) -> Iterator[str]:
    for look, name in (("after", "Patched"), ("noise", "Original again")):
        values = differences[look]
        finite = [abs(value) for value in values if math.isfinite(value)]
        apart = f", and no number at {count(len(values) - len(finite), 'step')}" if len(finite) < len(values) else ""
        if values:
            yield f"{name}: at most {max(finite, default=0.0):.2g}{apart}."


def _plot(title: str, traces: Mapping[str, Sequence[float]]) -> Markup:
    axis = Axis.around([value for values in traces.values() for value in values])
    steps = Axis(0.0, max(max(map(len, traces.values())) - 1, 1))
    parts = [*_grid(axis), *(part for look, values in traces.items() for part in _trace(look, values, steps, axis))]
    inner = element("svg", *parts, class_="plot", viewBox="0 0 100 100", preserveAspectRatio="none", height=_HEIGHT)
    return drawing(title, _HEIGHT + 18, [inner, *_labels(axis, steps)])


def _grid(axis: Axis) -> Iterator[Markup]:
    for tick in axis.ticks(4):
        y = 100 - axis.place(tick)
        yield element("line", class_="tick", x1=0, x2=100, y1=f"{y:.2f}", y2=f"{y:.2f}")


def _labels(axis: Axis, steps: Axis) -> Iterator[Markup]:
    for tick in axis.ticks(4):
        y = _HEIGHT * (1 - axis.place(tick) / 100)
        yield element("text", f"{tick:.6g}", class_="value", x=0, y=f"{max(y - 3, _FIRST_LINE):.1f}")
    for tick in steps.ticks():
        if tick == int(tick):
            look = "tick" if tick else "tick first"
            yield element("text", f"step {tick + 1:.0f}", class_=look, x=steps.x(tick), y=_HEIGHT + 14)


def _trace(look: str, values: Sequence[float], steps: Axis, axis: Axis) -> Iterator[Markup]:
    """The trace, in as many pieces as values that aren't finite leave of it."""
    piece: list[str] = []
    for step, value in enumerate((*values, math.nan)):
        if math.isfinite(value):
            piece.append(f"{steps.place(step):.2f},{100 - axis.place(value):.2f}")
        elif piece:
            lone = "" if len(piece) > 1 else " lone"
            yield element("polyline", class_=f"trace {look}{lone}", points=" ".join([*piece, piece[-1]]))
            piece = []
