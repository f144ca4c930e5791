"""Axes: whatever the values, they have their place, and the ticks are few, round and between the ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflint.verify.report import Axis, element

VALUES = st.lists(st.floats(-1e200, 1e200) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0]), max_size=5)


@given(VALUES, st.booleans())
def test_every_value_has_a_place_and_the_ticks_lie_on_the_axis(values: list[float], log: bool) -> None:
    shown = [abs(value) + 1e-9 for value in values] if log else values
    axis = Axis.around(shown, log=log)
    assert axis.low < axis.high
    for value in shown:
        if not math.isnan(value):
            assert -0.01 <= axis.place(value) <= 100.01
    ticks = axis.ticks()
    assert len(ticks) <= 7
    assert all(-0.01 <= axis.place(tick) <= 100.01 for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.97, 1.06, [0.98, 1.0, 1.02, 1.04, 1.06]),
        (0.9, 1.9, [1.0, 1.2, 1.4, 1.6, 1.8]),
        (0.9, 13.0, [1, 2, 5, 10]),
        (0.4, 1200.0, [0.5, 2, 10, 50, 200, 1000]),
    ],
)
def test_ticks_of_ratios_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert list(Axis(low, high, log=True).ticks()) == pytest.approx(ticks)


def test_text_in_elements_and_attributes_is_escaped() -> None:
    made = element("text", "<b>", class_="a", aria_label='"<')
    assert made == '<text class="a" aria-label="&#34;&lt;">&lt;b&gt;</text>'
