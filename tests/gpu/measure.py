"""Measures on a GPU what each rule's fix gains: `python -m tests.gpu.measure [--pairs N] [--output FILE]`."""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from perflint.engine.catalogue import all_rules
from perflint.engine.fix import FixResult, fix_text
from perflint.engine.rule import Finding, Fix, Safety

PROGRAMS = Path(__file__).parent / "programs"
BY_HAND = Path(__file__).parent / "programs_by_hand"


def load(path: Path, text: str) -> ModuleType:
    """The program `text`, run as a module of its own."""
    module = ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def fixed(text: str, select: Collection[str] = ()) -> str:
    """What `perflint fix --unsafe` makes of a program, by the selected rules if there are any."""
    return fix(text, select=select).text


def fix(text: str, *, exact: bool = False, select: Collection[str] = ()) -> FixResult:
    """The same with the fixes that made it, or what the `exact` ones alone make."""
    rules = [rule for rule in all_rules() if not select or rule.name in select]
    options = {rule.name: {name: option.default for name, option in rule.options.items()} for rule in rules}

    def accept(_text: str, _finding: Finding, fix: Fix) -> str:
        return "it is not exact" if exact and fix.safety is not Safety.EXACT else ""

    return fix_text(text, rules, options, unsafe=True, accept=accept)


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one run, from idle device to idle device."""
    _synchronize()
    start = time.perf_counter()
    run()
    _synchronize()
    return time.perf_counter() - start


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_megabytes(run: Callable[[], object]) -> float:
    """Peak of the memory that torch allocates on the device during one run."""
    if not torch.cuda.is_available():
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated() / 2**20


def measure(path: Path, pairs: int, select: Collection[str] = ()) -> dict[str, Any]:
    """Original and fixed program in turn: medians in milliseconds, the ratio of pairs, whether results are equal."""
    text = path.read_text(encoding="utf-8")
    patched = fixed(text, select)
    assert patched != text, f"{path.name}: nothing to fix"
    runs = [load(path, text).run, load(path, patched).run]
    expert = BY_HAND / path.name
    if expert.exists():
        runs.append(load(expert, expert.read_text(encoding="utf-8")).run)
    before, after = runs[:2]
    first, second = before(), after()
    for run in runs:
        seconds(run)
    times = []
    for pair in range(pairs):
        order = range(len(runs)) if pair % 2 == 0 else reversed(range(len(runs)))
        taken = {number: seconds(runs[number]) for number in order}
        times.append([taken[number] for number in range(len(runs))])
    controls = [seconds(before) / seconds(before) for _ in range(pairs)]
    ratios = [each[0] / each[1] for each in times]
    return {
        "program": path.stem,
        "before_ms": statistics.median(each[0] for each in times) * 1e3,
        "after_ms": statistics.median(each[1] for each in times) * 1e3,
        "by_hand_ms": statistics.median(each[2] for each in times) * 1e3 if expert.exists() else None,
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "control_range": [min(controls), max(controls)],
        "before_mb": peak_megabytes(before),
        "after_mb": peak_megabytes(after),
        "bitwise_equal": equal(first, second),
        "difference": difference(first, second),
        "raw": times,
    }


def equal(a: Any, b: Any) -> bool:
    """Bitwise equality of nested results, types included."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)


def difference(a: Any, b: Any) -> float:
    """The largest difference between nested results, relative to the largest number of its tensor."""
    if isinstance(a, torch.Tensor):
        scale = max(float(a.abs().max()), 1e-30) if a.numel() else 1.0
        return (
            float((a - b).abs().max()) / scale if a.numel() and a.is_floating_point() else float(not torch.equal(a, b))
        )
    if isinstance(a, list | tuple):
        return max((difference(one, other) for one, other in zip(a, b, strict=True)), default=0.0)
    return abs(a - b) if isinstance(a, int | float) else float(a != b)


def main() -> None:
    """Measure every program and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="The names of programs; all where none is given.")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--select", nargs="+", default=(), help="the rules whose fixes are measured; all by default")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"{device}, torch {torch.__version__}, {datetime.date.today()}")
    results = []
    for path in sorted(PROGRAMS.glob("*.py")):
        if options.programs and path.stem not in options.programs:
            continue
        result = measure(path, options.pairs if "loader" not in path.stem else 3, options.select)
        results.append(result)
        print(
            f"{path.stem:22s} {result['before_ms']:9.2f} ms -> {result['after_ms']:9.2f} ms  {result['ratio']:5.2f}x"
            f"  (control {result['control_range'][0]:.2f} to {result['control_range'][1]:.2f})"
            f"  {result['before_mb']:.0f} -> {result['after_mb']:.0f} MB  bitwise equal: {result['bitwise_equal']}"
            f" ({result['difference']:.1e})"
            + (f"  by hand {result['by_hand_ms']:.2f} ms" if result["by_hand_ms"] else "")
        )
    if options.output:
        options.output.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
