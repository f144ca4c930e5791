"""The state of a program after a step: parameters, gradients, optimizer state and options, buffers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perflint.shim.hooks import before
from perflint.verify.agent.tensors import Tensors, tensors_in, values_in

GRADIENT, OPTION = "gradient", "option"
TRAINED = "parameter"  # which an optimizer steps
WEIGHT = "weight"  # a parameter that no optimizer steps: it may be frozen, or a running average
DERIVED = (TRAINED, WEIGHT, "optimizer", "buffer")  # computed from gradients or activations
_NOT_RESTORED = (GRADIENT, OPTION)  # made anew by each step, and by a schedule
_HOW = ("params", "foreach", "fused", "capturable", "differentiable")  # options that don't change what is computed


class Holders:
    """The modules of a program and the optimizers that have stepped, in the order of their creation and first step."""

    def __init__(self) -> None:
        self._modules: _Known = {}
        self._optimizers: _Known = {}

    def watch(self) -> None:
        """Know of those that come up from now on."""
        gc.freeze()  # what there is by now is no garbage, and need not be looked at
        from torch.nn import Module
        from torch.optim.optimizer import register_optimizer_step_post_hook

        for name in ("__init__", "__setstate__"):  # the latter by deepcopy
            setattr(Module, name, before(getattr(Module, name), lambda made, *_, **__: _add(made, self._modules)))
        register_optimizer_step_post_hook(lambda stepped, *_: _add(stepped, self._optimizers))

    @property
    def are_trained(self) -> bool:
        """Whether an optimizer has stepped."""
        return bool(self._optimizers)

    def state(self) -> State:
        """The state now, without garbage."""
        gc.collect()
        modules = _alive(self._modules)
        inner = {id(child) for module in modules for child in module.children()}
        return State(_alive(self._optimizers), [module for module in modules if id(module) not in inner])


_Known = dict[int, weakref.ref[Any]]  # by id


def _add(value: Any, known: _Known) -> None:
    number = id(value)
    if number not in known:
        known[number] = weakref.ref(value, lambda _: known.pop(number, None))


def _alive(known: _Known) -> list[Any]:
    return [value for each in list(known.values()) if (value := each()) is not None]


class State:
    """The parameters that `optimizers` step, their gradients, options and state; other parameters and buffers."""

    def __init__(self, optimizers: Sequence[Any], modules: Sequence[Any]) -> None:
        self._optimizers, self._modules = optimizers, modules

    def tensors(self) -> Tensors:
        """All tensors, by names that are the same in each run of the program."""
        return dict(self._named())

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Overwrite in place what is not made anew by the program."""
        import torch

        with torch.no_grad():
            for name, tensor in self._named():
                known = tensors.get(name)
                if name.startswith(_NOT_RESTORED) or _is_expanded(tensor):
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
                    if value.numel():
                        yield f"{OPTION} {name}{path}", value
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
        yield f"optimizer {name}{path}", tensor


def _is_expanded(tensor: Any) -> bool:
    """Whether elements share memory: such a tensor can't be written to, and never changes."""
    return any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _has_values(tensor: Any) -> bool:
    """Whether it is a plain dense tensor that has been initialized."""
    import torch
    from torch.nn.parameter import is_lazy
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if is_lazy(tensor) or is_traceable_wrapper_subclass(tensor):
        return False
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized
