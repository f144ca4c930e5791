"""Has ranks that train together agree on each step: all capture and replay it, or none does."""

from __future__ import annotations

import atexit
import enum
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import distributed
from torch.nn import Module

_WARM_UP = 11  # steps that DistributedDataParallel times itself, which a capture can't hold, after it is made
_ENDS = "destroy_process_group"
_renewed: weakref.WeakSet[Module] = weakref.WeakSet()
_to_free: list[Callable[[], None]] = []


class Vote(enum.IntEnum):
    REFUSED = 0  # eagerly from now on
    EAGER = 1
    WATCHED = 2  # eagerly, to see what it does
    CAPTURED = 3
    REPLAYED = 4


def several() -> bool:
    is_one = distributed.is_available() and distributed.is_initialized()
    return is_one and distributed.get_world_size() > 1


def is_exchanging(module: Module) -> bool:
    return any(kind.__name__ == "DistributedDataParallel" for kind in type(module).__mro__)


def refusal(module: Any) -> str | None:
    name, group = type(module).__name__, module.process_group
    reasons = (
        (group is not distributed.group.WORLD, "has a group of its own"),
        (distributed.get_backend(group) != "nccl", "exchanges gradients by the host"),
        (not distributed.is_gloo_available(), "has no gloo, by which its ranks could agree"),
        (module.find_unused_parameters, "looks on the host for parameters that are unused"),
        (module.static_graph, "has a static graph"),
        (module.mixed_precision is not None, "computes in formats of its own"),
        (bool(getattr(module, "_comm_hooks", ())), "has a hook on its communication"),
        (bool(getattr(module, "_delay_all_reduce_params", ())), "delays the exchange of some gradients"),
        (bool(getattr(module, "_use_python_reducer", False)), "exchanges gradients in Python"),
    )
    return next((f"{name} {words}" for holds, words in reasons if holds), None)


def avoid_handshakes() -> None:
    """Have NCCL not register memory while it captures, for which ranks wait for each other on the host."""
    if "RANK" in os.environ:
        os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")


class Ranks:
    """The ranks that take a step together, and vote at each call in which they exchange gradients."""

    def __init__(self, modules: Iterable[Module], free: Callable[[], None]) -> None:
        self._group = distributed.new_group(backend="gloo")
        self._modules = weakref.WeakSet(modules)
        self._steps = 0
        self.is_refused = False
        _watch_the_end()
        _to_free.append(free)

    @property
    def are_apart(self) -> bool:
        """Whether some ranks may not come to this call: they exchange nothing, or may have no batches left."""
        modules: list[Any] = list(self._modules)
        syncs = torch.is_grad_enabled() and all(each.require_backward_grad_sync for each in modules)
        return self.is_refused or not syncs or any(each._join_config.enable for each in modules)

    @property
    def is_warm(self) -> bool:
        return self._steps >= _WARM_UP

    def agree(self, vote: Vote) -> Vote:
        least = torch.tensor([int(vote)], device="cpu")
        distributed.all_reduce(least, distributed.ReduceOp.MIN, group=self._group)
        return Vote(int(least))

    def prepare(self, modules: Iterable[Module], stream: torch.cuda.Stream) -> None:
        """Count a step of these modules, whose gradients are accumulated on this stream of captures then."""
        for module in modules:
            if module not in _renewed:
                with torch.cuda.stream(stream):
                    renew(module)
                _renewed.add(module)
                self._modules.add(module)
                self._steps = 0
        self._steps += 1

    def restore(self) -> None:
        self.is_refused = True
        for module in list(self._modules):
            renew(module)


def renew(module: Any) -> None:
    """Rebuild what accumulates and exchanges gradients, as unpickling does, on the current stream."""
    state = module.__getstate__()
    del module.reducer, module.logger
    module.__setstate__(state)


@functools.cache
def _watch_the_end() -> None:
    """Free graphs before their communicators, which would wait for them for ever."""
    destroy = getattr(distributed, _ENDS)

    @functools.wraps(destroy)
    def freed(*args: Any, **kwargs: Any) -> Any:
        _free()
        return destroy(*args, **kwargs)

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(_ENDS) is destroy:
            setattr(module, _ENDS, freed)
    atexit.register(_free)


def _free() -> None:
    for free in _to_free:
        free()
    _to_free.clear()
