"""What all functions with graphs have in common: they look like the function, and tell what is held and refused."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from perflint.runtime.records import Records

P = ParamSpec("P")
R = TypeVar("R")


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
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, by replaying its graph where there is one."""

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, and copied by reference, as functions are

    @property
    def graphs(self) -> int:
        """How many graphs are held."""
        return len(self._records.captures())

    @property
    def bytes(self) -> int:
        """How much device memory they hold."""
        return sum(capture.bytes for capture in self._records.captures())

    @property
    def eager_because(self) -> tuple[str, ...]:
        """Why calls stay eager, each reason once."""
        return tuple(dict.fromkeys(self._records.refused.values()))

    def clear(self) -> None:
        """Free all graphs and forget what was found out about the function."""
        self._records.clear()


def name_of(function: object) -> str:
    """The name that warnings call a function by."""
    return getattr(function, "__qualname__", type(function).__name__)
