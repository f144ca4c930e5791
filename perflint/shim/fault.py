"""Reports errors of perflint itself without disturbing the user's program."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

_reported: list[str] = []


def tell(message: str) -> None:
    """Warn of the first fault in this process, as a line at least where the program turns warnings into errors."""
    if _reported:
        return
    _reported.append(message)
    try:
        warnings.warn(f"perflint {message}", RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        with suppress(OSError, ValueError, AttributeError):  # nobody listens
            sys.stderr.write(f"RuntimeWarning: perflint {message}\n")
