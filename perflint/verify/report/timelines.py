"""Draws a few steps before and after, on one scale of time: when the GPU, the host and the loader were at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from perflint.verify.measure.timeline import DEVICE, LANES, Timeline
from perflint.verify.report.svg import Axis, drawing, element
from perflint.verify.wording import count, percent, seconds

_LABEL, _LANE, _GAP = 16, 14, 6  # pixels
_HEIGHT = _LABEL + _LANE + _GAP


def chart(before: Timeline | None, after: Timeline | None) -> Sequence[tuple[str, Markup]]:
    """The timelines that there are, each with its title."""
    named = [(name, each) for name, each in (("Before", before), ("After", after)) if each]
    longest = max((each.seconds for _, each in named), default=0.0)
    axis = Axis(0.0, longest)
    return [(title, _drawing(title, each, axis)) for name, each in named if (title := _title(name, each))]


def _title(name: str, timeline: Timeline) -> str:
    slower = f", {100 * (timeline.slowdown - 1):.0f} % longer while observed" if timeline.slowdown >= 1.01 else ""
    return f"{name}: {count(len(timeline.steps), 'step')} in {seconds(timeline.seconds)}{slower}"


def _drawing(title: str, timeline: Timeline, axis: Axis) -> Markup:
    lanes = [lane for lane in LANES if lane in timeline.lanes]
    parts = [part for row, lane in enumerate(lanes) for part in _lane(lane, timeline, axis, row * _HEIGHT)]
    return drawing(title, len(lanes) * _HEIGHT, parts)


def _lane(lane: str, timeline: Timeline, axis: Axis, top: float) -> Iterator[Markup]:
    """What one resource did, below its name and the share of the time in which it was at work.

    A block stands for work with gaps too short to be seen, the paler the less of it they leave.
    """
    share = timeline.busy if lane == DEVICE else timeline.share(lane)
    yield element("text", f"{lane} {percent(share or 0.0)}", class_="lane", x=0, y=top + _LABEL - 4)
    y = top + _LABEL
    yield element("rect", class_="lane", x=0, width=axis.x(timeline.seconds), y=y, height=_LANE)
    look = f"lane{LANES.index(lane)}"
    for span in timeline.spans:
        if span.lane == lane:
            tip = element("title", f"{lane}, {seconds(span.end - span.begin)}")
            place = {"x": axis.x(span.begin), "width": axis.width(span.begin, span.end), "y": y, "height": _LANE}
            yield element("rect", tip, class_=look, fill_opacity=f"{span.share:.2f}", **place)
    for end in timeline.steps:
        yield element("line", class_="step", x1=axis.x(end), x2=axis.x(end), y1=y - 2, y2=y + _LANE + 2)
