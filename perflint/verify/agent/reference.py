"""Computes every operation in double precision as well, as a reference without rounding."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_SHORTER = (torch.float32, torch.float16, torch.bfloat16)
_MASKED = frozenset(
    operation.default
    for kernel in ("flash", "efficient", "cudnn")
    for way in ("", "_backward")
    if (operation := getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention{way}", None))
)
_ATTENTION = torch.nn.functional.scaled_dot_product_attention


def prefer_plain_kernels() -> None:
    """Disable kernels without double precision, or that keep intermediate results to themselves."""
    torch._C._set_mkldnn_enabled(False)
    torch.backends.cudnn.enabled = False


class _PlainAttention(TorchFunctionMode):
    """Unless it has dropout: plain kernels would draw another mask."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not _ATTENTION or (args[4] if len(args) > 4 else kwargs.get("dropout_p")):
            return func(*args, **kwargs)
        with sdpa_kernel(SDPBackend.MATH):
            return func(*args, **kwargs)


class Reference(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each operation on floats once more on double precision shadows, one for each storage.

    The program goes on with its own numbers, so it takes the same branches and draws the same random values. `gaps`
    names operations without double precision: values computed from theirs have no reference.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shadows: dict[int, tuple[StorageWeakRef, Tensor]] = {}
        self._attention = _PlainAttention()
        self._compiler: AbstractContextManager[Any] = nullcontext()
        self.gaps: set[str] = set()

    def __enter__(self) -> Reference:
        self._compiler = _uncompiled()
        self._compiler.__enter__()
        self._attention.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._attention.__exit__(*raised)  # type: ignore[no-untyped-call]
        self._compiler.__exit__(*raised)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def value(self, tensor: Tensor) -> Tensor:
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
        doubles = self._doubles(func, args, kwargs)
        if func in _MASKED and args[0].is_cuda:
            return self._masked(func, args, kwargs)
        result = func(*args, **kwargs)
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor) and each.dtype in _SHORTER]
        written = _written(func, args, kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            self._drawn(func, doubles, result, written)
            return result
        is_repeatable = all(each.dtype in _SHORTER for each in written)
        if not is_repeatable or not (made or func._schema.is_mutable):
            return result
        for repeat in (partial(func, *doubles[0], **doubles[1]), partial(self._as_it_is, func, args, kwargs)):
            try:
                self._follow(result, repeat())
            except (RuntimeError, TypeError):
                continue
            return result
        self.gaps.add(str(func))
        return result

    def _as_it_is(self, func: Any, args: Any, kwargs: Any) -> Any:
        rounded: dict[int, Tensor] = {}

        def round_(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.dtype not in _SHORTER:
                return value
            return rounded.setdefault(id(value), self.value(value).to(value.dtype))

        args_, kwargs_ = tree_map(round_, (args, kwargs))
        shadow = func(*args_, **kwargs_)
        for tensor in _written(func, args, kwargs):
            self.value(tensor).copy_(rounded[id(tensor)])
        return shadow

    def _masked(self, func: Any, args: Any, kwargs: Any) -> Any:
        device = args[0].device
        before = torch.cuda.get_rng_state(device)
        result = func(*args, **kwargs)
        after = torch.cuda.get_rng_state(device)
        torch.cuda.set_rng_state(before, device)
        try:
            self._follow(result, self._as_it_is(func, args, kwargs))
        finally:
            torch.cuda.set_rng_state(after, device)
        return result

    def _doubles(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The arguments in double precision; fused optimizers' kernels take read-only ones for float32."""
        if not func.__name__.startswith("_fused_"):
            return tree_map(self._double, (args, kwargs))
        changed = {id(each) for each in _written(func, args, kwargs)}
        return tree_map(lambda each: self._double(each) if id(each) in changed else each, (args, kwargs))

    def _follow(self, result: Any, shadow: Any) -> None:
        for own, other in zip(tree_leaves(result), tree_leaves(shadow), strict=False):
            if isinstance(own, Tensor):
                self._made(own, other)

    def _foreign(self, func: Any, args: Any, kwargs: Any) -> Any:
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
            numbers = own.untyped_storage().nbytes() // own.element_size()
            self._keep(own, torch.empty(numbers, dtype=torch.float64, device=own.device))
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


def _uncompiled() -> AbstractContextManager[Any]:
    """Have compiled functions run eagerly: modes don't see into their kernels, and tracing would enter the mode."""
    stance: Any = getattr(torch.compiler, "set_stance", nullcontext)  # torch 2.6 and later
    try:
        return stance("force_eager")  # type: ignore[no-any-return]
    except RuntimeError:  # a step that ends inside of what is compiled
        return nullcontext()


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    written = [
        named.get(argument.name)
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [each for each in tree_leaves(written) if isinstance(each, Tensor)]
