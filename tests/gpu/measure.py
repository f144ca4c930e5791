"""Measures on a GPU what each rule's fix gains: `python -m tests.gpu.measure [--pairs N] [--output FILE]`."""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from perflint.catalogue import all_rules
from perflint.fix import fix_text

PROGRAMS = Path(__file__).parent / "programs"


def load(path: Path, text: str) -> ModuleType:
    """The program `text`, run as a module of its own."""
    module = ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def fixed(text: str) -> str:
    """What `perflint fix --unsafe` makes of a program."""
    rules = all_rules()
    options = {rule.name: {name: option.default for name, option in rule.options.items()} for rule in rules}
    return fix_text(text, rules, options, unsafe=True).text


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


def measure(path: Path, pairs: int) -> dict[str, Any]:
    """Original and fixed program in turn: medians in milliseconds, the ratio of pairs, whether results are equal."""
    text = path.read_text(encoding="utf-8")
    patched = fixed(text)
    assert patched != text, f"{path.name}: nothing to fix"
    before, after = load(path, text).run, load(path, patched).run
    same = equal(before(), after())
    times = []
    for pair in range(pairs):
        order = (before, after) if pair % 2 == 0 else (after, before)
        first, second = seconds(order[0]), seconds(order[1])
        times.append((first, second) if pair % 2 == 0 else (second, first))
    controls = [seconds(before) / seconds(before) for _ in range(pairs)]
    return {
        "program": path.stem,
        "before_ms": statistics.median(t for t, _ in times) * 1e3,
        "after_ms": statistics.median(t for _, t in times) * 1e3,
        "ratio": statistics.median(a / b for a, b in times),
        "ratio_range": [min(a / b for a, b in times), max(a / b for a, b in times)],
        "control_range": [min(controls), max(controls)],
        "before_mb": peak_megabytes(before),
        "after_mb": peak_megabytes(after),
        "bitwise_equal": same,
        "raw": times,
    }


def equal(a: Any, b: Any) -> bool:
    """Bitwise equality of nested results, types included."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)


def main() -> None:
    """Measure every program and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"{device}, torch {torch.__version__}, {datetime.date.today()}")
    results = []
    for path in sorted(PROGRAMS.glob("*.py")):
        result = measure(path, options.pairs if "loader" not in path.stem else 3)
        results.append(result)
        print(
            f"{path.stem:22s} {result['before_ms']:9.2f} ms -> {result['after_ms']:9.2f} ms  {result['ratio']:5.2f}x"
            f"  (control {result['control_range'][0]:.2f} to {result['control_range'][1]:.2f})"
            f"  {result['before_mb']:.0f} -> {result['after_mb']:.0f} MB  bitwise equal: {result['bitwise_equal']}"
        )
    if options.output:
        options.output.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
