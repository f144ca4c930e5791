"""Why a function can't be captured, in words that name the user's own line."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType, TracebackType

import torch

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)


class CannotCapture(Exception):
    """What a CUDA graph would not hold, or would hold wrongly; the message is the reason."""


class Unsettled(CannotCapture):
    """What a call reads is another after it: the function keeps something, or was called for the first time."""


def is_foreign(filename: str) -> bool:
    """Whether a file is neither torch's nor this package's."""
    return not filename.startswith((_TORCH, _OURS, "<"))


def current_line() -> str:
    """`file.py:12`: the innermost line of the user's code that is running now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "unknown line"


def explain(error: BaseException) -> str:
    """One line for the first of a chain of errors, and the user's line that it came from."""
    while error.__context__ is not None:
        error = error.__context__
    if isinstance(error, CannotCapture):
        return str(error)
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{_line_of(error.__traceback__)}: {type(error).__name__}: {text}"


def _line_of(trace: TracebackType | None) -> str:
    places = [frame for frame in traceback.extract_tb(trace) if is_foreign(frame.filename)]
    return f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "unknown line"
