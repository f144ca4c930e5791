"""The state of a program behind a step: what its optimizer trains, and what its modules keep."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import Any

from perflint.verify.tensors import Tensors, tensors_in

GRADIENT, OPTION = "gradient", "option"
_OURS_TO_LEAVE = (GRADIENT, OPTION)  # made anew by each step, and by a schedule


class State:
    """The parameters that an optimizer steps, their gradients, its own state and options, and buffers of modules."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._modules = _modules()

    def tensors(self) -> Tensors:
        """All of them, by names that are the same in each run of the program."""
        return dict(self._named())

    def take_over(self, tensors: Mapping[str, Any]) -> None:
        """Overwrite, in place, all that may be."""
        import torch

        with torch.no_grad():
            for name, tensor in self._named():
                known = tensors.get(name)
                if not name.startswith(_OURS_TO_LEAVE) and known is not None and known.shape == tensor.shape:
                    tensor.detach().copy_(known)

    def _named(self) -> Iterator[tuple[str, Any]]:
        for group, options in enumerate(self._optimizer.param_groups if self._optimizer else ()):
            for number, parameter in enumerate(options["params"]):
                yield from self._of(parameter, f"{group}.{number}")
            yield from _numbers(options, f"{OPTION} {group}")
        for number, module in enumerate(self._modules):
            for name, buffer in module.named_buffers():
                yield f"buffer {number}.{name}", buffer

    def _of(self, parameter: Any, name: str) -> Iterator[tuple[str, Any]]:
        yield f"parameter {name}", parameter
        if parameter.grad is not None:
            yield f"{GRADIENT} {name}", parameter.grad
        for path, tensor in tensors_in(self._optimizer.state.get(parameter, {})):
            yield f"optimizer {name}{path}", tensor


def _numbers(options: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Learning rates and the like, as they are set."""
    import torch

    for name, value in options.items():
        if isinstance(value, int | float):
            yield f"{path}.{name}", torch.tensor(float(value), dtype=torch.float64)


def _modules() -> list[Any]:
    """The outermost modules that there are, in the order in which they were made."""
    from torch.nn import Module

    found = [each for each in gc.get_objects() if issubclass(type(each), Module)]  # isinstance may run code of theirs
    inner = {id(child) for module in found for child in module.modules() if child is not module}
    return [module for module in found if id(module) not in inner]
