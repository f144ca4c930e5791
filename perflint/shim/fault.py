"""Tells that something went wrong in perflint itself, for which the user's program is not to suffer."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

_told: list[str] = []


def tell(message: str) -> None:
    """Warn of the first fault in this process, as a line at least where the program turns warnings into errors."""
    if _told:
        return
    _told.append(message)
    try:
        warnings.warn(f"perflint {message}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        with suppress(OSError, ValueError, AttributeError):  # nobody listens
            sys.stderr.write(f"RuntimeWarning: perflint {message}\n")
