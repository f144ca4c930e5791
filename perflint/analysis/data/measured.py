"""What runs have found enough for a program's loaders, as the value of a rule's option."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.analysis.data.loaders import LoaderCall

OPTION = "measured"  # of rules that use figures
_ADDED = ("num_workers", "pin_memory", "prefetch_factor")


def as_option(figures: Iterable[tuple[str, int, int]]) -> str:
    """A line for each call: workers, batches that each keeps ready, its text. Of two for one call, neither."""
    known: dict[str, set[str]] = {}
    for call, workers, prefetch in figures:
        known.setdefault(call, set()).add(f"{workers} {prefetch} {call}")
    return "\n".join(sorted(line for lines in known.values() if len(lines) == 1 for line in lines))


def _of_option(option: str) -> dict[str, tuple[int, int]]:
    """Workers, and the batches that each keeps ready, by the text of the call."""
    lines = (line.split(" ", 2) for line in option.splitlines())
    return {call: (int(workers), int(prefetch)) for workers, prefetch, call in lines}


def call_text(call: ast.Call) -> str:
    """What stays the same of a loader's call, however it is laid out, and whatever a fix adds to it."""
    kept = [keyword for keyword in call.keywords if keyword.arg not in _ADDED]
    return " ".join(ast.unparse(ast.Call(call.func, call.args, kept)).split())


def measured_workers(option: str, loader: LoaderCall) -> tuple[int, int] | None:
    """The workers, and the batches that each keeps ready, which runs of `loader` have found enough; None before.

    `option` is the value of the rule's option called `OPTION`.
    """
    return _of_option(option).get(call_text(loader.call))
