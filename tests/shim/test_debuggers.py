"""Debuggers and tools for coverage find in patched code the lines of the user's file."""

from __future__ import annotations

from pathlib import Path

from tests.shim.runs import patched, project, python


def test_lines_breakpoints_and_sources_are_those_of_the_file(tmp_path: Path) -> None:
    project(tmp_path, "traced.py", "decoders.py")
    alone, run = python(tmp_path, "traced.py"), patched(tmp_path, "traced.py")
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode), run.stderr
    assert run.stdout.count("stopped at") == 4
    assert "decoders.py:16 decode-loop: compute all steps at once (5 times)" in run.stderr
