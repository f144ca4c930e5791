"""Makes an optimizer's step capturable: counters and learning rates go to the device, unseen by users."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from perflint.runtime.glance import Reads

_RATE = "lr"
_CAPTURABLE = "capturable"
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_PLAIN = (int, float, complex, str, bytes, type(None))  # told apart by their identity
_RATES_ON_DEVICE = (torch.optim.Adam, torch.optim.AdamW)  # their capturable form takes a tensor
_FUSED_RATES = (torch.optim.SGD, torch.optim.Adagrad)  # their fused form does
_prepared: weakref.WeakKeyDictionary[Optimizer, _Prepared] = weakref.WeakKeyDictionary()


class _Prepared:
    def __init__(self, optimizer: Optimizer) -> None:
        self.rates: list[tuple[Tensor, float] | None] = []
        self.moved: set[str] = set()
        self.shown = optimizer.register_state_dict_post_hook(_as_before)


def _as_before(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """A state dict with counters on the host, where other programs expect them."""
    known = _prepared.get(optimizer)
    if known is None or not known.moved:
        return state_dict
    states = {
        number: {name: value.cpu() if name in known.moved else value for name, value in state.items()}
        for number, state in state_dict["state"].items()
    }
    return {**state_dict, "state": states}


def prepare(optimizers: Iterable[Optimizer]) -> bool:
    changed = [_prepare(optimizer) for optimizer in optimizers]
    return any(changed)


def renew(optimizers: Iterable[Optimizer]) -> None:
    """Prepare optimizers again whose state was loaded, and so is on the host."""
    prepare([optimizer for optimizer in optimizers if optimizer in _prepared])


def _prepare(optimizer: Optimizer) -> bool:
    known = _prepared.get(optimizer)
    if known is None:
        known = _prepared[optimizer] = _Prepared(optimizer)
    changed = False
    for number, group in enumerate(optimizer.param_groups):
        devices = [parameter.device for parameter in group["params"] if parameter.is_cuda]
        if number == len(known.rates):
            rate = _rate(optimizer, group) if devices else None
            known.rates.append(None if rate is None else (torch.tensor(rate, device=devices[0]), rate))
            changed = changed or rate is not None
        if _CAPTURABLE in group:
            changed = _move_counters(optimizer, group["params"], known.moved) or changed
    return changed


def _move_counters(optimizer: Optimizer, parameters: Sequence[Tensor], moved: set[str]) -> bool:
    found = False
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        for name, value in state.items():
            if isinstance(value, Tensor) and not value.is_cuda and value.numel() == 1 and parameter.is_cuda:
                state[name] = value.to(parameter.device)
                moved.add(name)
                found = True
    return found


def restore(optimizers: Iterable[Optimizer]) -> None:
    for optimizer in optimizers:
        known = _prepared.pop(optimizer, None)
        if known is None:
            continue
        known.shown.remove()
        for state in optimizer.state.values() if known.moved else ():
            state.update({name: state[name].cpu() for name in known.moved & state.keys()})


def _rate(optimizer: Optimizer, group: dict[str, Any]) -> float | None:
    rate = group.get(_RATE)
    if isinstance(rate, Tensor) and rate.is_cuda:
        return None
    kind = type(optimizer)
    takes_tensor = kind in _RATES_ON_DEVICE or (kind in _FUSED_RATES and group.get("fused"))
    return float(rate) if rate is not None and takes_tensor else None


def refresh(optimizers: Iterable[Optimizer]) -> None:
    for optimizer in optimizers:
        known = _prepared.get(optimizer)
        for number, kept in enumerate(known.rates if known else ()):
            if known is None or kept is None:
                continue
            tensor, before = kept
            rate = float(optimizer.param_groups[number][_RATE])
            if rate != before:
                tensor.fill_(rate)
                known.rates[number] = (tensor, rate)


@contextmanager
def capturable(optimizers: Sequence[Optimizer]) -> Iterator[None]:
    refresh(optimizers)
    places: list[tuple[dict[str, Any], str, Any, Any]] = []
    for optimizer in optimizers:
        known = _prepared.get(optimizer)
        for group, kept in zip(optimizer.param_groups, known.rates if known else (), strict=False):
            if _CAPTURABLE in group:
                places.append((group, _CAPTURABLE, True, group[_CAPTURABLE]))
            if kept is not None:
                places.append((group, _RATE, kept[0], group[_RATE]))
    for group, name, value, _ in places:
        group[name] = value
    try:
        yield
    finally:
        for group, name, value, before in places:
            if group[name] is value:
                group[name] = before


def numbers(optimizers: Iterable[Optimizer]) -> list[Hashable]:
    found: list[Hashable] = []
    for optimizer in optimizers:
        known = _prepared.get(optimizer)
        rates = known.rates if known else []
        for number, group in enumerate(optimizer.param_groups):
            is_refreshed = number < len(rates) and rates[number] is not None
            names = (name for name in group if name != "params" and not (name == _RATE and is_refreshed))
            found += [(name, _number(group[name])) for name in names]
    return found


def _number(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return (id(value), value.data_ptr()) if value.is_cuda else str(value.tolist())
    return tuple(map(_number, value)) if isinstance(value, tuple | list) else repr(value)


def addresses(optimizers: Iterable[Optimizer]) -> list[Hashable]:
    found: list[Hashable] = []
    for optimizer in optimizers:
        found.append(id(optimizer))
        states = optimizer.state
        for group in optimizer.param_groups:
            found.append(len(group["params"]))
            for parameter in group["params"]:
                found += (id(parameter), parameter.data_ptr(), parameter.requires_grad)
                for name, value in states[parameter].items() if parameter in states else ():
                    on_device = isinstance(value, Tensor) and value.is_cuda
                    found += (name, value.data_ptr() if on_device else _where(value))
    return found


def _where(value: Any) -> Hashable:
    """A counter on the host advances with each step until it is on the device; capture freezes other values."""
    if isinstance(value, Tensor):
        return id(value)
    return repr(value)


def look(reads: Reads, optimizers: Iterable[Optimizer]) -> None:
    for optimizer in optimizers:
        reads.computed(partial(_preparation, weakref.ref(optimizer)))
        reads.items(optimizer.__dict__, ("param_groups", "state", *_HOOKS))
        reads.container(optimizer.param_groups)
        for name in _HOOKS:
            reads.container(getattr(optimizer, name))
        known = _prepared.get(optimizer)
        for group, rate in zip_longest(optimizer.param_groups, known.rates if known else ()):
            reads.names(group, (name for name in group if not (name == _RATE and rate is not None)))
            reads.container(group["params"])
            for parameter in group["params"]:
                reads.tensor(parameter)
            for name, value in group.items():
                items = value if type(value) is tuple else (value,)
                if name != "params" and not all(isinstance(each, _PLAIN) for each in items):
                    reads.computed(partial(_number, value))
        reads.container(optimizer.state.keys())
        reads.container(optimizer.state.values())
        for state in optimizer.state.values():
            reads.mapping(state)
            for value in state.values():
                if isinstance(value, Tensor):
                    reads.memory(value)
                elif not isinstance(value, _PLAIN):
                    reads.computed(partial(repr, value))


def _preparation(optimizer: weakref.ref[Optimizer]) -> Hashable:
    found = optimizer()
    known = _prepared.get(found) if found is not None else None
    return known and (id(known), *[rate is None for rate in known.rates])


def _counts_on_host(optimizer: Optimizer) -> bool:
    values = (value for state in optimizer.state.values() for value in state.values())
    return any(isinstance(value, Tensor) and not value.is_cuda for value in values)


def parameters(optimizers: Iterable[Optimizer]) -> list[Tensor]:
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


def refusal(optimizers: Iterable[Optimizer]) -> str | None:
    for optimizer in optimizers:
        name = type(optimizer).__name__
        if isinstance(optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
            return f"{name} decides on the host what it does"
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            return f"{name} has hooks on its steps, which a replay would not call"
        if any(group.get("differentiable") for group in optimizer.param_groups):
            return f"{name} is differentiable"
        if any(_CAPTURABLE not in group for group in optimizer.param_groups) and _counts_on_host(optimizer):
            return f"{name} counts its steps on the host"
    return None
