"""Compares what programs print, log or write, but for what differs from run to run of the same program."""

from __future__ import annotations

import math
import re
from itertools import zip_longest

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_MOMENT = re.compile(r"\d{4}[-/]\d\d[-/]\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?")  # dates and times of the day
_NEAR = 1e-3  # relative: what rounding may make of a printed number
_SHOWN = 60  # characters of a line


def parting(before: str, again: str, after: str, *, exact: bool) -> str:
    """How `after` differs from `before` where `again`, of another run of the same program, does not; empty if nowhere.

    Unless `exact`, numbers may differ in their last digits.
    """
    old, same, new = (_MOMENT.sub("", text).splitlines() for text in (before, again, after))
    if len(old) != len(same):
        return ""  # its lines can't be told from one another
    for number, (line, twin, other) in enumerate(zip_longest(old, same, new), 1):
        if line is None:
            return f'line {number}, "{_cut(other)}", is too much'
        if other is None:
            return f'line {number}, "{_cut(line)}", is missing'
        if not _is_alike(line, twin, other, exact):
            return f'line {number} is "{_cut(other)}" and not "{_cut(line)}"'
    return ""


def words(text: str) -> str:
    """A text without its numbers, dates and times, and however they were aligned."""
    return " ".join(_NUMBER.sub(" ", _MOMENT.sub(" ", text)).split())


def _is_alike(line: str, twin: str, other: str, exact: bool) -> bool:
    if line == other or _NUMBER.split(line) != _NUMBER.split(twin):
        return True
    if _NUMBER.split(line) != _NUMBER.split(other):
        return False
    numbers = zip(*(_NUMBER.findall(each) for each in (line, twin, other)), strict=True)
    return all(old != same or old == new or (not exact and _is_near(old, new)) for old, same, new in numbers)


def _is_near(old: str, new: str) -> bool:
    """Whether numbers are the same but for rounding, or for one in the last digit that is printed."""
    mantissa, _, exponent = old.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    last = 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0
    return math.isclose(float(old), float(new), rel_tol=_NEAR, abs_tol=1.5 * last)


def _cut(line: str) -> str:
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
