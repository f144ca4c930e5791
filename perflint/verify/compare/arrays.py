"""Compares arrays that programs have saved by numpy."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

_NEAR = 1e-3  # of the array: what rounding may make of one, as of a printed number
_UNREADABLE = (ImportError, ValueError, OSError, EOFError, zipfile.BadZipFile)


def parting(before: bytes, after: bytes) -> str:
    """How arrays differ by more than rounding; empty where they don't, or the file holds something else."""
    old, new = _arrays(before), _arrays(after)
    if not old:
        return ""
    if old.keys() != new.keys():
        return "it holds other arrays"
    return next((f"{name or 'it'} holds other values" for name in old if not _is_near(old[name], new[name])), "")


def _arrays(content: bytes) -> Arrays:
    try:
        import numpy as np

        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        named = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        return {name: array for name, array in named.items() if isinstance(array, np.ndarray)}
    except _UNREADABLE:
        return {}


def _is_near(before: Any, after: Any) -> bool:
    import numpy as np

    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if before.dtype.kind not in "fc":
        return bool((before == after).all())
    finite = np.isfinite(before) & np.isfinite(after)
    old, new = (each[finite].astype(complex) for each in (before, after))
    is_near = np.linalg.norm(new - old) <= _NEAR * np.linalg.norm(old)
    return bool(is_near and np.array_equal(before[~finite], after[~finite], equal_nan=True))
