"""The generators of random numbers in the user's process: where they stand, and from which seeds they begin."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Sequence
from typing import Any

_SEEDERS = {
    "random": ("random.seed",),
    "numpy": ("numpy.random.seed", "numpy.random.default_rng"),
    "torch": ("torch.manual_seed", "torch.random.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all"),
}  # what programs seed by, in each library
_SEEDS = random.Random()  # what those of numpy's generators are seeded by that the program doesn't seed
_STIRRED = 2**32  # more than any seed


def states() -> list[Any]:
    """The states of all generators that have one for the whole process."""
    import torch

    numpy = sys.modules.get("numpy")
    device = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return [
        torch.get_rng_state(),
        torch.cuda.get_rng_state() if device else None,
        random.getstate(),
        numpy.random.get_state() if numpy else None,
        _SEEDS.getstate(),
    ]


def take_over(known: Sequence[Any]) -> None:
    """Have all generators go on from these states."""
    import torch

    torch.set_rng_state(known[0])
    if known[1] is not None:
        torch.cuda.set_rng_state(known[1])
    random.setstate(known[2])
    if known[3] is not None:
        sys.modules["numpy"].random.set_state(known[3])
    _SEEDS.setstate(known[4])


def stir() -> None:
    """Have all generators go on with other numbers than they would have."""
    import torch

    torch.manual_seed(torch.initial_seed() + 1)
    random.seed(random.getrandbits(32))
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(numpy.random.randint(2**31))


def seed_numpy(numpy: Any, seed: int, *, stirred: bool) -> None:
    """Seed numpy, and what the program makes of its generators without a seed: if `stirred`, by other numbers."""
    numpy.random.seed(seed)
    _SEEDS.seed(seed + stirred * _STIRRED)  # there is no stirring generators later that the program holds
    make = numpy.random.default_rng

    @functools.wraps(make)
    def seeded(seed: Any = None) -> Any:
        return make([_SEEDS.getrandbits(64), _worker_seed()] if seed is None else seed)

    numpy.random.default_rng = seeded


def _worker_seed() -> int:
    """That of a loader's worker: all workers begin with the state of the process that has forked them."""
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data else None
    return worker.seed if worker else 0


def shift_seeds(library: str, by: int) -> None:
    """Add so much to every seed that the program gives to a library, which has been imported."""
    for place in _SEEDERS[library]:
        path, _, name = place.rpartition(".")
        owner = functools.reduce(getattr, path.split(".")[1:], sys.modules[library])
        setattr(owner, name, _shifted(getattr(owner, name), by))


def _shifted(seeder: Any, by: int) -> Any:
    @functools.wraps(seeder)
    def shifted(*given: Any, **named: Any) -> Any:
        first = [seed + by if type(seed) is int else seed for seed in given[:1]]
        if type(named.get("seed")) is int:
            named["seed"] += by
        return seeder(*first, *given[1:], **named)

    return shifted
