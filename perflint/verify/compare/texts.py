"""Compares what programs print, log or write, but for what differs from run to run of the same program."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_PASSING = re.compile(  # dates, times of the day, and memory in use
    r"\d{4}[-/]\d\d[-/]\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|\d+(?:\.\d+)? ?[KMGT]i?B\b|(?i:\bmem(?:ory)?(?: \w+){0,2} ?[:=] ?)\d+(?:\.\d+)?"
)
_NEAR = 1e-3  # relative: what rounding may make of a printed number
_PRECISE = 4  # digits: no two times agree in so many
_WORDS = -1  # in the place of the number of a number
_SHOWN = 60  # characters of a line


def parting(before: str, again: str, after: str, *, exact: bool) -> str:
    """How `after` differs from `before` where `again`, of another run of the same program, does not; empty if nowhere.

    A number that differs there in one line is not compared in any other line that reads the same. Unless `exact`,
    numbers may differ in their last digits.
    """
    found = _partings([before, again], after)
    return next((said for said, near in found if exact or not near), "")


def parting_in_all(originals: Sequence[str], others: Sequence[str]) -> str:
    """How all `others` differ from the `originals` where those all agree; empty if they don't.

    Numbers of few digits don't count: they may be times, of which faster programs print others.
    """
    found = [next((said for said, _ in _partings(originals, other, _PRECISE)), "") for other in others]
    return found[0] if found and all(found) else ""


def _partings(originals: Sequence[str], other: str, digits: int = 0) -> Iterator[tuple[str, bool]]:
    """How a text differs from others that should be the same, and whether that may be rounding."""
    first, *twins = (_PASSING.sub("", text).splitlines() for text in originals)
    if any(len(twin) != len(first) for twin in twins):
        return  # its lines can't be told from one another
    loose = {place for twin in twins for pair in zip(first, twin, strict=True) for place, _, _ in _differing(*pair)}
    for number, (line, new) in enumerate(zip_longest(first, _PASSING.sub("", other).splitlines()), 1):
        if line is None:
            yield f'line {number}, "{_cut(new)}", is too much', False
        elif new is None:
            yield f'line {number}, "{_cut(line)}", is missing', False
        elif (_between(line), _WORDS) not in loose:
            said = f'line {number} is "{_cut(new)}" and not "{_cut(line)}"'
            for place, near, precision in _differing(line, new):
                if place not in loose and precision >= digits:
                    yield said, near


def words(text: str) -> str:
    """A text without its numbers, and however they were aligned."""
    return " ".join(_NUMBER.sub(" ", _PASSING.sub(" ", text)).split())


_Place = tuple[str, int]  # a line without its numbers, and which of them


def _differing(line: str, other: str) -> Iterator[tuple[_Place, bool, float]]:
    """Where lines differ, whether that may be rounding, and how many digits there are."""
    if _NUMBER.split(line) != _NUMBER.split(other):
        yield (_between(line), _WORDS), False, math.inf
        return
    for number, (old, new) in enumerate(zip(_NUMBER.findall(line), _NUMBER.findall(other), strict=True)):
        if old != new:
            yield (_between(line), number), _is_near(old, new), _digits(old)


def _between(line: str) -> str:
    return _NUMBER.sub("", line)


def _digits(number: str) -> int:
    """How many of them tell something."""
    mantissa = number.lower().partition("e")[0]
    return len(re.sub(r"\D", "", mantissa).lstrip("0"))


def _is_near(old: str, new: str) -> bool:
    """Whether numbers are the same but for rounding, or for one in the last digit that is printed."""
    mantissa, _, exponent = old.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    last = float(f"1e{int(exponent or 0) - digits}") if digits or exponent else 0.0
    return math.isfinite(last) and math.isclose(float(old), float(new), rel_tol=_NEAR, abs_tol=1.5 * last)


def _cut(line: str) -> str:
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
