"""Verdicts for tests: of a patch that won, and of whatever else a program can come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perflint.engine.rule import Safety
from perflint.verify.agent.timeline import DEVICE, HOST, LOADER, Span, Timeline
from perflint.verify.statistics import PATCHED, Estimate, against_original, is_faster, itself, noise_floor
from perflint.verify.summary import merit, too_little, wrong
from perflint.verify.verdict import FixVerdict, Grade, Hunk, Likeness, Side, Verdict
from tests.verify.races import CALM, race

BITWISE = Likeness(
    Grade.BITWISE, ("loss, 12 gradients, 12 parameters and 24 states are bitwise the same over 20 steps",)
)
DIFF = """@@ -15,4 +15,4 @@
     for data, target in loader:
-        total += loss.item()
+        total += loss.detach()
     return total
"""


def fix(number: int = 0, **changes: Any) -> FixVerdict:
    """A fix that ran and kept its promise."""
    name = f"item-in-loop train.py:{10 + number}"
    made = FixVerdict(
        name,
        "item-in-loop",
        str(Path("train.py").resolve()),
        10 + number,
        "add `total` up on the device",
        Safety.EXACT,
        f"{number:016x}",
        BITWISE,
        activations=320,
    )
    return replace(made, **changes)


def timeline(step: float, busy: float) -> Timeline:
    """Three steps in which the loader is waited for first, and the device is busy for the share `busy`."""
    spans = [
        span
        for begin in (0.0, step, 2 * step)
        for span in (
            Span(LOADER, begin, begin + 0.2 * step),
            Span(HOST, begin + 0.2 * step, begin + step),
            Span(DEVICE, begin + (1 - busy) * step, begin + step),
        )
    ]
    return Timeline(3 * step, tuple(spans), (step, 2 * step, 3 * step))


def losses(seed: int, steps: int = 20) -> tuple[float, ...]:
    """A training's losses, which differ a little with the seed."""
    noise = np.random.default_rng(seed).normal(0, 1e-6, steps)
    return tuple((2.3 * np.exp(-np.arange(steps) / 15) + noise).tolist())


def verdict(speedup: float = 1.5, fixes: tuple[FixVerdict, ...] | None = None, **changes: Any) -> Verdict:
    """The verdict on a patch whose first fix brings all of the gain."""
    fixes = (fix(0), fix(1)) if fixes is None else fixes
    samples = race(np.random.default_rng(19), CALM, rounds=5, pairs=8, speedups={PATCHED: speedup})
    gain, aa = against_original(samples, PATCHED), itself(samples)
    assert gain is not None
    assert aa is not None
    floor = noise_floor(aa)
    decided = [
        _decided(each, floor, aa if number else gain, aa if number else None) for number, each in enumerate(fixes)
    ]
    before = Side(12.0, 2_031_000_000, 3_100_000_000, losses(0), timeline(0.02, 0.31))
    after = Side(14.0, 1_494_000_000, 3_200_000_000, losses(2), timeline(0.02 / speedup, 0.96))
    made = Verdict(
        program="train.py --epochs 1",
        date="2026-11-21T18:00:00+00:00",
        device="NVIDIA H200",
        environment={"torch": "2.11.0", "CUDA": "13.0", "python": "3.11.9", "perflint": "0.1.0", "driver": "590.1"},
        unit="optimizer steps",
        warm_up=10,
        samples=samples,
        own=BITWISE,
        likeness=BITWISE,
        before=before,
        after=after,
        again=replace(before, losses=losses(1)),
        fixes=tuple(decided),
        hunks=tuple(Hunk(each.path, DIFF, (each.name,)) for each in fixes[:1]),
        excluded=("2 of 40 windows, in which the patched program captured a graph",),
    )
    return replace(made, **changes)


def _decided(fix: FixVerdict, floor: float, alone: Estimate, on_top: Estimate | None) -> FixVerdict:
    if reason := wrong(fix, Grade.BITWISE):
        return replace(fix, reason=reason)
    fix = replace(fix, alone=alone, on_top=on_top)
    kept = is_faster(on_top or alone, floor)
    return replace(fix, kept=kept, reason=merit(fix) if kept else too_little(fix, alone, was_chosen=False))
