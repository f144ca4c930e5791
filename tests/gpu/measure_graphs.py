"""Measures captured loops on a GPU, beside eager mode and others: `python -m tests.gpu.measure_graphs`."""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import random
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.gpu.graph_cases import Case, cases
from tests.gpu.graph_overheads import overheads
from tests.gpu.measure import equal, seconds

WINDOW = 3  # calls between two synchronisations
CAPTURES = 3  # of each variant: by where its memory lies, the same graph takes up to 6 % more or less time


def window(run: Callable[[], object]) -> float:
    """Seconds of one call, over a window of several."""

    def several() -> None:
        for _ in range(WINDOW):
            run()

    return seconds(several) / WINDOW


def prepare(case: Case, compilers: bool) -> tuple[dict[str, Callable[[], Any]], dict[str, float], dict[str, str]]:
    """The variants that run, the time of each one's first calls, and the errors of the others."""
    runs: dict[str, Callable[[], Any]] = {}
    starts: dict[str, float] = {}
    errors: dict[str, str] = {}
    for name, make in case.variants.items():
        if name.startswith("torch.") and not compilers:
            continue
        try:
            start = time.perf_counter()
            run = make()
            for _ in range(4):
                run()
            torch.cuda.synchronize()
            runs[name], starts[name] = run, time.perf_counter() - start
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
    return runs, starts, errors


def measure(case: Case, rounds: int, compilers: bool) -> dict[str, Any]:
    """Medians in milliseconds and of paired ratios to eager mode; whether results are bitwise equal."""
    captures = [prepare(case, compilers) for _ in range(CAPTURES)]
    starts, errors = captures[0][1], {name: error for _, _, failed in captures for name, error in failed.items()}
    names = [name for name in starts if name not in errors]
    expected = copy.deepcopy(captures[0][0]["eager"]())
    same = {name: all(equal(runs[name](), expected) for runs, _, _ in captures) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    again = []
    for number in range(rounds):
        runs = captures[number % CAPTURES][0]
        for name in random.sample(names, len(names)):
            times[name].append(window(runs[name]))
        again.append(window(runs["eager"]))
    ratios = {name: [a / b for a, b in zip(times["eager"], t, strict=True)] for name, t in times.items()}
    ratios["eager"] = [a / b for a, b in zip(times["eager"], again, strict=True)]
    return {
        "case": case.name,
        "floor": case.floor,
        "same": same,
        "first_calls_s": starts,
        "errors": errors,
        "ms": {name: statistics.median(t) * 1e3 for name, t in times.items()},
        "ratio": {name: statistics.median(r) for name, r in ratios.items()},
        "ratio_range": {name: [min(r), max(r)] for name, r in ratios.items()},
        "to_expert": {
            name: statistics.median(a / b for a, b in zip(times["by hand"], times[name], strict=True))
            for name in ("perflint", "perflint fix")
            if "by hand" in times and name in times
        },
        "captures": CAPTURES,
        "raw": times,
    }


def show(result: dict[str, Any]) -> None:
    """Print one case."""
    beside = ", ".join(f"{name} {ratio:.3f}" for name, ratio in result["to_expert"].items())
    print(f"{result['case']}  (floor {result['floor']}x; of the speed by hand: {beside})", flush=True)
    for name, ms in result["ms"].items():
        low, high = result["ratio_range"][name]
        print(
            f"    {name:34s} {ms:8.2f} ms {result['ratio'][name]:6.2f}x ({low:.2f} to {high:.2f})"
            f"  bitwise {result['same'][name]!s:5}  first calls {result['first_calls_s'][name]:.1f} s"
        )
    for name, error in result["errors"].items():
        print(f"    {name:34s} failed: {error}")


def main() -> None:
    """Measure every case whose name contains `--only`, print a table and write raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--compilers", action="store_true", help="measure torch.jit.script and torch.compile too")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"{device}, torch {torch.__version__}, {datetime.date.today()}")
    warnings.filterwarnings("default", message="perflint")
    results = []
    for case in cases():
        if options.only in case.name:
            results.append(measure(case, options.rounds, options.compilers))
            show(results[-1])
    extra = overheads()
    for name, value in extra.items():
        print(f"{name:60s} {value}")
    if options.output:
        options.output.write_text(json.dumps({"cases": results, "overheads": extra}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
