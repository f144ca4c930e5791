"""Computes every operation in double precision as well, as a reference without rounding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_SHORTER = (torch.float32, torch.float16, torch.bfloat16)


def prefer_plain_kernels() -> None:
    """Disable kernels that don't support double precision or keep intermediate results of their own."""
    torch._C._set_mkldnn_enabled(False)
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


class Reference(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, each operation on floats runs once more on shadows in double precision, one for each storage.

    The program goes on with its own numbers, so that it takes the same branches and draws the same random values.
    `gaps` names operations without double precision: values computed from theirs have no reference.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shadows: dict[int, tuple[StorageWeakRef, Tensor]] = {}
        self.gaps: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def value(self, tensor: Tensor) -> Tensor:
        """The double precision values of a tensor of floats; any other one itself."""
        if tensor.dtype not in _SHORTER or tensor.layout is not torch.strided:
            return tensor
        base = self._known(tensor)
        if base is None:
            whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
            base = self._keep(tensor, whole.double())
        return base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten":
            return self._foreign(func, args, kwargs)
        doubles = tree_map(self._double, (args, kwargs))
        result = func(*args, **kwargs)
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor) and each.dtype in _SHORTER]
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._drawn(func, doubles, result, _written(func, args, kwargs))
            return result
        if not _is_repeatable(func, args, kwargs) or not (made or func._schema.is_mutable):
            return result
        try:
            shadow = func(*doubles[0], **doubles[1])
            for own, other in zip(tree_leaves(result), tree_leaves(shadow), strict=False):
                if isinstance(own, Tensor):
                    self._made(own, other)
        except (RuntimeError, TypeError):
            self.gaps.add(str(func))
        return result

    def _foreign(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation of another library, or between ranks, whose results have no shadow."""
        result = func(*args, **kwargs)
        if any(isinstance(each, Tensor) and each.dtype in _SHORTER for each in tree_leaves((args, kwargs, result))):
            self.gaps.add(str(func))
        return result

    def _drawn(self, func: Any, doubles: Any, result: Any, written: list[Tensor]) -> None:
        """Random values are exact as they are, but dropout scales its input."""
        if func is torch.ops.aten.native_dropout.default:
            (value, share, *_), _ = doubles
            self._made(result[0], value * result[1] / (1 - share) if share < 1 else value * 0)
        for tensor in written:
            if self._known(tensor) is not None:
                self.value(tensor).copy_(tensor)

    def _made(self, own: Tensor, other: Tensor) -> None:
        if own.dtype in _SHORTER and self._known(own) is None:
            self._keep(
                own,
                torch.empty(
                    own.untyped_storage().nbytes() // own.element_size(), dtype=torch.float64, device=own.device
                ),
            )
            self.value(own).copy_(other)

    def _known(self, tensor: Tensor) -> Tensor | None:
        known = self._shadows.get(tensor.untyped_storage()._cdata)
        return known[1] if known and not known[0].expired() else None  # type: ignore[no-untyped-call]

    def _keep(self, tensor: Tensor, base: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._shadows[storage._cdata] = (StorageWeakRef(storage), base)  # type: ignore[no-untyped-call]
        return base

    def _double(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.value(value)
        return torch.float64 if isinstance(value, torch.dtype) and value in _SHORTER else value


def _is_repeatable(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation may run again: it writes to nothing that has no shadow."""
    return all(each.dtype in _SHORTER for each in _written(func, args, kwargs))


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors among its arguments that an operation writes to."""
    named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    written = [
        named.get(argument.name)
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [each for each in tree_leaves(written) if isinstance(each, Tensor)]
