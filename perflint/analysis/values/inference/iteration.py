"""The values that iterating over a value yields."""

from __future__ import annotations

from perflint.analysis.values.values import LIKELY_HOST_TENSOR, STRING, UNKNOWN, Kind, Value, join_all, tensor


def element_of(value: Value) -> Value:
    """What is known of each element."""
    if value.kind is Kind.TENSOR:
        return tensor(value.place, sure=value.sure, dtype=value.dtype)._replace(name=value.name)
    if value.kind in (Kind.SEQUENCE, Kind.LOADER):
        return value.item or UNKNOWN
    if value.kind is Kind.MODULE:
        return value.item or Value(Kind.MODULE, sure=False)
    if value.kind is Kind.MAPPING:
        return STRING
    if value.kind is Kind.DATASET:
        return LIKELY_HOST_TENSOR
    if value.kind in (Kind.STRING, Kind.NUMPY):
        return value._replace(is_literal=False, literal=None)
    return UNKNOWN


def parts_of(value: Value, count: int) -> tuple[Value, ...]:
    """What unpacking `value` into `count` targets gives each."""
    if value.items is not None and value.kind is Kind.SEQUENCE and len(value.items) == count:
        return value.items
    return (element_of(value),) * count


def contains_tensor(value: Value, depth: int = 3) -> Value | None:
    """The first tensor in `value` or its parts, on the device if there is one."""
    if value.kind is Kind.TENSOR:
        return value
    if depth == 0 or value.kind not in (Kind.SEQUENCE, Kind.MAPPING):
        return None
    parts = [*(value.items or ()), *([value.item] if value.item is not None else [])]
    found = [inner for part in parts if (inner := contains_tensor(part, depth - 1)) is not None]
    return next((inner for inner in found if inner.on_device), found[0] if found else None)


def joined_element(values: tuple[Value, ...]) -> Value:
    """What is known of each element of any of `values`."""
    return join_all(element_of(value) for value in values)
