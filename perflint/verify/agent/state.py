"""What a program holds: tensors in nested values and their digests, and its whole state after a step."""

from __future__ import annotations

import ctypes
import functools
import gc
import math
import operator
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from perflint.shim.hooks import before

GRADIENT, OPTION = "gradient", "option"
TRAINED = "parameter"  # which an optimizer steps
WEIGHT = "weight"  # a parameter that no optimizer steps: it may be frozen, or a running average
AVERAGE = "optimizer"  # what an optimizer keeps of its steps, averages of gradients as a rule
DERIVED = (TRAINED, WEIGHT, AVERAGE, "buffer")  # computed from gradients or activations
_HOW = ("params", "foreach", "fused", "capturable", "differentiable")  # options that don't change what is computed
Tensors = dict[str, Any]

_FEW = 2**16  # numbers
_AT_ONCE = 2**20  # numbers
_ON_A_CORE = 2**15  # numbers: torch shares more among threads, who wait for each other where cores are busy
_GAMMA = -0x61C8864680B583EB
_MIXERS = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15))
_NUMBERS = (int, float)
_ATTRIBUTES = (*_NUMBERS, str, list, tuple, Mapping)  # which are looked at, as tensors are: the others may be anything


class Holders:
    """The living modules, in order of creation, and optimizers that have stepped, in order of their first step."""

    def __init__(self) -> None:
        self._modules: _Known = {}
        self.optimizers: _Known = {}

    def watch(self) -> None:
        gc.freeze()  # what there is by now is no garbage, and need not be looked at
        from torch.nn import Module
        from torch.optim.optimizer import register_optimizer_step_post_hook

        for name in ("__init__", "__setstate__"):  # the latter by deepcopy
            setattr(Module, name, before(getattr(Module, name), lambda made, *_, **__: _add(made, self._modules)))
        register_optimizer_step_post_hook(lambda stepped, *_: _add(stepped, self.optimizers))

    def state(self) -> State:
        gc.collect()
        modules = _alive(self._modules)
        inner = {id(child) for module in modules for child in module.children()}
        return State(_alive(self.optimizers), [module for module in modules if id(module) not in inner])


_Known = dict[int, weakref.ref[Any]]  # by id


def _add(value: Any, known: _Known) -> None:
    number = id(value)
    if number not in known:
        known[number] = weakref.ref(value, lambda _: known.pop(number, None))


def _alive(known: _Known) -> list[Any]:
    return [value for each in list(known.values()) if (value := each()) is not None]


class State:
    """The parameters of `optimizers` with gradients, options and averages; other parameters and buffers."""

    def __init__(self, optimizers: Sequence[Any], modules: Sequence[Any]) -> None:
        self._optimizers, self._modules = optimizers, modules

    def tensors(self) -> Tensors:
        return dict(self._named())

    def restore(self, tensors: Mapping[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for name, tensor in self._named():
                known = tensors.get(name)
                if name.startswith(OPTION) or _is_expanded(tensor):  # a schedule makes options anew
                    continue
                if known is not None and known.shape == tensor.shape:
                    tensor.data.copy_(known)  # unseen by a graph that has saved it: some may be alive

    def _named(self) -> Iterator[tuple[str, Any]]:
        stepped: set[int] = set()
        for number, optimizer in enumerate(self._optimizers):
            for group, options in enumerate(optimizer.param_groups):
                name = f"{number}.{group}" if number else str(group)
                for place, parameter in enumerate(options["params"]):
                    stepped.add(id(parameter))
                    yield from _of(optimizer, parameter, f"{name}.{place}")
                for path, value in values_in({key: each for key, each in options.items() if key not in _HOW}):
                    if value.numel():  # a replayed step has its rate on the device, in single precision
                        yield f"{OPTION} {name}{path}", value.float() if value.is_floating_point() else value
        for number, module in enumerate(self._modules):
            for name, parameter in module.named_parameters():
                if id(parameter) not in stepped and _has_values(parameter):
                    yield f"{WEIGHT} {number}.{name}", parameter
            for name, buffer in module.named_buffers():
                if _has_values(buffer):
                    yield f"buffer {number}.{name}", buffer


def _of(optimizer: Any, parameter: Any, name: str) -> Iterator[tuple[str, Any]]:
    import torch

    yield f"{TRAINED} {name}", parameter
    if (gradient := parameter.grad) is not None:
        yield f"{GRADIENT} {name}", gradient if gradient.layout is torch.strided else gradient.to_dense()
    for path, tensor in tensors_in(optimizer.state.get(parameter, {})):
        yield f"{AVERAGE} {name}{path}", tensor


def _is_expanded(tensor: Any) -> bool:
    return any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _has_values(tensor: Any) -> bool:
    import torch
    from torch.nn.parameter import is_lazy
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if is_lazy(tensor) or is_traceable_wrapper_subclass(tensor):
        return False
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized


def tensors_in(value: object) -> Iterator[tuple[str, Any]]:
    from torch import Tensor

    return ((path, leaf) for path, leaf in _leaves(value, "", ()) if isinstance(leaf, Tensor))


def values_in(value: object) -> Iterator[tuple[str, Any]]:
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
    from torch import Tensor

    children = None if isinstance(value, Tensor) else _children(value)
    if children is None:
        yield path, value
    elif id(value) not in above:
        for name, child in children:
            yield from _leaves(child, f"{path}.{name}", (*above, id(value)))


def _children(value: object) -> Iterable[tuple[Any, Any]] | None:
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
    torch, numpy = (sys.modules.get(name) for name in ("torch", "numpy"))
    if torch is None or numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return None
    with suppress(TypeError):
        return torch.from_numpy(numpy.array(value))
    return None


def digest(value: object) -> str:
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
    """Sums of the elements' bits, each times a factor of its place, on the tensor's device.

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
    """The sum of products modulo 2^64; on a CPU few at a time, which stay in cache and on one core."""
    few = _ON_A_CORE if part.device.type == "cpu" else _AT_ONCE
    sums = [(each.long() * factor).sum() for each, factor in zip(part.split(few), factors.split(few), strict=True)]
    return functools.reduce(operator.add, sums)


@functools.lru_cache(maxsize=8)
def _factors(device: Any) -> Any:
    """Odd factors for places, mixed as by splitmix64: doi.org/10.1145/2660193.2660195."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():  # they are kept
        mixed = torch.arange(1, _AT_ONCE + 1, device=device) * _GAMMA
        for shift, factor in _MIXERS:
            mixed = (mixed ^ (mixed >> shift)) * factor
        return mixed | 1


def sample(tensor: Any) -> Any:
    import torch

    apart = -(-tensor.numel() // _FEW) if tensor.layout is torch.strided else 1
    return tensor.flatten()[:: apart | 1] if apart > 1 else tensor  # odd, or it would be of the same columns


def size(tensor: Any) -> Any:
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
