"""The checks of distributions' arguments in what is captured: the device makes them, the host raises later."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

_INVALID = (
    "perflint: in a step that was replayed, a distribution of torch.distributions was given invalid arguments, "
    "such as NaN: see where by running without the graph"
)


@dataclass(frozen=True)
class _Flag:
    """Whether a check has failed on the device, and what the host knows of it by now, in pinned memory."""

    failed: Tensor
    known: Tensor


_flags: dict[torch.device, _Flag] = {}


class Checks:
    """Has a capture hold the checks of distributions' arguments; where nothing is captured they are made at once.

    The host waits for them then, which what watches for its reads does not see. For a capture on `device`, it is made
    before that begins. Other threads check as ever.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        if device is not None and device not in _flags:
            known = torch.zeros((), dtype=torch.bool, pin_memory=True)
            _flags[device] = _Flag(torch.zeros((), dtype=torch.bool, device=device), known)
        self._flag = _flags[device] if device is not None else None
        self._thread = threading.get_ident()
        self._plain = torch._is_all_true  # what torch.distributions asks, to raise if not
        self._has_checks = False

    def __enter__(self) -> Checks:
        torch._is_all_true = self._are_valid  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        torch._is_all_true = self._plain

    def _are_valid(self, valid: Tensor) -> Tensor | bool:
        if threading.get_ident() != self._thread:
            return self._plain(valid)
        if self._flag is not None and torch.cuda.is_current_stream_capturing():
            self._flag.failed.logical_or_(self._plain(valid).logical_not())
            self._has_checks = True
            return True
        with _disable_current_modes():
            return bool(self._plain(valid))

    def tell(self) -> None:
        """At the end of a capture: have each replay tell the host, which doesn't wait for it."""
        if self._flag is not None and self._has_checks:
            self._flag.known.copy_(self._flag.failed, non_blocking=True)


def raise_failed() -> None:
    """Raise ValueError if a replay is known to have failed a check."""
    for flag in _flags.values():
        if flag.known:
            flag.failed.zero_()
            flag.known.zero_()
            raise ValueError(_INVALID)
