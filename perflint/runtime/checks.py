"""Has a captured graph hold the checks of distributions' arguments: the device makes them, the host raises later."""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

_INVALID = (
    "perflint: in a step that was replayed, a distribution of torch.distributions was given invalid arguments, "
    "such as NaN: see where by running without the graph"
)
_PATIENCE = 10.0  # seconds at exit for a device that may never be done
_GLANCE = 0.001


@dataclass(frozen=True)
class _Flag:
    failed: Tensor
    known: Tensor
    streams: set[torch.cuda.Stream] = field(default_factory=set)


_flags: dict[torch.device, _Flag] = {}


class Checks:
    """Captures the checks of distributions' arguments; outside of a capture they are made at once.

    So are those of torch.normal, which draws Normal's samples; the host waits for them, unseen by what watches its
    reads. For a capture on `device`, create it before that begins. Other threads check as ever.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        if device is not None and device not in _flags:
            known = torch.zeros((), dtype=torch.bool, pin_memory=True)
            _flags[device] = _Flag(torch.zeros((), dtype=torch.bool, device=device), known)
        self._flag = _flags[device] if device is not None else None
        self._stream = torch.cuda.current_stream(device) if device is not None else None
        self._thread = threading.get_ident()
        self._plain, self._normal = torch._is_all_true, torch.normal  # the first is asked by torch.distributions
        self._has_checks = False

    def __enter__(self) -> Checks:
        torch._is_all_true, torch.normal = self._are_valid, self._drawn  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        torch._is_all_true, torch.normal = self._plain, self._normal

    def _are_valid(self, valid: Tensor) -> Tensor | bool:
        if threading.get_ident() != self._thread:
            return self._plain(valid)
        if self._flag is not None and torch.cuda.is_current_stream_capturing():
            self._flag.failed.logical_or_(self._plain(valid).logical_not())
            self._has_checks = True
            return True
        with _disable_current_modes():
            return bool(self._plain(valid))

    def _drawn(self, *given: Any, **named: Any) -> Tensor:
        are_tensors = len(given) == 2 and not named and all(isinstance(each, Tensor) and each.numel() for each in given)
        is_recorded = torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in given)
        is_here = self._flag is not None and threading.get_ident() == self._thread
        if not are_tensors or is_recorded or not (is_here and torch.cuda.is_current_stream_capturing()):
            return self._normal(*given, **named)
        mean, deviation = given
        self._are_valid(deviation.min() >= 0)
        shape = torch.broadcast_tensors(mean, deviation)[0].shape  # type: ignore[no-untyped-call]
        drawn = torch.empty(shape, dtype=mean.dtype, device=mean.device)
        return drawn.normal_().mul_(deviation).add_(mean)

    def tell(self) -> None:
        if self._flag is not None and self._stream is not None and self._has_checks:
            self._flag.streams.add(self._stream)
            self._flag.known.copy_(self._flag.failed, non_blocking=True)


def raise_failed() -> None:
    for flag in _flags.values():
        if flag.known:
            flag.failed.zero_()
            flag.known.zero_()
            raise ValueError(_INVALID)


def _raise_last(process: int) -> None:
    if os.getpid() != process:
        return  # a device can't be asked in a forked process
    with suppress(RuntimeError):  # of a device that has failed, which the program has told
        ends: Any = [(torch.cuda.Event(), stream) for flag in _flags.values() for stream in flag.streams]  # type: ignore[no-untyped-call]
        for event, stream in ends:
            event.record(stream)
        until = time.monotonic() + _PATIENCE
        while not all(event.query() for event, _ in ends) and time.monotonic() < until:
            time.sleep(_GLANCE)
    raise_failed()


atexit.register(_raise_last, os.getpid())
