"""Notes where a walk has looked, and tells at a glance whether another one would find the same there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from types import CellType, FunctionType
from typing import Any, TypeVar

from torch import Tensor

from perflint.runtime.scope import own

T = TypeVar("T")
_OF_FUNCTION = attrgetter("__code__", "__closure__", "__defaults__", "__kwdefaults__", "__dict__")
_OF_CELL = attrgetter("cell_contents", "cell_contents")
_GONE = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)  # of looking where nothing is any more


class Reads:
    """The places where a walk has looked.

    Objects, functions and tensors are held weakly; namespaces, containers and cells, which can't be, are held.
    """

    def __init__(self) -> None:
        self._spaces: list[Mapping[str, Any]] = []  # whose names matter
        self._picked: list[tuple[Callable[[Any], tuple[object, ...]], Any]] = []
        self._containers: list[Collection[object]] = []
        self._empty: list[Collection[object]] = []
        self._objects: list[Callable[[], object]] = []
        self._open: list[Callable[[], object]] = []  # objects that have a `__dict__`
        self._functions: list[Callable[[], FunctionType | None]] = []
        self._tensors: dict[int, Callable[[], Tensor | None]] = {}
        self._memory: list[Callable[[], Tensor | None]] = []
        self._computed: list[Callable[[], Hashable]] = []

    def names(self, space: Mapping[str, Any], read: Iterable[str]) -> None:
        self._spaces.append(space)
        self.items(space, read)

    def items(self, space: Mapping[str, Any], read: Iterable[str]) -> None:
        if found := tuple(read):
            self._picked.append((itemgetter(*found, found[0]), space))  # a tuple for one name, too

    def container(self, values: Collection[object]) -> None:
        (self._containers if values else self._empty).append(values)

    def mapping(self, values: Mapping[str, object]) -> None:
        self._spaces.append(values)
        self.container(values.values())

    def cell(self, cell: CellType) -> None:
        self._picked.append((_OF_CELL, cell))

    def thing(self, value: Any, *, has_dict: bool) -> None:
        (self._open if has_dict else self._objects).append(reference(value))

    def slots(self, value: object, names: Iterable[str]) -> None:
        self._picked.append((partial(_slots, tuple(names)), reference(value)))

    def function(self, function: FunctionType) -> None:
        self._functions.append(reference(function))

    def tensor(self, tensor: Tensor) -> None:
        """A tensor's memory, shape, strides and type, and whether it requires gradients."""
        self._tensors.setdefault(id(tensor), reference(tensor))

    def memory(self, tensor: Tensor) -> None:
        self._memory.append(reference(tensor))

    def computed(self, compute: Callable[[], Hashable]) -> None:
        """What has to be computed anew, as the values of a tensor on the host."""
        self._computed.append(compute)

    def found(self) -> Iterator[Any]:
        opened = [each() for each in self._open]
        return chain(
            chain.from_iterable([pick(place) for pick, place in self._picked]),
            chain.from_iterable(self._containers),
            chain.from_iterable([_OF_FUNCTION(each()) for each in self._functions]),
            map(object.__getattribute__, opened, repeat("__dict__")),
            map(type, opened),
            [type(each()) for each in self._objects],
        )

    def snapshot(self) -> tuple[object, ...]:
        """What is there now, told apart by identity; equal ones mean the same as long as nothing of it dies."""
        tensors: Any = [each() for each in self._tensors.values()]
        memory: Any = [each() for each in self._memory]
        return (
            list(map(id, self.found())),
            list(chain.from_iterable(self._spaces)),
            list(map(len, self._spaces)),
            list(map(len, self._containers)),
            any(self._empty),
            list(map(Tensor.data_ptr, tensors)),
            [each.shape for each in tensors],  # `.data` may be another part of the same memory
            list(map(Tensor.stride, tensors)),
            [each.dtype for each in tensors],
            [each.requires_grad for each in tensors],
            list(map(Tensor.data_ptr, memory)),
            [each() for each in self._computed],
        )


class Glance:
    """Tells whether a walk would find again what it found when this was made."""

    def __init__(self, reads: Reads) -> None:
        self._reads: Reads | None = reads
        found = {id(each): each for each in reads.found()}
        forget = partial(_forget, weakref.ref(self))
        self._anchors = [reference(each, forget) for each in found.values()]  # no identity is used again
        self._seen = reads.snapshot()

    def holds(self) -> bool:
        try:
            return self._reads is not None and self._reads.snapshot() == self._seen
        except _GONE:
            return False

    def forget(self) -> None:
        self._reads, self._anchors = None, []


def _forget(glance: weakref.ref[Glance], _: object) -> None:
    if (found := glance()) is not None:
        found.forget()


def reference(value: T, drop: Callable[[Any], None] | None = None) -> Callable[[], T | None]:
    """Gives an object that is held weakly where that can be; `drop` is called when it dies."""
    try:
        return weakref.ref(value, drop)
    except TypeError:
        return lambda: value


def _slots(names: tuple[str, ...], value: Callable[[], object]) -> tuple[object, ...]:
    found = value()
    return tuple(own(found, name) for name in names)
