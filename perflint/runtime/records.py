"""Which calls of a function were observed, which are captured, which stay eager and why."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from perflint.runtime.reads import reference
from perflint.runtime.refusal import CannotCapture, Facts, Unsettled, inside, observe
from perflint.runtime.scope import Scope
from perflint.runtime.walk import Key, Walk

_SEEN = 64  # keys that were met once and are remembered
_PATIENCE = 40  # what calls that aren't replayed may cost, beyond those that are
_CAPTURE_COST = 4  # of such calls
_MOST_GRAPHS = 8  # of a function
_SHARE = 4  # they may hold one part in so many of the device's memory

P = ParamSpec("P")
R = TypeVar("R")


class Record:
    """One key: what its eager run showed, and its capture once there is one."""

    def __init__(self, key: Hashable, facts: Facts, notes: Any = None) -> None:
        self.key, self.facts, self.notes = key, facts, notes
        self.capture: Any = None
        self.anchors: list[object] = []

    def hold(self, objects: Iterable[object], drop: Callable[[object], None]) -> None:
        """Keep the identities in the key from being used again: `drop` is called when one of the objects dies."""
        self.anchors += [reference(value, drop) for value in objects]


class Records:
    """The records of one function, least recently used first, bounded in number and in device memory."""

    def __init__(self, name: str) -> None:
        self.lock = threading.RLock()
        self.refused: dict[Hashable, str] = {}
        self._name = name
        self._scope: Scope | None = None
        self._records: OrderedDict[Hashable, Record] = OrderedDict()
        self._cost = 0
        self._unsettled: set[Hashable] = set()

    def scope_of(self, *functions: object) -> Scope:
        """What is known of the code of these functions; local ones of the same code share it."""
        if self._scope is None:
            self._scope = Scope(*functions)
        return self._scope

    def find(self, key: Hashable) -> Record | None:
        record = self._records.get(key)
        if record is not None:
            self._records.move_to_end(key)
        return record

    def observe(
        self,
        mode: Hashable,
        walk: Callable[[], Walk],
        functions: Iterable[object],
        run: Callable[[], Any],
        key: Callable[[Walk], Key],
        notes: Any = None,
    ) -> Any:
        """Run eagerly, and remember what that showed by the `key` of the walk; refuse what a replay would not do."""
        seen = walk()
        while seen.scope.learn((*seen.modules, *seen.objects, *functions)):
            seen = walk()
        try:
            with inside():
                result, facts = observe(seen, walk, run)
        except CannotCapture as refusal:
            self.doubt(mode, refusal)
            return refusal.args[1]
        with self.lock:
            if not self.add(key(seen), facts, (*seen.modules, *seen.objects, *seen.state), notes):
                self.refuse(mode, "its arguments, or what else it reads, differ from call to call")
        return result

    def add(self, key: Hashable, facts: Facts, objects: Iterable[object], notes: Any = None) -> bool:
        record = Record(key, facts, notes)
        records = weakref.ref(self)

        def drop(_: object) -> None:
            if (still := records()) is not None:
                still._records.pop(key, None)

        record.hold(objects, drop)
        self._records[key] = record
        waiting = [k for k, r in list(self._records.items()) if r.capture is None]
        for old in waiting[: max(0, len(waiting) - _SEEN)]:
            self._records.pop(old, None)
        self._cost += 1
        return self._cost <= _PATIENCE

    def keep(self, record: Record, capture: Any) -> str | None:
        self._cost += _CAPTURE_COST
        limit = _most_bytes()
        if capture.bytes > limit:
            return f"a graph of it would hold {capture.bytes / 2**20:.0f} MiB, more than {limit / 2**20:.0f}"
        record.capture = capture
        captured = [r for r in list(self._records.values()) if r.capture is not None and r is not record]
        held = capture.bytes + sum(r.capture.bytes for r in captured)
        while captured and (len(captured) >= _MOST_GRAPHS or held > limit):
            oldest = captured.pop(0)
            held -= oldest.capture.bytes
            oldest.capture = None
        return None

    def replayed(self) -> None:
        self._cost = max(0, self._cost - 1)

    def doubt(self, mode: Hashable, refusal: CannotCapture) -> None:
        """Refuse, except after a mode's first call that changes what it reads, which may have been a set-up.

        So does cuDNN, which gathers an RNN's weights in one piece of memory, and so do caches that fill themselves.
        """
        if isinstance(refusal, Unsettled) and mode not in self._unsettled:
            self._unsettled.add(mode)
        else:
            self.refuse(mode, refusal.args[0])

    def refuse(self, mode: Hashable, reason: str) -> None:
        if reason not in self.refused.values():
            self.warn(f"stays eager: {reason}")
        self.refused[mode] = reason
        for key, record in list(self._records.items()):
            if record.capture is None:
                self._records.pop(key, None)

    def warn(self, text: str) -> None:
        warnings.warn(f"perflint: {self._name} {text}", RuntimeWarning, stacklevel=2)

    def captures(self) -> list[Any]:
        return [record.capture for record in list(self._records.values()) if record.capture is not None]

    def clear(self) -> None:
        with self.lock:
            self._records.clear()
            self.refused.clear()
            self._unsettled.clear()
            self._cost = 0


class Graphed(ABC, Generic[P, R]):
    """Called like the function, and a method where the function would be one.

    Raises TypeError for generator functions, coroutines and what can't be called.
    """

    _records: Records

    def __init__(self, function: Callable[P, R], decorator: str) -> None:
        if not callable(function):
            raise TypeError(f"{decorator} needs a callable, not {type(function).__name__}")
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"{decorator} can't capture generators or coroutines")
        self.__qualname__ = type(function).__qualname__
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__: Callable[P, R] = function

    @abstractmethod
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, and copied by reference, as functions are

    @property
    def graphs(self) -> int:
        return len(self._records.captures())

    @property
    def bytes(self) -> int:
        return sum(capture.bytes for capture in self._records.captures())

    @property
    def eager_because(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._records.refused.values()))

    def clear(self) -> None:
        self._records.clear()


def _most_bytes() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory // _SHARE


def name_of(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
