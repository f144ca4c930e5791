"""The HTML report on a verification, with charts: one file that needs neither network nor scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from perflint.engine import count
from perflint.report.text import printable
from perflint.verify import statistics, summary
from perflint.verify.agent.timeline import DEVICE, LANES, Timeline
from perflint.verify.statistics import AGAIN, ORIGINAL, ORIGINALS, PATCHED, Estimate, Outcome
from perflint.verify.summary import percent, ratio, ratio_with_interval, seconds
from perflint.verify.verdict import FixVerdict, Verdict

_BAR, _GAP = 9, 4  # pixels, here and below
_PLOT, _FIRST_LINE = 160, 10
_ROW, _TOP = 26, 6
_APART = 5  # the patch's dots lie so far below those of the original
_LABEL, _LANE = 16, 14
_LANE_AND_GAP = _LABEL + _LANE + 6
_GAINS = {"alone": "alone", "on-top": "on top of the others"}
_STEPS = (1, 2, 5)
_MARGIN = 0.04


def _gains(fixes: Sequence[FixVerdict]) -> Callable[[FixVerdict], Markup | str]:
    estimates = [estimate for fix in fixes for estimate in (fix.alone, fix.on_top) if estimate]
    axis = Axis.around([1.0, *(end for each in estimates for end in (each.ratio, each.low, each.high))], log=True)

    def draw(fix: FixVerdict) -> Markup | str:
        bars = [(look, each) for look, each in zip(_GAINS, (fix.alone, fix.on_top), strict=True) if each]
        if not bars:
            return ""
        height = len(bars) * (_BAR + _GAP) + _GAP
        parts = [part for row, bar in enumerate(bars) for part in _gain(axis, *bar, _GAP + row * (_BAR + _GAP))]
        title = ", ".join(f"{ratio_with_interval(each)} {_GAINS[look]}" for look, each in bars)
        return drawing(title, height, [*parts, axis.vertical(1, 0, height, "one")])

    return draw


def _gain(axis: Axis, look: str, gain: Estimate, top: float) -> Iterator[Markup]:
    kind = "loss" if gain.ratio < 1 else "gain"
    yield axis.bar(min(1.0, gain.ratio), max(1.0, gain.ratio), top, _BAR, f"bar {look} {kind}")
    yield axis.horizontal(gain.low, gain.high, top + _BAR / 2, "whisker")


def _losses(verdict: Verdict) -> Sequence[tuple[str, str, Markup]]:
    before, after = verdict.before.losses, verdict.after.losses
    again = verdict.again.losses if verdict.again else ()
    if not before or not after:
        return ()
    differences = {"noise": _differences(before, again), "after": _differences(before, after)}
    if not any(value for values in differences.values() for value in values):
        difference = ("There is none at any step.", Markup(""))
    else:
        difference = (" ".join(_largest(differences)), _plot("Differences of losses", differences))
    return [
        ("Losses", _note(before, after), _plot("Losses", {"before": before, "after": after})),
        ("Difference from the original", *difference),
    ]


def _differences(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    return tuple(
        0.0 if old == new or (math.isnan(old) and math.isnan(new)) else new - old
        for old, new in zip(first, second, strict=False)
    )


def _note(before: Sequence[float], after: Sequence[float]) -> str:
    odd = sum(not math.isfinite(loss) for loss in (*before, *after))
    notes = [f"{odd} of {len(before) + len(after)} losses are not finite, and not drawn."] if odd else []
    lengths = [] if len(before) == len(after) else [f"There are {len(before)} losses before, {len(after)} after."]
    return " ".join([*notes, *lengths])


def _largest(differences: Mapping[str, Sequence[float]]) -> Iterator[str]:
    for look, name in (("after", "Patched"), ("noise", "Original again")):
        values = differences[look]
        finite = [abs(value) for value in values if math.isfinite(value)]
        odd = f", and not finite at {count(len(values) - len(finite), 'step')}" if len(finite) < len(values) else ""
        if values:
            yield f"{name}: at most {max(finite, default=0.0):.2g}{odd}."


def _plot(title: str, traces: Mapping[str, Sequence[float]]) -> Markup:
    axis = Axis.around([value for values in traces.values() for value in values])
    steps = Axis(0.0, max(max(map(len, traces.values())) - 1, 1))
    heights = {tick: 100 - axis.place(tick) for tick in axis.ticks(4)}
    grid = [element("line", class_="tick", x1=0, x2=100, y1=f"{y:.2f}", y2=f"{y:.2f}") for y in heights.values()]
    lines = [part for look, values in traces.items() for part in _trace(look, values, steps, axis)]
    box = {"viewBox": "0 0 100 100", "preserveAspectRatio": "none", "height": _PLOT}
    parts = [element("svg", *grid, *lines, class_="plot", **box)]
    for tick, y in heights.items():
        parts.append(
            element("text", f"{tick:.6g}", class_="value", x=0, y=f"{max(_PLOT * y / 100 - 3, _FIRST_LINE):.1f}")
        )
    for tick in filter(float.is_integer, map(float, steps.ticks())):
        look = "tick" if tick else "tick first"
        parts.append(element("text", f"step {tick + 1:.0f}", class_=look, x=steps.x(tick), y=_PLOT + 14))
    return drawing(title, _PLOT + 18, parts)


def _trace(look: str, values: Sequence[float], steps: Axis, axis: Axis) -> Iterator[Markup]:
    points: list[str] = []
    for step, value in enumerate((*values, math.nan)):
        if math.isfinite(value):
            points.append(f"{steps.place(step):.2f},{100 - axis.place(value):.2f}")
        elif points:
            lone = "" if len(points) > 1 else " lone"
            yield element("polyline", class_=f"trace {look}{lone}", points=" ".join([*points, points[-1]]))
            points = []


_Pairs = Mapping[int, Sequence[float]]


def _ratios(verdict: Verdict, dots: Mapping[str, _Pairs]) -> Markup | None:
    patch, aa = verdict.speed, verdict.aa
    if patch is None or aa is None:
        return None
    least = statistics.threshold(verdict.floor)
    shown = [each for rows in dots.values() for ratios in rows.values() for each in ratios]
    axis = Axis.around([*shown, 1.0, least, aa.low, aa.high, patch.low, patch.high], log=True)
    rows = sorted({round_ for each in dots.values() for round_ in each})
    bottom = _TOP + _ROW * (len(rows) + 1)
    parts = [axis.bar(aa.low, aa.high, 0, bottom, "band")]
    for tick in axis.ticks():
        parts.append(axis.vertical(tick, 0, bottom, "tick"))
        parts.append(element("text", f"{tick:.6g}x", class_="tick", x=axis.x(tick), y=bottom + 15))
    parts += [axis.vertical(1.0, 0, bottom, "one"), axis.vertical(least, 0, bottom, "threshold")]
    parts.append(element("line", class_="tick", x1=0, x2="100%", y1=bottom - _ROW, y2=bottom - _ROW))
    for look, estimate, shift in (("noise", aa, -_APART), ("after", patch, _APART)):
        for row, round_ in enumerate(rows):
            y = _TOP + _ROW * (row + 0.5) + shift
            for each in dots[look].get(round_, ()):
                parts.append(element("circle", class_=f"dot {look}", cx=axis.x(each), cy=y, r=3.5))
        y = bottom - _ROW / 2 + shift
        parts.append(axis.horizontal(estimate.low, estimate.high, y, f"interval {look}"))
        parts.append(element("circle", class_=f"middle {look}", cx=axis.x(estimate.ratio), cy=y, r=5))
    title = f"Paired ratios: patched {ratio_with_interval(patch)}, original against itself {ratio_with_interval(aa)}"
    return drawing(title, bottom + 20, parts)


def _rounds(aa: _Pairs, patch: _Pairs) -> Sequence[tuple[int, int, str, str]]:
    both = sorted(aa.keys() & patch.keys())
    return [(each + 1, len(patch[each]), ratio(median(patch[each])), ratio(median(aa[each]))) for each in both]


def _timelines(before: Timeline | None, after: Timeline | None) -> Sequence[tuple[str, Markup]]:
    named = {name: each for name, each in (("Before", before), ("After", after)) if each}
    axis = Axis(0.0, max((each.seconds for each in named.values()), default=0.0))
    drawings = []
    for name, each in named.items():
        slower = f", {100 * (each.slowdown - 1):.0f} % longer while observed" if each.slowdown >= 1.01 else ""
        title = f"{name}: {count(len(each.steps), 'step')} in {seconds(each.seconds)}{slower}"
        lanes = [lane for lane in LANES if lane in each.lanes]
        parts = [part for row, lane in enumerate(lanes) for part in _lane(lane, each, axis, row * _LANE_AND_GAP)]
        drawings.append((title, drawing(title, len(lanes) * _LANE_AND_GAP, parts)))
    return drawings


def _lane(lane: str, timeline: Timeline, axis: Axis, top: float) -> Iterator[Markup]:
    share = timeline.busy if lane == DEVICE else timeline.share(lane)
    yield element("text", f"{lane} {percent(share or 0.0)}", class_="lane", x=0, y=top + _LABEL - 4)
    y = top + _LABEL
    yield axis.bar(0, timeline.seconds, y, _LANE, "lane")
    for span in timeline.spans:
        if span.lane == lane:
            tip = element("title", f"{lane}, {seconds(span.end - span.begin)}")
            look, opacity = f"lane{LANES.index(lane)}", f"{span.share:.2f}"
            yield axis.bar(span.begin, span.end, y, _LANE, look, tip, fill_opacity=opacity)
    for end in timeline.steps:
        yield axis.vertical(end, y - 2, y + _LANE + 2, "step")


def element(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """An element; in the names of attributes `_` stands for `-`, and a trailing `_` is dropped."""
    given = (Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup("").join(given), Markup("").join(children))


def drawing(title: str, height: float, parts: Iterable[Markup]) -> Markup:
    """A drawing as wide as the page and `height` pixels high; screen readers read its `title`."""
    return element("svg", *parts, width="100%", height=f"{height:g}", role="img", aria_label=title)


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], *, log: bool = False) -> Axis:
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = min(finite, default=1.0), max(finite, default=1.0)
        if log:
            margin = max((high / low) ** _MARGIN, 1.002)
            return cls(low / margin, high * margin, log)
        margin = _MARGIN * (high - low) or abs(high) * _MARGIN or 1.0
        return cls(low - margin, high + margin)

    def place(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.log:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value - self.low) / (self.high - self.low)

    def x(self, value: float) -> str:
        return f"{self.place(value):.2f}%"

    def horizontal(self, begin: float, end: float, y: float, look: str) -> Markup:
        return element("line", class_=look, x1=self.x(begin), x2=self.x(end), y1=y, y2=y)

    def vertical(self, value: float, top: float, bottom: float, look: str) -> Markup:
        return element("line", class_=look, x1=self.x(value), x2=self.x(value), y1=top, y2=bottom)

    def bar(
        self, begin: float, end: float, y: float, height: float, look: str, *children: Markup, **more: object
    ) -> Markup:
        width = f"{self.place(end) - self.place(begin):.2f}%"
        return element("rect", *children, class_=look, x=self.x(begin), width=width, y=y, height=height, **more)

    def ticks(self, most: int = 6) -> Sequence[float]:
        if self.log and self.high / self.low > 4:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            values = [value for power in powers for step in _STEPS if self.low <= (value := step * 10.0**power)]
            shown = [value for value in values if value <= self.high]
            return shown[:: max(1, math.ceil(len(shown) / most))]
        power = math.floor(math.log10((self.high - self.low) / most))
        steps = (step * 10.0 ** (power + more) for more in (0, 1) for step in _STEPS)
        step = next(step for step in steps if step * most >= self.high - self.low)
        return [number * step for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


_FOLDER = Path(__file__).parent
_LOOKS = {"+": "added", "-": "removed", "@": "place", "\\": "place"}


def page(verdict: Verdict) -> str:
    pairs = {
        "noise": statistics.pair_ratios(verdict.samples, [ORIGINAL], [AGAIN]),
        "after": statistics.pair_ratios(verdict.samples, ORIGINALS, [PATCHED]),
    }
    return template(_FOLDER / "page.html").render(
        verdict=verdict,
        figures=list(summary.figures(verdict)),
        open=(Outcome.LEVEL, Outcome.UNSURE, Outcome.UNFIXED),
        charts={
            "ratios": _ratios(verdict, pairs),
            "timelines": _timelines(verdict.before.timeline, verdict.after.timeline),
            "losses": _losses(verdict),
        },
        rounds=_rounds(*pairs.values()),
        gains=_gains(verdict.fixes),
        lines=_lines,
        words=summary,
        count=count,
    )


@cache
def template(path: Path) -> Template:
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
    for line in text.removesuffix("\n").split("\n"):
        yield _LOOKS.get(line[:1], "kept"), line.removesuffix("\r").expandtabs(8)
