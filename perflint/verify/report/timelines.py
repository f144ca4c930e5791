"""Draws a few steps before and after, on one scale of time: when the GPU, the host and the loader were at work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from markupsafe import Markup

from perflint.verify.report.svg import Axis, drawing, element
from perflint.verify.verdict import LANES, Span, Timeline
from perflint.verify.wording import percent, seconds

_LABEL, _LANE, _GAP = 16, 14, 6  # pixels
_FINEST = 0.05  # percent of the width: gaps that are smaller aren't drawn


def chart(before: Timeline | None, after: Timeline | None) -> Sequence[tuple[str, Markup]]:
    """The timelines that there are, each with its title."""
    named = [(name, each) for name, each in (("Before", before), ("After", after)) if each]
    longest = max((each.seconds for _, each in named), default=0.0)
    if not longest:
        return ()
    axis = Axis(0.0, longest)
    return [(_title(name, each), _drawing(_title(name, each), each, axis)) for name, each in named]


def _title(name: str, timeline: Timeline) -> str:
    steps = f"{len(timeline.steps)} steps in " if timeline.steps else ""
    return f"{name}: {steps}{seconds(timeline.seconds)}"


def _drawing(title: str, timeline: Timeline, axis: Axis) -> Markup:
    height = _LABEL + _LANE + _GAP
    lanes = [_lane(lane, timeline, axis, row * height) for row, lane in enumerate(LANES)]
    return drawing(title, len(LANES) * height, [part for lane in lanes for part in lane])


def _lane(lane: str, timeline: Timeline, axis: Axis, top: float) -> Iterator[Markup]:
    """What one resource did, below its name and the share of the time in which it was at work."""
    work = _united(span for span in timeline.spans if span.lane == lane)
    share = sum(span.end - span.begin for span in work) / timeline.seconds
    yield element("text", f"{lane} {percent(share)}", class_="lane", x=0, y=top + _LABEL - 4)
    y = top + _LABEL
    yield element("rect", class_="lane", x=0, width=axis.x(timeline.seconds), y=y, height=_LANE)
    for group in _groups(work, axis):
        yield _block(lane, group, axis, y)
    for end in timeline.steps:
        yield element("line", class_="step", x1=axis.x(end), x2=axis.x(end), y1=y - 2, y2=y + _LANE + 2)


def _block(lane: str, group: Sequence[Span], axis: Axis, y: float) -> Markup:
    """A block for spans that can't be seen apart, the paler the less of it they take."""
    begin, end = group[0].begin, group[-1].end
    share = sum(span.end - span.begin for span in group) / (end - begin)
    tip = element("title", f"{group[0].name if len(group) == 1 else lane}, {seconds(end - begin)}")
    look = f"lane{LANES.index(lane)}"
    place = {"x": axis.x(begin), "width": axis.width(begin, end), "y": y, "height": _LANE}
    return element("rect", tip, class_=look, fill_opacity=f"{share:.2f}", **place)


def _united(spans: Iterable[Span]) -> Sequence[Span]:
    """The spans in the order of time, those that overlap or touch as one, and none that takes no time."""
    united: list[Span] = []
    for span in sorted(spans, key=lambda span: span.begin):
        if united and span.begin <= united[-1].end:
            united[-1] = replace(united[-1], end=max(united[-1].end, span.end))
        elif span.end > span.begin:
            united.append(span)
    return united


def _groups(spans: Sequence[Span], axis: Axis) -> Iterator[Sequence[Span]]:
    group: list[Span] = []
    for span in spans:
        if group and axis.place(span.begin) - axis.place(group[-1].end) > _FINEST:
            yield group
            group = []
        group.append(span)
    if group:
        yield group
