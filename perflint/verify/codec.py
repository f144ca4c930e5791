"""Data of frozen dataclasses as JSON, and back: checked, and without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints


def encoded(value: object) -> Any:
    """`value` of what JSON has: numbers that it lacks are the strings "nan", "inf" and "-inf"."""
    if is_dataclass(value):
        return {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [encoded(each) for each in value]
    if isinstance(value, Mapping):
        return {name: encoded(each) for name, each in value.items()}
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def decoded(kind: Any, value: Any) -> Any:
    """What was encoded from a value of the type `kind`; raises ValueError for what can't have been.

    Fields that `kind` doesn't have are passed over, and those with a default may be missing.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (other,) = [part for part in parts if part is not NoneType]
        return None if value is None else decoded(other, value)
    if origin is tuple:
        return tuple(decoded(parts[0], each) for each in _checked(list, value))
    if origin is Mapping:
        return {_checked(str, name): decoded(parts[1], each) for name, each in _checked(dict, value).items()}
    if is_dataclass(kind):
        return _dataclass(kind, _checked(dict, value))
    if issubclass(kind, Enum):
        return kind(_checked(str, value))
    return _float(value) if kind is float else _checked(kind, value)


def _dataclass(kind: Any, values: dict[str, Any]) -> Any:
    types = get_type_hints(kind)
    known = {field.name: field for field in fields(kind) if field.name in values}
    try:
        return kind(**{name: decoded(types[name], values[name]) for name in known})
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from None


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int | str):
        raise ValueError(f"{value!r} is no number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value} is too large") from None


def _checked(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value
