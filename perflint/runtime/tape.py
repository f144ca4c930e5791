"""Where the tape of a forward pass ends, and on which stream the gradients that arrive there are summed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from perflint.runtime.tree import flatten

_SHARE = 64  # the parts of all gradients, before they are summed, may take one part in so many of the device's memory


def summed_aside(parameters: Sequence[Tensor], size: int, device: torch.device) -> list[object]:
    """Have the parts of each parameter's gradient summed on a stream beside the backward pass that computes them.

    Until the end of a capture, the memory of each part is then its own, so that all parts together must be affordable:
    `size` bytes. What is returned must live until the forward pass has run.
    """
    if size > torch.cuda.get_device_properties(device).total_memory // _SHARE:
        return []
    with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
        return [torch.autograd.graph.get_gradient_edge(parameter).node for parameter in parameters]


def bytes_to_sum(result: Any) -> int:
    """How much memory all parts of all gradients take, before they are summed."""
    leaves: list[Any] = []
    flatten(result, leaves)
    return sum(leaf.nbytes for leaf in _uses_of_leaves(each for each in leaves if isinstance(each, Tensor)))


def leaves_of(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors at the ends of the tape behind these outputs."""
    return list({id(leaf): leaf for leaf in _uses_of_leaves(outputs)}.values())


def _uses_of_leaves(outputs: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors at the ends of the tape behind these outputs, each as often as a gradient flows into it."""
    stack: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen: set[Any] = set(stack)
    while stack:
        for following, _ in stack.pop().next_functions:
            if type(following).__name__ == "AccumulateGrad":
                yield following.variable
            elif following is not None and following not in seen:
                seen.add(following)
                stack.append(following)
