"""Notes what the user's variables hold: the class of each, and the rank, dtype and device of tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

_TIMES = 3  # that a function is looked at
_MOST_KINDS = 4  # of values of one name, before it is told nothing of
_MOST_FUNCTIONS = 500
_MOST_PARTS = 50


class Facts:
    """What was `seen`: descriptions of values, by file, function and name."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str, str], set[str]] = {}
        self._looks: dict[Any, int] = {}

    def note(self, frame: FrameType) -> None:
        """Note what the variables of a function hold, unless it was looked at often enough."""
        code = frame.f_code
        looks = self._looks.get(code, 0)
        if looks >= _TIMES or (not looks and len(self._looks) >= _MOST_FUNCTIONS):
            return
        self._looks[code] = looks + 1
        for name, value in (*frame.f_locals.items(), *_parts(frame.f_locals.get("self"))):
            if not name.startswith("__") and (said := _described(value)):
                kinds = self.seen.setdefault((code.co_filename, code.co_name, name), set())
                if len(kinds) < _MOST_KINDS:
                    kinds.add(said)

    def note_all(self, frames: Iterable[FrameType]) -> None:
        """The same of functions that have not returned."""
        for frame in frames:
            self.note(frame)
            values = frame.f_locals
            if values is not frame.f_globals and sys.version_info < (3, 13):
                values.clear()  # a copy, which would keep tensors alive


def _parts(module: Any) -> Iterator[tuple[str, Any]]:
    """The modules that a method finds in its own one, by the names that it has for them."""
    if isinstance(module, sys.modules["torch"].nn.Module):
        yield from ((f"self.{name}", each) for name, each in [*module._modules.items()][:_MOST_PARTS])


def _described(value: Any) -> str:
    """A value in words: `float32 tensor of rank 3 on cuda:0`, or the class of a module, a loss or an optimizer."""
    torch = sys.modules["torch"]
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} tensor of rank {value.dim()} on {value.device}"
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return f"{kind.__module__}.{kind.__qualname__}"
    if kind in (int, float, bool, str, list, tuple, dict):
        return kind.__name__
    return ""
