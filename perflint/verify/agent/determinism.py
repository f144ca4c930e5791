"""Algorithms that repeat, seeds, RNG states and clocks of the user's process."""

from __future__ import annotations

import functools
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perflint.shim.hooks import after

_SEEDERS = {  # the functions by which programs seed each library
    "random": ("random.seed",),
    "numpy": ("numpy.random.seed", "numpy.random.default_rng"),
    "torch": ("torch.manual_seed", "torch.random.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all"),
}
_numpy_seeds = random.Random()  # for numpy's generators that the program does not seed
_OTHER_SAMPLES = 2**32  # more than any seed
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_CYCLE, _FAST = 2.5, 0.1  # seconds, and how many of them at the start of a cycle are fast
_UNASKED = r"(?s).*torch\.use_deterministic_algorithms\(True"  # what torch warns of where nothing repeats exactly
_FILTERS = ("simplefilter", "filterwarnings", "resetwarnings")


def repeat(torch: Any) -> None:
    """Have torch use deterministic algorithms where there are any, without warnings about others.

    A program may turn warnings into errors, so its own filters come behind this one.
    """
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False  # its rounding hides what differs; a program may set it again
    ignore = functools.partial(warnings.filterwarnings, "ignore", _UNASKED)
    for name in _FILTERS:
        setattr(warnings, name, after(getattr(warnings, name), lambda *_, **__: ignore()))
    ignore()


def rng_states() -> list[Any]:
    import torch

    numpy = sys.modules.get("numpy")
    device = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return [
        torch.get_rng_state(),
        torch.cuda.get_rng_state() if device else None,
        random.getstate(),
        numpy.random.get_state() if numpy else None,
        _numpy_seeds.getstate(),
    ]


def restore_rng(states: Sequence[Any]) -> None:
    import torch

    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1])
    random.setstate(states[2])
    if states[3] is not None:
        sys.modules["numpy"].random.set_state(states[3])
    _numpy_seeds.setstate(states[4])


def reseed() -> None:
    import torch

    torch.manual_seed(torch.initial_seed() + 1)
    random.seed(random.getrandbits(32))
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(numpy.random.randint(2**31))


def seed_numpy(numpy: Any, seed: int, *, other_samples: bool) -> None:
    """Seed numpy, and what draws its seed from the system, such as gymnasium's environments: with `other_samples`
    differently.
    """
    numpy.random.seed(seed)
    _numpy_seeds.seed(seed + other_samples * _OTHER_SAMPLES)  # generators that the program holds can't be reseeded
    numpy.random.bit_generator.randbits = lambda bits: _numpy_seeds.getrandbits(bits) ^ _worker_seed()


def _worker_seed() -> int:
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data else None
    return worker.seed if worker else 0


def shift_seeds(library: str, by: int) -> None:
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


def distort_clocks(times: int) -> None:
    """Make clocks alternate between `times` as fast and as slow, so that printed times differ.

    Short times grow, so that enough digits differ, and long ones shrink; no clock runs far ahead, as a program may wait
    by it. Dates are left alone: they aren't compared, and their class can't be patched.
    """
    for name in _CLOCKS:
        for suffix, second in (("", 1), ("_ns", 1_000_000_000)):
            if clock := getattr(time, f"{name}{suffix}", None):
                setattr(time, f"{name}{suffix}", _Distorted(clock, clock(), times, second))


@dataclass(frozen=True)
class _Distorted:
    """A clock distorted from its reading `begin` on; a second has `second` of its units."""

    clock: Callable[[], float]
    begin: float
    times: int
    second: int

    def __call__(self) -> float:
        cycles, rest = divmod(self.clock() - self.begin, _CYCLE * self.second)
        passed = cycles * self._passed(_CYCLE * self.second) + self._passed(rest)
        return self.begin + type(self.begin)(passed)

    def _passed(self, rest: float) -> float:
        fast = min(rest, _FAST * self.second)
        return fast * self.times + (rest - fast) / self.times
