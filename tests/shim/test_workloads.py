"""Whole programs print under `perflint run` what they print under Python, and what mends them takes effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.runs import patched, python

WORKLOADS = Path(__file__).parents[2] / "fixtures" / "workloads"
EFFECTS = {
    "chatty": "item-in-loop: collect `losses` on the device and read it once, after the loop (20 times)",
    "images": "loader: n",  # workers, or no cores for any
    "seq2seq": "decode-loop: compute all steps at once (60 times)",
    "unguarded": "missing-main-guard: move what runs under a main guard (1 time)",
}


@pytest.mark.parametrize("path", sorted(WORKLOADS.glob("*.py")), ids=lambda path: path.stem)
def test_a_workload_prints_the_same(path: Path, tmp_path: Path) -> None:
    (tmp_path / path.name).write_text(path.read_text())
    alone, run = python(tmp_path, path.name), patched(tmp_path, path.name)
    assert alone.returncode == 0, alone.stderr
    assert run.stdout == alone.stdout
    assert run.stderr.startswith(alone.stderr)
    if path.stem in EFFECTS:
        assert EFFECTS[path.stem] in run.stderr
    else:
        assert run.stderr.endswith("perflint: 0 fixes took effect\n")
