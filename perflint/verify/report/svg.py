"""SVG elements, and axes whose positions are percentages: a drawing then fits any width unscaled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

_STEPS = (1, 2, 5)
_MARGIN = 0.04  # of an axis, at either end


def element(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """An element; in the names of attributes `_` stands for `-`, and a trailing `_` is dropped."""
    given = (Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    return Markup("<{0}{1}>{2}</{0}>").format(name, Markup("").join(given), Markup("").join(children))


def drawing(title: str, height: float, parts: Iterable[Markup]) -> Markup:
    """A drawing as wide as the page and `height` pixels high; screen readers read its `title`."""
    return element("svg", *parts, width="100%", height=f"{height:g}", role="img", aria_label=title)


@dataclass(frozen=True)
class Axis:
    """A horizontal axis from `low` to `high`, logarithmic if `log`."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], *, log: bool = False) -> Axis:
        """An axis that holds all finite values."""
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = min(finite, default=1.0), max(finite, default=1.0)
        if log:
            margin = max((high / low) ** _MARGIN, 1.002)
            return cls(low / margin, high * margin, log)
        margin = _MARGIN * (high - low) or abs(high) * _MARGIN or 1.0
        return cls(low - margin, high + margin)

    def place(self, value: float) -> float:
        """The position of `value` in percent of the width, clamped to the ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value - self.low) / (self.high - self.low)

    def x(self, value: float) -> str:
        """The position as an attribute."""
        return f"{self.place(value):.2f}%"

    def horizontal(self, begin: float, end: float, y: float, look: str) -> Markup:
        """A horizontal line between two values."""
        return element("line", class_=look, x1=self.x(begin), x2=self.x(end), y1=y, y2=y)

    def vertical(self, value: float, top: float, bottom: float, look: str) -> Markup:
        """A vertical line at a value."""
        return element("line", class_=look, x1=self.x(value), x2=self.x(value), y1=top, y2=bottom)

    def bar(
        self, begin: float, end: float, y: float, height: float, look: str, *children: Markup, **more: object
    ) -> Markup:
        """A bar between two values."""
        width = f"{self.place(end) - self.place(begin):.2f}%"
        return element("rect", *children, class_=look, x=self.x(begin), width=width, y=y, height=height, **more)

    def ticks(self, most: int = 6) -> Sequence[float]:
        """Round values along the axis, about `most` of them."""
        if self.log and self.high / self.low > 4:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            values = [value for power in powers for step in _STEPS if self.low <= (value := step * 10.0**power)]
            shown = [value for value in values if value <= self.high]
            return shown[:: max(1, math.ceil(len(shown) / most))]
        power = math.floor(math.log10((self.high - self.low) / most))
        steps = (step * 10.0 ** (power + more) for more in (0, 1) for step in _STEPS)
        step = next(step for step in steps if step * most >= self.high - self.low)
        return [number * step for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
