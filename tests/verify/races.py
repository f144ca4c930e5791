"""Simulated races: the noise of windows, processes, stalls and drift, as measured on machines that people share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perflint.verify.statistics import AGAIN, ORIGINAL, PATCHED, Samples, Window

STEP = 0.02  # seconds
STEPS = 25  # in a window


@dataclass(frozen=True)
class Noise:
    """Relative deviations: of windows, of processes (within these bounds if `bounded`), and drift over a round.

    `patched` is how many times as much of the first two the patched program has. One in thirty windows stalls, for 5 to
    50 % of its time.
    """

    window: float
    process: float
    drift: float = 0.03
    stalls: float = 1 / 30
    bounded: bool = False
    patched: float = 1.0


CALM = Noise(window=0.01, process=0.005)
ROUGH = Noise(window=0.02, process=0.01)
SHARED_HOST = Noise(window=0.02, process=0.03, bounded=True)
NOISY_PATCH = Noise(window=0.01, process=0.003, patched=6)
NOISES = {"calm": CALM, "rough": ROUGH, "shared host": SHARED_HOST, "noisy patch": NOISY_PATCH}


def race(
    rng: np.random.Generator, noise: Noise, *, rounds: int, pairs: int, speedups: Mapping[str, float] | None = None
) -> Samples:
    """A race of the original, the original again, and variants that are faster by a factor."""
    factors = {ORIGINAL: 1.0, AGAIN: 1.0, **(speedups or {PATCHED: 1.0})}
    scale = np.array([1.0 if factor == 1 and name != PATCHED else noise.patched for name, factor in factors.items()])
    shape = (rounds, pairs, len(factors))
    draw = (
        rng.uniform(-1, 1, (rounds, 1, len(factors))) if noise.bounded else rng.normal(size=(rounds, 1, len(factors)))
    )
    logs = noise.process * scale * draw + noise.window * scale * rng.normal(size=shape)
    logs += noise.drift * rng.normal(size=(rounds, 1, 1)) * np.linspace(0, 1, pairs)[:, None]
    logs += np.log1p((rng.random(shape) < noise.stalls) * rng.uniform(0.05, 0.5, shape))
    seconds = (STEPS * STEP * np.exp(logs) / np.array(list(factors.values()))).tolist()
    return Samples(
        tuple(
            Window(variant, round_, number, seconds[round_][number][place], STEPS)
            for round_ in range(rounds)
            for number in range(pairs)
            for place, variant in enumerate(factors)
        )
    )
