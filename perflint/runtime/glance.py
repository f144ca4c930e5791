"""Where a walk has looked, and whether another would find the same there: the guard of a replay."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from types import CellType, FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor

from perflint.runtime.scope import own

T = TypeVar("T")
_OF_FUNCTION = attrgetter("__code__", "__closure__", "__defaults__", "__kwdefaults__", "__dict__")
_OF_CELL = attrgetter("cell_contents", "cell_contents")
_HOOKS_OF = attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")
_GONE = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)  # of looking where nothing is any more
_POINTER = ctypes.sizeof(ctypes.c_void_p)


class Reads:
    """Where a walk has looked.

    Objects, functions and tensors are held weakly; namespaces, containers and cells can't be.
    """

    def __init__(self) -> None:
        self._picked: list[tuple[Callable[[Any], Iterable[object]], Any]] = []
        self._sized: list[Collection[object]] = []  # containers, and namespaces for their names
        self._whole: list[Collection[object]] = []  # namespaces of which all is picked
        self._empty: list[Collection[object]] = []
        self._objects: list[Callable[[], object]] = []
        self._open: list[Callable[[], object]] = []  # objects that have a `__dict__`
        self._functions: list[Callable[[], FunctionType | None]] = []
        self._tensors: dict[int, Callable[[], Tensor | None]] = {}
        self._memory: list[Callable[[], Tensor | None]] = []
        self._computed: list[Callable[[], Hashable]] = []

    def names(self, space: Mapping[str, Any], read: Iterable[str]) -> None:
        self._sized.append(space)
        self.items(space, read)

    def whole(self, space: Mapping[str, Any]) -> None:
        """A namespace all of whose values are to stay; their order is not told."""
        self._whole.append(space)
        self.items(space, space)

    def items(self, space: Mapping[str, Any], read: Iterable[str]) -> None:
        if found := tuple(read):
            self._picked.append((itemgetter(*found, found[0]), space))  # a tuple for one name, too

    def container(self, values: Collection[object]) -> None:
        (self._sized if values else self._empty).append(values)

    def mapping(self, values: Mapping[str, object]) -> None:
        self._sized.append(values)
        self.container(values.values())

    def cell(self, cell: CellType) -> None:
        self._picked.append((_OF_CELL, cell))

    def thing(self, value: Any, *, has_dict: bool) -> None:
        (self._open if has_dict else self._objects).append(reference(value))

    def slots(self, value: object, names: Iterable[str]) -> None:
        self._picked.append((partial(_in_slots, tuple(names)), reference(value)))

    def function(self, function: FunctionType) -> None:
        self._functions.append(reference(function))

    def tensor(self, tensor: Tensor) -> None:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = reference(tensor)
            for hooks in (tensor._backward_hooks, tensor._post_accumulate_grad_hooks):
                if hooks is not None:  # there were some once
                    self.container(hooks)

    def memory(self, tensor: Tensor) -> None:
        self._memory.append(reference(tensor))

    def computed(self, compute: Callable[[], Hashable]) -> None:
        """What has to be computed anew, as the values of host tensors."""
        self._computed.append(compute)

    def found(self, tensors: Iterable[Tensor]) -> tuple[object, ...]:
        """All that is told by its identity."""
        found: list[object] = []
        add = found.extend
        for pick, place in self._picked:
            add(pick(place))
        for each in self._sized:
            add(each)
        for function in self._functions:
            add(_OF_FUNCTION(function()))
        opened = [each() for each in self._open]
        add(map(object.__getattribute__, opened, repeat("__dict__")))
        add(map(type, opened))
        add([type(each()) for each in self._objects])
        add(chain.from_iterable(map(_HOOKS_OF, tensors)))
        return tuple(found)

    def tensors(self) -> list[Any]:
        return [each() for each in self._tensors.values()]

    def snapshot(self, tensors: Sequence[Tensor]) -> tuple[object, ...]:
        """What is there now, but the tensors' forms; equal snapshots mean the same while nothing of them dies."""
        memory: Any = [each() for each in self._memory]
        return (
            identities(self.found(tensors)),
            list(map(len, self._sized)),
            list(map(len, self._whole)),
            any(self._empty),
            list(map(Tensor.data_ptr, tensors)),
            list(map(Tensor.data_ptr, memory)),
            [each() for each in self._computed],
        )


class Glance:
    """Tells whether a walk would find again what it found before."""

    def __init__(self, reads: Reads) -> None:
        self._reads: Reads | None = reads
        tensors = reads.tensors()
        found = {id(each): each for each in reads.found(tensors)}
        forget = partial(_forget, weakref.ref(self))
        self._anchors = [reference(each, forget) for each in found.values()]  # no identity is used again
        self._have_forms = check_of_forms(tensors)
        self._seen = reads.snapshot(tensors)

    def holds(self) -> bool:
        if (reads := self._reads) is None:
            return False
        tensors = reads.tensors()
        try:
            return self._have_forms(*tensors) and reads.snapshot(tensors) == self._seen
        except _GONE:
            return False

    def forget(self) -> None:
        self._reads, self._anchors = None, []


def _forget(glance: weakref.ref[Glance], _: object) -> None:
    if (found := glance()) is not None:
        found.forget()


def reference(value: T, drop: Callable[[Any], None] | None = None) -> Callable[[], T | None]:
    """A weak reference where possible, else a strong one; `drop` is called when the object dies."""
    try:
        return weakref.ref(value, drop)
    except TypeError:
        return lambda: value


def check_of_forms(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Tells whether tensors have the forms that these have: `.data` may be another part of the same memory."""
    sizes, strides = [[*each.shape] for each in tensors], [[*each.stride()] for each in tensors]
    with suppress(AttributeError, RuntimeError, SystemError, TypeError):  # what torch.compile asks, in 0.1 us a tensor
        guards: Any = torch._C._dynamo.guards.TensorGuards
        check: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        if check(*tensors):
            return check
    seen = _forms(*tensors)
    return lambda *now: _forms(*now) == seen


def _forms(*tensors: Tensor) -> list[Hashable]:
    return [(each.shape, each.stride(), each.dtype, each.requires_grad) for each in tensors]


def _in_slots(names: tuple[str, ...], value: Callable[[], object]) -> tuple[object, ...]:
    found = value()
    return tuple(own(found, name) for name in names)


def _addresses(values: tuple[object, ...]) -> Hashable:
    """The memory of a tuple, which holds the addresses of its items."""
    return ctypes.string_at(id(values) + tuple.__basicsize__, len(values) * _POINTER)


def _ids(values: tuple[object, ...]) -> Hashable:
    return tuple(map(id, values))


_SAMPLE = (None, 0, "")
# ten times as fast as the identities one by one, where Python keeps tuples so
identities = _addresses if _addresses(_SAMPLE) == bytes((ctypes.c_void_p * 3)(*map(id, _SAMPLE))) else _ids
