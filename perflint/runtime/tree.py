"""Takes nested arguments and results apart into leaves, and puts them together again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from torch.utils import _pytree

LEAF = None  # the structure of a leaf


def flatten(value: Any) -> tuple[Hashable, list[Any]]:
    """The structure of `value`, equal for values of equal form, and its leaves, in order.

    Lists, tuples, named tuples, dicts and whatever is registered with torch's pytree are taken apart.
    """
    leaves: list[Any] = []
    return _structure(value, leaves), leaves


def _structure(value: Any, leaves: list[Any]) -> Hashable:
    kind = type(value)
    if kind is tuple or kind is list:
        return (kind, tuple([_structure(item, leaves) for item in value]))
    if kind is dict:
        return (dict, tuple(value), tuple([_structure(item, leaves) for item in value.values()]))
    if issubclass(kind, tuple):
        return (kind, tuple([_structure(item, leaves) for item in value]))
    if kind in _pytree.SUPPORTED_NODES:
        children, context = _pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return (kind, _Context(context), tuple([_structure(item, leaves) for item in children]))
    leaves.append(value)
    return LEAF


def rebuild(structure: Any, leaves: Iterator[Any]) -> Any:
    """The value of this structure whose leaves are the next ones of `leaves`."""
    if structure is LEAF:
        return next(leaves)
    kind = structure[0]
    children = [rebuild(child, leaves) for child in structure[-1]]
    if kind is tuple or kind is list:
        return kind(children)
    if kind is dict:
        return dict(zip(structure[1], children, strict=True))
    if issubclass(kind, tuple):
        return kind._make(children) if hasattr(kind, "_make") else kind(children)
    return _pytree.SUPPORTED_NODES[kind].unflatten_fn(children, structure[1].value)


class _Context:
    """The context of a pytree node, made hashable."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))
