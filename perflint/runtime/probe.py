"""Reads a few samples of a dataset, to learn what workers would change."""

from __future__ import annotations

import gc
import io
import logging
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from inspect import isfunction
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.data import Dataset

_SAMPLES = 4
_ENOUGH_S = 0.2  # of reading samples
_DEPTH = 4  # of containers and objects inside one another
_GENERATORS = (
    "random.Random",
    "torch._C.Generator",
    "numpy.random._generator.Generator",
    "numpy.random.mtrand.RandomState",
)
_MOST = 10_000  # objects that are looked at
_FIRST = 64  # in a container, of which the others are like these
_ATOMS = (str, bytes, int, float, complex, bool, type(None))
_CONTAINERS = (list, tuple, set, frozenset)
_CLOSED = (type, ModuleType, Tensor, io.IOBase, logging.Logger)  # what lies behind these is not the dataset's
_HANDLES = ("h5py.", "sqlite3.", "lmdb.", "zipfile.", "tarfile.", "socket.", "tables.", "netCDF4.")


@dataclass(frozen=True)
class Probe:
    """What reading samples showed: seconds of one (but the first, which may be slower), bytes of its tensors.

    `draws`: it takes random numbers; `copies`: from a generator of its own, which workers copy; `changes`: it alters
    the dataset; `device`: it holds or gives device tensors, as they are or collated; `recorded`: those given require
    gradients.
    """

    seconds: float
    bytes: int
    draws: bool
    copies: bool
    changes: bool
    device: bool
    recorded: bool


def probe(dataset: Any, collate: Callable[[list[Any]], Any] | None = None) -> Probe:
    parts = list(_nested_values(dataset))
    before = _state(parts)
    times: list[float] = []
    samples = []
    with _same_random_numbers() as has_drawn, redirect_stdout(io.StringIO()):
        for index in range(min(_SAMPLES, len(dataset))):
            start = time.perf_counter()
            samples.append(dataset[index])
            times.append(time.perf_counter() - start)
            if sum(times) > _ENOUGH_S:
                break
        given = collate(samples) if collate else samples[-1]
        draws = has_drawn()
    tensors = [each for each in _nested_values(samples[-1]) if isinstance(each, Tensor)]
    sent = [*tensors, *(each for each in _nested_values(given) if isinstance(each, Tensor))]
    return Probe(
        seconds=min(times),
        bytes=sum(tensor.nbytes for tensor in tensors),
        draws=draws,
        copies=any(_name(each) in _GENERATORS for each in (*parts, *_globals_of(parts))),
        changes=_state(_nested_values(dataset)) != before,
        device=any(isinstance(each, Tensor) and each.device.type != "cpu" for each in (*parts, *sent)),
        recorded=any(each.requires_grad for each in sent),
    )


def _nested_values(value: object, depth: int = _DEPTH) -> Iterator[object]:
    yield value
    if depth == 0 or isinstance(value, str | bytes | Tensor | type):
        return
    if isinstance(value, Mapping):
        inner: list[object] = list(value.values())[:_SAMPLES]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)[:_SAMPLES]
    else:
        inner = list(vars(value).values()) if hasattr(value, "__dict__") and not callable(value) else []
    for each in inner:
        yield from _nested_values(each, depth - 1)


def _globals_of(parts: Iterable[object]) -> Iterator[object]:
    for kind in {base for part in parts for base in type(part).__mro__}:
        for method in filter(isfunction, vars(kind).values()):
            yield from (method.__globals__.get(name) for name in method.__code__.co_names)


def _state(parts: Any) -> list[tuple[object, ...]]:
    return [
        (
            id(part) if isinstance(part, Tensor) or hasattr(part, "__dict__") else _plain(part),
            len(part) if isinstance(part, list | dict | set | tuple) else 0,
            part._version if isinstance(part, Tensor) and not part.is_inference() else 0,
        )
        for part in parts
    ]


def _plain(part: object) -> object:
    return part if isinstance(part, int | float | str | bytes | bool | None) else id(part)


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def host_rng() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy.random")
    return (
        random.getstate(),
        bytes(torch.get_rng_state().tolist()),
        [part.tobytes() if hasattr(part, "tobytes") else part for part in numpy.get_state()] if numpy else None,
    )


@contextmanager
def _same_random_numbers() -> Iterator[Callable[[], bool]]:
    """Restore generators after the block; yields whether they have moved so far."""
    numpy = sys.modules.get("numpy.random")
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy_state = numpy.get_state() if numpy else None
    before = host_rng()
    try:
        yield lambda: host_rng() != before
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        if numpy and numpy_state is not None:
            numpy.set_state(numpy_state)


def unshared(dataset: object) -> str:
    """Why workers would read something else than the program, by what the dataset holds; "" for no reason.

    Files and iterators move on as they are read, in each process by itself, even in memory. Parameters are trained in
    the program, and workers' copies are not.
    """
    return next(filter(None, map(_reason, _held(dataset))), "")


def _reason(value: object) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Parameter | Optimizer):
        return "it holds parameters, which would stay in workers as they were"
    if isinstance(value, io.IOBase) or name.startswith(_HANDLES):
        streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        return "" if any(value is each for each in streams) else f"it holds an open {name}"
    if hasattr(kind, "__next__") and not isinstance(value, Dataset):
        return f"it holds an iterator, a {name.removeprefix('builtins.')}"
    return ""


def _held(dataset: object) -> Iterator[object]:
    found, known = [dataset], {id(dataset)}
    for each in found:  # which grows
        yield each
        for inner in _inside(each):
            if len(found) < _MOST and not isinstance(inner, _ATOMS) and id(inner) not in known:
                known.add(id(inner))
                found.append(inner)


def _inside(value: object) -> Iterable[object]:
    if type(value) in _CONTAINERS:
        return islice(value, _FIRST)  # type: ignore[call-overload,no-any-return]
    if type(value) is dict:
        return islice(value.values(), _FIRST)
    if isinstance(value, FunctionType):  # not the globals, which the text of its file tells of
        return value.__closure__, value.__defaults__, value.__kwdefaults__
    if isinstance(value, type) and issubclass(value, Dataset):
        return *vars(value).values(), *value.__bases__
    if isinstance(value, _CLOSED):
        return ()
    own = getattr(value, "__dict__", {})
    return *own.values(), *(each for each in gc.get_referents(value) if each is not own)
