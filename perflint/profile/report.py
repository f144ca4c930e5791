"""The HTML page of a profile and its charts: one file that needs neither network nor scripts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from markupsafe import Markup

from perflint.documents.disk import Unreadable
from perflint.documents.document import read
from perflint.engine import count
from perflint.engine.results import figure
from perflint.profile.result import LineCost, Profile
from perflint.profile.roofline import Point, Regime, Roofline
from perflint.profile.summary import Report, finding_place, place
from perflint.verify import report
from perflint.verify.report import Axis, drawing, element

_SHARES, _BAR = 34, 10  # pixels, here and below
_PLOT = 300
_LEAST_DOT, _LARGEST_DOT = 4.0, 14.0
_APART = 25.0, 14.0  # percent of the width, and pixels, that are free around a name
_TERA = 1e12


def shares(profile: Profile) -> Markup:
    said = {name: f"{100 * share:.1f} %" for name, share in profile.shares.items()}
    tips = {name: f"{each}, {figure(profile.ms(name))} ms" for name, each in said.items()}
    parts = _stacked(profile.shares, tips, Axis(0.0, 1.0), _SHARES)
    return drawing(f"Shares of a step: {', '.join(f'{name} {each}' for name, each in said.items())}", _SHARES, parts)


def _stacked(values: Mapping[str, float], tips: Mapping[str, str], axis: Axis, height: float) -> Iterator[Markup]:
    begin = 0.0
    for name in (each.value for each in Regime):
        if (value := values.get(name, 0.0)) > 0:
            tip = element("title", f"{name}: {tips[name]}")
            yield axis.bar(begin, begin + value, 0, height, look(name), tip)
            begin += value


def look(regime: str) -> str:
    return f"regime-{regime.replace(' ', '-')}"


def _bars(lines: Sequence[LineCost]) -> Callable[[LineCost], Markup]:
    axis = Axis(0.0, max((each.own_ms for each in lines), default=0.0) or 1.0)

    def draw(line: LineCost) -> Markup:
        tips = {name: f"{figure(ms)} ms" for name, ms in line.own.items()}
        return drawing(f"{figure(line.own_ms)} ms", _BAR, _stacked(line.own, tips, axis, _BAR))

    return draw


def _roofline(found: Roofline) -> Markup | None:
    points = [each for each in found.points if each.intensity and (each.is_counted or each.regime is Regime.MEMORY)]
    if not points:
        return None
    roofs = _roofs(found, points)
    rates = [each.flops / each.seconds for each in points]
    across = Axis.around([*(each.intensity for each in points), *(ridge for ridge, _ in roofs.values())], log=True)
    up = Axis.around([*rates, *(top for _, top in roofs.values())], log=True)
    parts = list(_grid(across, up))
    bandwidth = found.peak.bandwidth * _TERA if found.peak else 0.0
    if bandwidth:
        top = max((roof for _, roof in roofs.values()), default=up.high)
        low = max(across.low, up.low / bandwidth)
        parts.append(_line(across, up, (low, low * bandwidth), (top / bandwidth, top)))
        middle = math.sqrt(max(low, across.low) * top / bandwidth)
        label = f"{figure(bandwidth / _TERA)} TB/s"
        parts.append(element("text", label, class_="last", x=across.x(middle), y=_y(up, middle * bandwidth) - 8))
    for name, (ridge, top) in roofs.items():
        parts.append(_line(across, up, (ridge, top), (across.high, top)))
        label = f"{name} {figure(top / _TERA)} TFLOP/s"
        parts.append(element("text", label, class_="last", x="100%", y=_y(up, top) - 5))
    longest = max(each.seconds for each in points)
    named: list[tuple[float, float]] = []
    for each in points:
        x, y = across.place(each.intensity), _y(up, each.flops / each.seconds)
        is_free = all(abs(x - other) > _APART[0] or abs(y - beside) > _APART[1] for other, beside in named)
        named += [(x, y)] if is_free else []
        parts += _dot(across, up, each, longest, named=is_free)
    return drawing("Roofline: FLOP/s by FLOPs for each byte", _PLOT + 34, parts)


def _roofs(found: Roofline, points: Sequence[Point]) -> Mapping[str, tuple[float, float]]:
    if not found.peak or not found.peak.bandwidth:
        return {}
    used = {each.format for each in points if each.regime is Regime.COMPUTE}
    peaks = {name: tera * _TERA for name, tera in found.peak.flops.items() if name in used}
    return {name: (peak / (found.peak.bandwidth * _TERA), peak) for name, peak in peaks.items()}


def _grid(across: Axis, up: Axis) -> Iterator[Markup]:
    for tick in _powers(across):
        yield across.vertical(tick, 0, _PLOT, "tick")
        yield element("text", f"{tick:g}", class_="tick", x=across.x(tick), y=_PLOT + 14)
    for tick in _powers(up):
        y = _y(up, tick)
        yield element("line", class_="tick", x1=0, x2="100%", y1=y, y2=y)
        yield element("text", f"{tick / _TERA:g} TFLOP/s", class_="first", x=0, y=y - 3)
    yield element("text", "FLOPs for each byte", class_="tick", x="50%", y=_PLOT + 30)


def _powers(axis: Axis) -> list[float]:
    first, last = math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high))
    return [10.0**power for power in range(first, last + 1)]


def _y(up: Axis, value: float) -> float:
    return round(_PLOT * (1 - up.place(value) / 100), 1)


def _line(across: Axis, up: Axis, begin: tuple[float, float], end: tuple[float, float]) -> Markup:
    places = {"x1": across.x(begin[0]), "x2": across.x(end[0]), "y1": _y(up, begin[1]), "y2": _y(up, end[1])}
    return element("line", class_="roof", **places)


def _dot(across: Axis, up: Axis, point: Point, longest: float, *, named: bool) -> Iterator[Markup]:
    rate = point.flops / point.seconds
    x, y = across.x(point.intensity), _y(up, rate)
    radius = _LEAST_DOT + (_LARGEST_DOT - _LEAST_DOT) * math.sqrt(point.seconds / longest)
    said = f"{point.name}: {figure(1e3 * point.seconds)} ms of a step, {figure(rate / _TERA)} TFLOP/s, "
    tip = element("title", f"{said}{figure(point.bytes / point.seconds / 1e9)} GB/s; {point.kernel[:80]}")
    yield element("circle", tip, class_=f"point {look(point.regime.value)}", cx=x, cy=y, r=f"{radius:.1f}")
    if named:
        far = across.place(point.intensity) > 70
        shift = {"dx": -(radius + 3) if far else radius + 3, "dy": 4}
        yield element("text", point.name, class_="last" if far else "first", x=x, y=y, **shift)


_FOLDER = Path(__file__).parent
_LINES = 40
_LEAST = 0.002  # of a step is worth a line


def page(profiled: Report) -> str:
    profile = profiled.profile
    lines = [each for each in profile.lines if each.own_ms >= _LEAST * profile.step_ms or each.launches >= 1][:_LINES]
    return report.template(_FOLDER / "page.html").render(
        report=profiled,
        profile=profile,
        lines=lines,
        regimes=[regime.value for regime in Regime],
        look=look,
        shares=shares,
        bars=_bars(lines),
        roofline=_roofline(profile.roofline),
        source=_source,
        figure=figure,
        place=place,
        finding_place=finding_place,
        count=count,
        basename=os.path.basename,
    )


def _source(line: LineCost) -> str:
    texts = _texts(line.path)
    return texts[line.line - 1].strip() if 0 < line.line <= len(texts) else ""


@cache
def _texts(path: str) -> list[str]:
    try:
        return read(Path(path)).text.splitlines()
    except Unreadable:
        return []
