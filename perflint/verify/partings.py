"""Compares what runs print, log and write: where they part, and whether that may be rounding or chance."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_VOLATILE = re.compile(  # dates, times of the day, and memory in use
    r"\d{4}[-/]\d\d[-/]\d\d|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"
    r"|\d+(?:\.\d+)? ?[KMGT]i?B\b|(?i:\bmem(?:ory)?(?: \w+){0,2} ?[:=] ?)\d+(?:\.\d+)?"
)
_NEAR = 1e-3  # relative: what rounding may make of a printed number, or of an array
_PRECISE = 4  # digits: no two times agree in so many
_WORDS = -1  # in the place of the number of a number
_LONG = 1000  # characters: a line of data can be a megabyte
_UNREADABLE = (ImportError, ValueError, OSError, EOFError, zipfile.BadZipFile)


def parting(before: str, again: str, after: str, *, exact: bool) -> str:
    """How `after` differs from `before` where `again`, of another run of that program, does not; "" if nowhere.

    A number that differs between these two in one line is compared in no line that reads the same. Unless `exact`,
    numbers may differ in their last digits.
    """
    return next((said for said, near in _partings([before, again], after) if exact or not near), "")


def parting_in_all(originals: Sequence[str], others: Sequence[str], *, exact: bool = True) -> str:
    """How all `others` differ from the `originals` where those agree; "" if one doesn't.

    Numbers of few digits don't count: they may be times, which faster programs print differently. Unless `exact`,
    others may differ in their last digits.
    """
    partings = (_partings(originals, other, _PRECISE) for other in others)
    found = [next((said for said, near in each if exact or not near), "") for each in partings]
    return found[0] if found and all(found) else ""


def _partings(originals: Sequence[str], other: str, digits: int = 0) -> Iterator[tuple[str, bool]]:
    first, *twins = (_VOLATILE.sub("", text).splitlines() for text in originals)
    if any(len(twin) != len(first) for twin in twins):
        return  # their lines don't correspond
    loose = {place for twin in twins for pair in zip(first, twin, strict=True) for place, _, _ in _differing(*pair)}
    for number, (line, new) in enumerate(zip_longest(first, _VOLATILE.sub("", other).splitlines()), 1):
        if line is None:
            yield f"line {number}, {_quoted(new)}, is too much", False
        elif new is None:
            yield f"line {number}, {_quoted(line)}, is missing", False
        elif (_NUMBER.sub("", line), _WORDS) not in loose:
            said = f"line {number} is {_quoted(new, line)} and not {_quoted(line, new)}"
            for place, near, precision in _differing(line, new):
                if place not in loose and precision >= digits:
                    yield said, near


def words(text: str) -> str:
    return " ".join(_NUMBER.sub(" ", _VOLATILE.sub(" ", text)).split())


_Place = tuple[str, int]  # a line without its numbers, and the index of one of them


def _differing(line: str, other: str) -> Iterator[tuple[_Place, bool, float]]:
    rest = _NUMBER.sub("", line)
    if _NUMBER.split(line) != _NUMBER.split(other):
        yield (rest, _WORDS), False, math.inf
        return
    for number, (old, new) in enumerate(zip(_NUMBER.findall(line), _NUMBER.findall(other), strict=True)):
        if old != new:
            mantissa = old.lower().partition("e")[0]
            yield (rest, number), _is_near(old, new), len(re.sub(r"\D", "", mantissa).lstrip("0"))


def _is_near(old: str, new: str) -> bool:
    mantissa, _, exponent = old.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    last = float(f"1e{int(exponent or 0) - digits}") if digits or exponent else 0.0
    return math.isfinite(last) and math.isclose(float(old), float(new), rel_tol=_NEAR, abs_tol=1.5 * last)


def _quoted(line: str, other: str = "") -> str:
    if len(line) <= _LONG:
        return f'"{line}"'
    parted = (place for place, (one, two) in enumerate(zip(line, other, strict=False)) if one != two)
    place = next(parted, min(len(line), len(other)))
    begin = max(line.rfind(" ", 0, place) + 1, place - _LONG)
    return f'"{line[begin : place + _LONG].split(" ")[0]}" at character {begin + 1}'


def parting_of_files(old: bytes | None, same: bytes | None, new: bytes | None, *, exact: bool) -> str | None:
    """How the content of a file differs, None where it does not; None for a content is a file that was removed."""
    if old == new or (old is None) != (same is None):
        return None
    if old is None or same is None or new is None:
        return ": it is removed" if new is None else ": it is not removed"
    try:
        texts = [content.decode() for content in (old, same, new)]
    except UnicodeDecodeError:
        if exact:
            return "" if old == same else None
        found = parting_of_arrays(old, new) if old == same else ""
    else:
        found = parting(texts[0], texts[1], texts[2], exact=exact)
    return f": {found}" if found else None


def parting_of_arrays(before: bytes, after: bytes) -> str:
    old, new = _arrays(before), _arrays(after)
    if not old:
        return ""
    if old.keys() != new.keys():
        return "it holds other arrays"
    return next((f"{name or 'it'} holds other values" for name in old if not _are_near(old[name], new[name])), "")


def _arrays(content: bytes) -> Arrays:
    try:
        import numpy as np

        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        named = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        return {name: array for name, array in named.items() if isinstance(array, np.ndarray)}
    except _UNREADABLE:
        return {}


def _are_near(before: Any, after: Any) -> bool:
    import numpy as np

    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if before.dtype.kind not in "fc":
        return bool((before == after).all())
    finite = np.isfinite(before) & np.isfinite(after)
    old, new = (each[finite].astype(complex) for each in (before, after))
    is_near = np.linalg.norm(new - old) <= _NEAR * np.linalg.norm(old)
    return bool(is_near and np.array_equal(before[~finite], after[~finite], equal_nan=True))
