"""Measures what deferred prints cost beside none at all: `python -m tests.gpu.measure_reports SCRIPT ARGS`.

A copy of the script's folder beside it gets every fix, and is run with its deferred reports on and off by turns, 10 of
them each. One process holds both ways, as processes of the same program differ by more than what is looked for.
"""

from __future__ import annotations

import os
import runpy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from perflint.runtime import reports
from tests.gpu.measure_public import fixed

WINDOW, WARM_UP, SECONDS = 10, 20, 150.0


class Turns:
    """Reports for a window of calls, and leaves them out for the next."""

    def __init__(self, later: Callable[..., None]) -> None:
        self._later = later
        self._calls = 0
        self._begin = 0.0
        self._end = 0.0
        self.took: list[float] = []

    def __call__(self, function: Callable[..., object], *values: Any, **named: Any) -> None:
        number, place = divmod(self._calls, WINDOW)
        self._calls += 1
        if place == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.perf_counter()
            if number > WARM_UP:
                self.took.append(now - self._begin)
            else:
                self._end = now + SECONDS
            if now > self._end:
                self._told()
            self._begin = now
        if number % 2 == 0:
            self._later(function, *values, **named)

    def _told(self) -> None:
        pairs = list(zip(self.took[::2], self.took[1::2], strict=False))
        ratios = sorted(reported / silent for reported, silent in pairs)
        wide = round(0.98 * len(ratios) ** 0.5)  # of ranks, to either side: 95 % of a median by signs
        middle = len(ratios) // 2
        low, high = ratios[max(0, middle - wide)], ratios[min(len(ratios) - 1, middle + wide)]
        silent = 1e3 * statistics.median(silent for _, silent in pairs) / WINDOW
        times = f"{statistics.median(ratios):.4f} times that with reports ({low:.4f} to {high:.4f})"
        print(f"{len(ratios)} pairs of {WINDOW}: {silent:.3f} ms without, {times}", file=sys.stderr, flush=True)
        os._exit(0)


def main() -> None:
    """Fix a copy, and run it with reports by turns."""
    script = Path(sys.argv[1]).resolve()
    copy = fixed(script.parent, script.name)
    reports.later = Turns(reports.later)
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    sys.argv = [script.name, *sys.argv[2:]]
    runpy.run_path(script.name, run_name="__main__")


if __name__ == "__main__":
    main()
