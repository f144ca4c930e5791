"""Notes which of the user's lines a thread is at, and when, by Python's own tracing."""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from perflint.profile.record import Node

_MOST = 2_000_000  # lines that are noted: 24 MB
_ROOT = Node(-1, "", 0, "")

Inspect = Callable[[FrameType], None]


class Users:
    """Tells the user's files from libraries: those that lie in none of the folders `libraries`."""

    def __init__(self, libraries: tuple[str, ...]) -> None:
        self._libraries = libraries
        self._known: dict[str, bool] = {}

    def owns(self, code: CodeType) -> bool:
        """Whether a code object comes from a file of the user's."""
        name = code.co_filename
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._is_users(name)
        return known

    def _is_users(self, name: str) -> bool:
        return not name.startswith((*self._libraries, "<"))

    def files(self) -> list[str]:
        """The files of the user's that modules have been loaded from."""
        names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        return sorted(name for name in names if isinstance(name, str) and name.endswith(".py") and self._is_users(name))

    def place(self, frame: FrameType | None) -> tuple[str, int]:
        """The file and line of the innermost of the user's frames from `frame` outwards; ("", 0) without any."""
        found = next(self.frames(frame), None)
        return (found.f_code.co_filename, found.f_lineno) if found else ("", 0)

    def frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The user's frames from `frame` outwards."""
        while frame:
            if self.owns(frame.f_code):
                yield frame
            frame = frame.f_back


class Lines:
    """Traces this thread between `start` and `stop`; `inspect` is called with the user's frames as they return.

    `times[i]` is when the thread came to the line of node number `at[i]`, where it stays until the next one. `frames`
    are those that it was in at the start.
    """

    def __init__(self, users: Users, inspect: Inspect = lambda _: None) -> None:
        self._users, self._inspect = users, inspect
        self.nodes = [_ROOT]
        self.times, self.at = array("q"), array("i")
        self._ids: dict[tuple[int, CodeType, int], int] = {}
        self._stack = [0]
        self.frames: list[FrameType] = []

    def start(self, frame: FrameType | None) -> bool:
        """Trace from now on, in `frame` and what it was called by as well; False if somebody else traces."""
        if sys.gettrace() is not None:
            return False
        self.frames = list(self._users.frames(frame))[::-1]
        for each in self.frames:
            self._stack.append(self._node(each, self._stack[-1]))
            each.f_trace = self._local
        self._note()
        sys.settrace(self._global)
        return True

    def stop(self) -> None:
        """Trace no more, unless somebody else does meanwhile."""
        if sys.gettrace() == self._global:
            sys.settrace(None)
        for each in self.frames:
            each.f_trace = None

    def _global(self, frame: FrameType, event: str, _: Any) -> Any:
        if event != "call" or not self._users.owns(frame.f_code):
            return None
        self._stack.append(self._node(frame, self._stack[-1]))
        self._note()
        return self._local

    def _local(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and len(self._stack) > 1:
            self._stack[-1] = self._node(frame, self._stack[-2])
            self._note()
        elif event == "return" and len(self._stack) > 1:
            self._inspect(frame)
            self._stack.pop()
            self._note()
        return self._local

    def _note(self) -> None:
        self.times.append(time.time_ns())
        self.at.append(self._stack[-1])
        if len(self.times) > _MOST:
            self.stop()

    def _node(self, frame: FrameType, parent: int) -> int:
        key = (parent, frame.f_code, frame.f_lineno)
        node = self._ids.get(key)
        if node is None:
            node = self._ids[key] = len(self.nodes)
            self.nodes.append(Node(parent, frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        return node
