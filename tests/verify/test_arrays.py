"""Arrays that a program saves may differ by rounding where its results may."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from perflint.verify.compare import Comparison, Difference
from perflint.verify.judge import Standard, likeness
from perflint.verify.runs import Recorded
from perflint.verify.verdict import Grade

SCORES = np.linspace(0, 1, 50, dtype=np.float32)
ROUNDED = Comparison(2, 9, (), (Difference(1, "loss 0", 1e-7, is_close=True),))


def saved(*arrays: np.ndarray) -> bytes:
    """What numpy writes of an array, or of several."""
    file = io.BytesIO()
    np.save(file, arrays[0]) if len(arrays) == 1 else np.savez(file, *arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (saved(SCORES), saved(SCORES * np.float32(1 + 1e-6)), ""),
        (saved(np.append(SCORES, -np.inf)), saved(np.append(SCORES * np.float32(1 + 1e-6), -np.inf)), ""),
        (saved(SCORES), saved(1 - SCORES), ": it holds other values"),
        (saved(SCORES), saved(SCORES[:-1]), ": it holds other values"),
        (saved(SCORES), saved(np.full_like(SCORES, np.nan)), ": it holds other values"),
        (saved(SCORES, SCORES), saved(SCORES, 2 * SCORES), ": arr_1 holds other values"),
        (saved(SCORES, SCORES), saved(SCORES, SCORES, SCORES), ": it holds other arrays"),
        (saved(np.arange(9)), saved(np.arange(9)[::-1]), ": it holds other values"),
        (b"\xff\x00", b"\xff\x01", ""),
    ],
)
def test_saved_arrays_are_compared_but_for_rounding(tmp_path: Path, before: bytes, after: bytes, words: str) -> None:
    files = [tmp_path / "before", tmp_path / "after"]
    for file, content in zip(files, (before, after), strict=True):
        file.write_bytes(content)
    old, new = (Recorded(tmp_path, None, "", "", files={"/scores.npy": file}) for file in files)
    found = likeness(Standard(old, old), new, ROUNDED)
    assert found.grade is (Grade.DIFFERENT if words else Grade.ROUNDING)
    assert not words or found.evidence[0].endswith(f"scores.npy{words}")
