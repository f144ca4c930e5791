"""Finds what a dataset holds that its workers could not share with the program; it reads no sample for that."""

from __future__ import annotations

import gc
import io
import logging
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from types import FunctionType, ModuleType

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.data import Dataset

_MOST = 10_000  # objects that are looked at
_FIRST = 64  # in a container, of which the others are like these
_ATOMS = (str, bytes, int, float, complex, bool, type(None))
_CONTAINERS = (list, tuple, set, frozenset)
_CLOSED = (type, ModuleType, Tensor, io.IOBase, logging.Logger)  # what lies behind these is not the dataset's
_HANDLES = ("h5py.", "sqlite3.", "lmdb.", "zipfile.", "tarfile.", "socket.", "tables.", "netCDF4.")


def unshared(dataset: object) -> str:
    """Why workers would read something else than the program, for what the dataset holds; "" where nothing is found.

    A file or an iterator moves on as it is read, and each process has a place of its own in it, even where it lies in
    memory. Parameters are trained in the program, and the workers' copies are not.
    """
    return next(filter(None, map(_reason, _held(dataset))), "")


def _reason(value: object) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Parameter | Optimizer):
        return "it holds parameters, which would stay in workers as they were"
    if isinstance(value, io.IOBase) or name.startswith(_HANDLES):
        return "" if any(value is each for each in _heard()) else f"it holds an open {name}"
    if hasattr(kind, "__next__") and not isinstance(value, Dataset):
        return f"it holds an iterator, a {name.removeprefix('builtins.')}"
    return ""


def _heard() -> tuple[object, ...]:
    return sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__


def _held(dataset: object) -> Iterator[object]:
    """The dataset, and what it holds at any depth: in attributes, containers, closures and bound arguments."""
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
