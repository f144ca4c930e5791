"""How often races of so many rounds and pairs are right: `python -m tests.bench.protocols [RACES]`, simulated.

The interval covers the truth in 95 to 99 of 100 races, with three rounds as with eight, also where the patch alone is
noisy, while a bootstrap that draws rounds and then pairs covers it in 84 to 91 with three.
"""

from __future__ import annotations

import sys

import numpy as np

from perflint.verify.statistics import PATCHED, Outcome, against_original, itself, noise_floor, speed
from tests.verify.races import CALM, NOISES, ROUGH, Noise, race


def share(noise: Noise, rounds: int, pairs: int, speedup: float, wanted: Outcome, races: int) -> float:
    """In how many of a hundred races the verdict is `wanted`."""
    rng = np.random.default_rng(rounds * 100 + pairs)
    hits = 0
    for _ in range(races):
        samples = race(rng, noise, rounds=rounds, pairs=pairs, speedups={PATCHED: speedup})
        estimate, aa = against_original(samples, PATCHED), itself(samples)
        assert estimate is not None
        assert aa is not None
        hits += speed(estimate, noise_floor(aa)) is wanted
    return 100 * hits / races


def main() -> None:
    """Print the table."""
    races = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| rounds x pairs | identical, called faster (worst noise) | 5 % faster, found (calm) | (rough) |")
    print("| --- | --- | --- | --- |")
    for rounds in (3, 4, 5, 6, 8, 10):
        for pairs in (1, 3, 5, 10, 20):
            false = max(share(noise, rounds, pairs, 1.0, Outcome.FASTER, races) for noise in NOISES.values())
            calm, rough = (share(noise, rounds, pairs, 1.05, Outcome.FASTER, races) for noise in (CALM, ROUGH))
            print(f"| {rounds} x {pairs} | {false:.1f} | {calm:.1f} | {rough:.1f} |", flush=True)


if __name__ == "__main__":
    main()
