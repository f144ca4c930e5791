"""Whole programs print under `perflint run` what they print under Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.runs import patched, python

WORKLOADS = Path(__file__).parents[2] / "fixtures" / "workloads"


@pytest.mark.parametrize("path", sorted(WORKLOADS.glob("*.py")), ids=lambda path: path.stem)
def test_a_workload_prints_the_same(path: Path, tmp_path: Path) -> None:
    (tmp_path / path.name).write_text(path.read_text())
    alone, run = python(tmp_path, path.name), patched(tmp_path, path.name)
    assert alone.returncode == 0, alone.stderr
    assert run.stdout == alone.stdout
    assert run.stderr.startswith(alone.stderr)
