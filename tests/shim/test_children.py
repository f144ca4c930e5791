"""Processes that a patched program starts run the same program as it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.runs import patched, project


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_runs_the_patched_program(tmp_path: Path, method: str) -> None:
    run = patched(project(tmp_path, "workers.py", "decoders.py"), "workers.py", method)
    assert run.stdout == "PatchedLoader True 0\n", run.stderr
    assert "(2 times)" in run.stderr
