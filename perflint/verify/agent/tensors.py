"""Finds the tensors in nested values, and makes digests and samples of them."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any

Tensors = dict[str, Any]

_FEW = 2**16  # numbers
_AT_ONCE = 2**20  # numbers
_ON_A_CORE = 2**15  # numbers: torch shares more among threads, who wait for each other where cores are busy
_GAMMA = -0x61C8864680B583EB
_MIXERS = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15))
_NUMBERS = (int, float)
_ATTRIBUTES = (*_NUMBERS, str, list, tuple, Mapping)  # which are looked at, as tensors are: the others may be anything


def tensors_in(value: object) -> Iterator[tuple[str, Any]]:
    """The tensors in nested lists, tuples, dicts and dataclass-like objects, each with its path."""
    from torch import Tensor

    return ((path, leaf) for path, leaf in _leaves(value, "", ()) if isinstance(leaf, Tensor))


def values_in(value: object) -> Iterator[tuple[str, Any]]:
    """As `tensors_in`, with numbers and arrays as tensors, too, and other values in the paths."""
    import torch

    for path, leaf in _leaves(value, "", ()):
        if isinstance(leaf, torch.Tensor):
            yield path, leaf
        elif isinstance(leaf, _NUMBERS):
            yield path, torch.tensor(_float(leaf), dtype=torch.float64)
        elif _are_numbers(leaf):
            yield path, torch.tensor([_float(each) for each in leaf], dtype=torch.float64)
        elif (array := _array(leaf)) is not None:
            yield path, array
        elif leaf is None or isinstance(leaf, str | bytes | complex):
            yield f"{path}={leaf!r}", torch.empty(0)


def _leaves(value: object, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """The leaves of `value`; cycles are followed once."""
    from torch import Tensor

    children = None if isinstance(value, Tensor) else _children(value)
    if children is None:
        yield path, value
    elif id(value) not in above:
        for name, child in children:
            yield from _leaves(child, f"{path}.{name}", (*above, id(value)))


def _children(value: object) -> Iterable[tuple[Any, Any]] | None:
    """The children of a container, by name; None for a leaf, which a list of numbers is, too."""
    from torch import Tensor

    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple):
        return None if _are_numbers(value) else enumerate(value)
    if isinstance(value, set | frozenset):
        return enumerate(sorted(value, key=repr))
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return [(name, item) for name, item in vars(value).items() if isinstance(item, (Tensor, *_ATTRIBUTES))]
    return None


def _are_numbers(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, _NUMBERS) for each in value)


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _array(value: object) -> Any:
    """An array or scalar of numpy's as a tensor; None for other values, and where torch has no such type."""
    torch, numpy = (sys.modules.get(name) for name in ("torch", "numpy"))
    if torch is None or numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return None
    with suppress(TypeError):
        return torch.from_numpy(numpy.array(value))
    return None


def digest(value: object) -> str:
    """A digest of the values, types and shapes of tensors, and of the repr of other values."""
    from torch import Tensor

    mark = blake2b(digest_size=16)
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, Tensor):
            mark.update(f"{each.dtype}{tuple(each.shape)}".encode())
            mark.update(_bytes(each) if each.numel() <= _FEW else _sums(each))
        else:
            mark.update(repr(each).encode("utf-8", "surrogatepass"))
    return mark.hexdigest()


def _sums(tensor: Any) -> bytes:
    """Sums of the elements' bits, each times a factor of its place, computed on the tensor's device.

    At most 32 bits at a time: products would lose the highest bits, which hold the signs.
    """
    import torch

    plain = _plain(tensor)
    numbers = torch.view_as_real(plain) if plain.is_complex() else plain
    bits = numbers.view({1: torch.uint8, 2: torch.int16}.get(numbers.itemsize, torch.int32))
    factors = _factors(tensor.device)
    parts = bits.flatten().split(_AT_ONCE)  # each is copied to 64 bits
    return _bytes(torch.stack([_sum(part, factors[: part.numel()]) for part in parts]))


def _sum(part: Any, factors: Any) -> Any:
    """The sum of all products, modulo 2^64; on a CPU of a few at a time, which stay in its cache and on one core."""
    few = _ON_A_CORE if part.device.type == "cpu" else _AT_ONCE
    sums = [(each.long() * factor).sum() for each, factor in zip(part.split(few), factors.split(few), strict=True)]
    return functools.reduce(operator.add, sums)


@functools.lru_cache(maxsize=8)
def _factors(device: Any) -> Any:
    """Odd numbers for the places of a part, mixed as by splitmix64: doi.org/10.1145/2660193.2660195."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():  # they are kept
        mixed = torch.arange(1, _AT_ONCE + 1, device=device) * _GAMMA
        for shift, factor in _MIXERS:
            mixed = (mixed ^ (mixed >> shift)) * factor
        return mixed | 1


def sample(tensor: Any) -> Any:
    """Elements from all over a tensor, few enough to keep; all of a small one."""
    import torch

    apart = -(-tensor.numel() // _FEW) if tensor.layout is torch.strided else 1
    return tensor.flatten()[:: apart | 1] if apart > 1 else tensor  # odd, or it would be of the same columns


def size(tensor: Any) -> Any:
    """The RMS of a tensor, in its own precision."""
    import torch

    plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    floats = plain if plain.is_floating_point() else plain.double()
    norm = torch.linalg.vector_norm(floats, dtype=torch.float64)
    return (norm / plain.numel() ** 0.5).to(floats.dtype)


def _plain(tensor: Any) -> Any:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _bytes(tensor: Any) -> bytes:
    plain = _plain(tensor.cpu())
    return ctypes.string_at(plain.data_ptr(), plain.nbytes)  # torch comes without numpy
