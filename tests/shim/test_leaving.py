"""Programs that don't come to Python's own end tell what took effect all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.runs import patched, project, python

TOLD = """\
perflint: 1 fix took effect
  decoders.py:16 decode-loop: compute all steps at once ({})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, in which runs note what they do."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    return project(tmp_path, "leaves.py", "decoders.py")


def left(folder: Path) -> list[Path]:
    """What runs have left behind."""
    return list((folder / "scratch").glob("perflint-*"))


@pytest.mark.parametrize(
    ("how", "times"), [("at once", "1 time"), ("as another program", "1 time"), ("as itself", "2 times")]
)
def test_a_program_that_leaves_its_process_tells_first(folder: Path, how: str, times: str) -> None:
    alone, run = python(folder, "leaves.py", how), patched(folder, "leaves.py", how)
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, TOLD.format(times), alone.returncode)
    assert not left(folder)
