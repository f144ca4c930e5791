"""Drawings as SVG elements: positions along an axis are percentages, so that a drawing fits any width unscaled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

_STEPS = (1, 2, 5)
_MARGIN = 0.04  # of an axis, at either end


def element(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """An element; `_` in the names of attributes stands for `-`, and one at their end for nothing."""
    given = "".join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup(given), Markup("").join(children))


def drawing(title: str, height: float, parts: Iterable[Markup]) -> Markup:
    """A drawing as wide as the page, `height` pixels high; `title` is what it says to those who can't see it."""
    return element("svg", *parts, width="100%", height=f"{height:g}", role="img", aria_label=title)


@dataclass(frozen=True)
class Axis:
    """The values from `low` to `high` from left to right, in logarithms where `log`."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], *, log: bool = False) -> Axis:
        """An axis on which all finite values have room."""
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = min(finite, default=1.0), max(finite, default=1.0)
        if log:
            margin = max((high / low) ** _MARGIN, 1.002)
            return cls(low / margin, high * margin, log)
        margin = _MARGIN * (high - low) or abs(high) * _MARGIN or 1.0
        return cls(low - margin, high + margin)

    def place(self, value: float) -> float:
        """Where `value` is, in percent of the width; what is beyond an end is at that end."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value - self.low) / (self.high - self.low)

    def x(self, value: float) -> str:
        """The same as an attribute."""
        return percent(self.place(value))

    def width(self, begin: float, end: float) -> str:
        """The width from one value to another."""
        return percent(self.place(end) - self.place(begin))

    def ticks(self, most: int = 6) -> Sequence[float]:
        """Round values along the axis, at most so many."""
        if self.log and self.high / self.low > 4:
            return _thinned([value for value in _decades(self.low, self.high) if self.low <= value <= self.high], most)
        step = next(step for step in _steps((self.high - self.low) / most) if step * most >= self.high - self.low)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def percent(value: float) -> str:
    """An attribute's value."""
    return f"{value:.2f}%"


def _decades(low: float, high: float) -> Iterable[float]:
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        yield from (step * 10.0**power for step in _STEPS)


def _steps(least: float) -> Iterable[float]:
    power = math.floor(math.log10(least))
    return (step * 10.0 ** (power + more) for more in (0, 1) for step in _STEPS)


def _thinned(values: Sequence[float], most: int) -> Sequence[float]:
    return values[:: math.ceil(len(values) / most)] if values else values
