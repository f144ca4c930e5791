"""Knows in the user's process where it is: in which functions and loops that hold fixes and that it has never left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from perflint.verify.spec import Loop


class Places:
    """Loops of modules, and functions, each with what tells whether it is the first call that is running."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = loops
        self._functions: list[tuple[Callable[..., Any], Callable[[], bool]]] = []

    def add(self, function: Callable[..., Any], is_first: Callable[[], bool]) -> None:
        """Another function."""
        self._functions.append((function, is_first))

    def unseen(self) -> tuple[str, ...]:
        """The places, in words, that it is in and has never left."""
        functions = [_called(function) for function, is_first in self._functions if is_first()]
        loops = [f"the loop at {os.path.relpath(loop.path)}:{loop.first}" for loop in self._loops if _is_in(loop)]
        return (*functions, *loops)


def _is_in(loop: Loop) -> bool:
    """Whether its module is being executed at one of its lines."""
    frame: FrameType | None = sys._getframe()
    while frame:
        code = frame.f_code
        is_module = code.co_name == "<module>" and loop.first <= frame.f_lineno <= loop.last
        if is_module and os.path.realpath(code.co_filename) == loop.path:
            return True
        frame = frame.f_back
    return False


def _called(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    place = f" at {os.path.relpath(code.co_filename)}:{code.co_firstlineno}" if code else ""
    return f"{getattr(function, '__qualname__', 'a function')}(){place}"
