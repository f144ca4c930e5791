"""The tensors in what a program passes round, and names for their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

Tensors = dict[str, Any]


def tensors_in(value: object) -> Iterator[tuple[str, Any]]:
    """The tensors in nested lists, tuples, dicts and dataclass-like objects, each with its path."""
    from torch import Tensor

    return ((path, leaf) for path, leaf in _leaves(value, "", ()) if isinstance(leaf, Tensor))


def values_in(value: object) -> Iterator[tuple[str, Any]]:
    """As `tensors_in`, and numbers as tensors, too; whatever else there is, is part of a path."""
    import torch

    for path, leaf in _leaves(value, "", ()):
        if isinstance(leaf, torch.Tensor):
            yield path, leaf
        elif isinstance(leaf, int | float):
            yield path, torch.tensor(float(leaf), dtype=torch.float64)
        elif leaf is None or isinstance(leaf, str):
            yield f"{path}={leaf!r}", torch.empty(0)


def _leaves(value: object, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """What is in `value` and has nothing in it; what contains itself is gone through once."""
    from torch import Tensor

    children = None if isinstance(value, Tensor) else _children(value)
    if children is None:
        yield path, value
    elif id(value) not in above:
        for name, child in children:
            yield from _leaves(child, f"{path}.{name}", (*above, id(value)))


def _children(value: object) -> Iterable[tuple[Any, Any]] | None:
    """What a container holds, by name; None for what is no container."""
    from torch import Tensor

    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return [(name, item) for name, item in vars(value).items() if isinstance(item, Tensor | list | tuple | Mapping)]
    return None


def digest(value: object) -> str:
    """Names the values, types and shapes of tensors; of whatever else, its representation."""
    from torch import Tensor

    mark = blake2b(digest_size=16)
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, Tensor):
            mark.update(f"{each.dtype}{tuple(each.shape)}".encode())
            mark.update(_bytes(each))
        else:
            mark.update(repr(each).encode("utf-8", "surrogatepass"))
    return mark.hexdigest()


def _bytes(tensor: Any) -> bytes:
    import torch

    plain = tensor.detach().cpu().contiguous()
    return plain.flatten().view(torch.uint8).numpy().tobytes() if plain.numel() else b""
