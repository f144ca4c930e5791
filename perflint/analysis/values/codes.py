"""Encodes values in a few characters, for the summaries that files exchange.

D is a tensor on the device, H one on the host, T one wherever the arguments are; small where it is only likely. g is a
guess, n a Python number, s a string, a an array of numpy, m a module, l a loader, p one with pinned memory. (..) holds
the parts of a tuple, [.] the items of a list and {.} the values of a mapping. Anything else is -.
A number alone is what yields the items of the argument in that place.
"""

from __future__ import annotations

from collections.abc import Iterator

from perflint.analysis.values.values import (
    GUESSED,
    GUESSED_TENSOR,
    LIKELY_LOADER,
    NUMBER,
    NUMPY,
    STRING,
    UNKNOWN,
    Kind,
    Place,
    Value,
    sequence,
    sequence_of,
    tensor,
)

_UNKNOWN, _GUESS = "-", "g"
_DEPTH = 3  # of tuples in tuples
_PARTS = 8  # of a tuple, beyond which it is no result that callers take apart
_TENSORS = {
    (Place.DEVICE, True): "D",
    (Place.DEVICE, False): "d",
    (Place.HOST, True): "H",
    (Place.HOST, False): "h",
    (Place.UNKNOWN, True): "T",
    (Place.UNKNOWN, False): "t",
}
_SIMPLE = {Kind.NUMBER: "n", Kind.STRING: "s", Kind.NUMPY: "a", Kind.MODULE: "m"}
_VALUES = {code: tensor(place, sure=sure) for (place, sure), code in _TENSORS.items()} | {
    _GUESS: GUESSED_TENSOR,
    "n": NUMBER,
    "s": STRING,
    "a": NUMPY,
    "m": Value(Kind.MODULE, sure=False),
    "l": LIKELY_LOADER,
    "p": LIKELY_LOADER._replace(pinned=True),
}
_AT_HOME = str.maketrans("DdTt", "HhHh")
_TOLD = frozenset("DdHhTnsalp")  # what says more than a caller would guess
SHARED = frozenset({"m", "l", "p"})  # which functions are given once, and use in every step
ON_DEVICE = frozenset({"D", "d", _GUESS})


def argument_code(value: Value) -> str:
    """The code for an argument of a call."""
    return _code(value, _DEPTH)


def result_code(value: Value | None) -> str:
    """The code for what a function returns; empty where it tells nothing."""
    code = _code(value, _DEPTH) if value is not None else ""
    return code if not _TOLD.isdisjoint(code) else ""


def value_of(code: str, place: Place = Place.UNKNOWN) -> Value:
    """The value of `code`; `place` is that of the arguments, if it is known."""
    codes = iter(code)
    return _read(next(codes, _UNKNOWN), codes, place)


def value_at_home(code: str) -> Value:
    """The value of `code` in a program that never leaves the host."""
    return value_of(code.translate(_AT_HOME))


def values_of(codes: str) -> tuple[Value, ...]:
    """The values of codes that follow each other."""
    return tuple(_read_elements(iter(codes), Place.UNKNOWN))


def _code(value: Value, depth: int) -> str:
    if value.kind is Kind.TENSOR:
        return _tensor_code(value)
    if value.kind is Kind.SEQUENCE and depth:
        if value.items is not None and len(value.items) <= _PARTS:
            return f"({''.join(_code(item, depth - 1) for item in value.items)})"
        return f"[{_code(value.item or UNKNOWN, depth - 1)}]"
    if value.kind is Kind.MAPPING and depth:
        return f"{{{_code(value.item or UNKNOWN, depth - 1)}}}"
    if value.kind is Kind.LOADER:
        return "p" if value.pinned else "l"
    return _SIMPLE.get(value.kind, _UNKNOWN)


def _tensor_code(value: Value) -> str:
    if value.name == GUESSED:
        return _GUESS if value.on_device else _UNKNOWN
    return _TENSORS[value.place, value.sure]


def _read(code: str, codes: Iterator[str], place: Place) -> Value:
    if code == "(":
        return sequence(_read_elements(codes, place))
    if code == "[":
        return sequence_of(next(iter(_read_elements(codes, place)), UNKNOWN))
    if code == "{":
        return Value(Kind.MAPPING, sure=False, items=(), item=next(iter(_read_elements(codes, place)), UNKNOWN))
    value = _VALUES.get(code, UNKNOWN)
    return value._replace(place=place) if code in "Tt" else value


def _read_elements(codes: Iterator[str], place: Place) -> list[Value]:
    """The values up to the bracket that closes."""
    parts = []
    for code in codes:
        if code in ")]}":
            break
        parts.append(_read(code, codes, place))
    return parts
