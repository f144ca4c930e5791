"""Functions that note what they are called with, or what they return."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def noting_calls(function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """`function`, which gives its arguments to `note` before each call."""

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        note(*args, **kwargs)
        return function(*args, **kwargs)

    return noted


def noting_results(function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """`function`, which gives what it returns, and its arguments, to `note` behind each call."""

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        note(result, *args, **kwargs)
        return result

    return noted
