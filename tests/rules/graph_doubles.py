"""What `graphed_step` and `cuda_graph` do on a device, without one: doubles that hold a step to what a replay needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from typing import Any

import torch
from torch.optim import optimizer as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from perflint.runtime.checks import Checks
from perflint.runtime.replay import flatten, rebuild
from perflint.runtime.step_replay import spend


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises where the host reads a tensor, but for what optimizers do on a CPU alone."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.startswith("_local_scalar_dense") and not self.steps:
            raise AssertionError("the host reads a tensor in a step that is to be captured")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_reads() -> Iterator[None]:
    """Raise at reads of the host meanwhile."""
    with Reads() as reads, Checks():
        handles = [
            hooks.register_optimizer_step_pre_hook(lambda *_: setattr(reads, "steps", 1)),
            hooks.register_optimizer_step_post_hook(lambda *_: setattr(reads, "steps", 0)),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class Double:
    """A graph's double on a CPU: a step reads copies of its arguments in memory of their own, and gives copies."""

    calls = 0

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._statics = function, dict[Any, list[Any]]()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any) -> Any:
        Double.calls += 1
        structure, leaves = flatten(args)
        assert not any(each.requires_grad for each in leaves if isinstance(each, torch.Tensor))
        key = (structure, *(each.shape if isinstance(each, torch.Tensor) else each for each in leaves))
        if key not in self._statics:
            self._statics[key] = list(tree_map_only(torch.Tensor, torch.empty_like, args))
        for static, leaf in zip(flatten(self._statics[key])[1], leaves, strict=True):
            if isinstance(static, torch.Tensor):
                static.copy_(leaf)
        before, printed = random.getstate(), StringIO()
        with redirect_stdout(printed), no_reads():
            result = self._function(*self._statics[key])
        assert not printed.getvalue() and random.getstate() == before
        for static, leaf in zip(flatten(self._statics[key])[1], leaves, strict=True):
            assert not isinstance(static, torch.Tensor) or torch.equal(static, leaf), "it writes to its arguments"
        places = zip(flatten(self._statics[key])[1], leaves, strict=True)
        known = {id(static): leaf for static, leaf in places if isinstance(static, torch.Tensor)}
        return tree_map_only(torch.Tensor, partial(_given_back, known), result)


def _given_back(known: dict[int, Any], tensor: torch.Tensor) -> Any:
    """An argument or parameter itself, or a copy of what the step made: the same one wherever it is in the result."""
    if isinstance(tensor, torch.nn.Parameter):
        return tensor
    copy = tensor.detach().clone()
    if tensor.requires_grad:
        (copy,) = spend(1)([copy])
    return known.setdefault(id(tensor), copy)


class Differentiable(Double):
    """The double of a graph with a backward pass: it computes with copies, and gives copies."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        Double.calls += 1
        structure, leaves = flatten((args, kwargs))
        copies = [each.clone() if _is_copied(each) else each for each in leaves]
        copied = [(copy, leaf) for copy, leaf in zip(copies, leaves, strict=True) if copy is not leaf]
        versions = [copy._version for copy, _ in copied]
        given, named = rebuild(structure, iter(copies))
        with no_reads():
            result = self._function(*given, **named)
        for (copy, leaf), version in zip(copied, versions, strict=True):
            assert copy._version == version or not torch.is_grad_enabled(), "it writes to its arguments"
            if copy._version != version:
                leaf.copy_(copy)
        known = {id(copy): leaf for copy, leaf in copied}
        return tree_map_only(torch.Tensor, partial(_apart, known), result)


def _is_copied(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)


def _apart(known: dict[int, Any], tensor: torch.Tensor) -> torch.Tensor:
    """An argument itself, or a copy of what was computed: the same one wherever it is in the result."""
    return known.setdefault(id(tensor), tensor.clone()) if _is_copied(tensor) else tensor
