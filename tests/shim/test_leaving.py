"""Programs that don't come to Python's own end tell what took effect all the same, then or later."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.shim import running
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


def test_a_run_that_was_killed_is_told_of_when_asked(folder: Path) -> None:
    alone, run = python(folder, "leaves.py", "by a signal"), patched(folder, "leaves.py", "by a signal")
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)
    last = patched(folder, "--last")
    assert (last.stdout, last.stderr, last.returncode) == (TOLD.format("1 time"), "", 0)


def test_a_run_that_came_to_its_end_is_not_told_of_again(folder: Path) -> None:
    assert patched(folder, "leaves.py", "by its end").stderr == TOLD.format("1 time")
    last = patched(folder, "--last")
    assert (last.stdout, last.returncode, len(last.stderr.splitlines())) == ("", 2, 1)


def test_what_is_left_is_removed_in_time_but_not_what_is_in_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder / "scratch"))
    old, used = folder / "scratch" / "perflint-run-old", running.enter()
    old.mkdir()
    running.sweep()
    assert old.exists()
    monkeypatch.setattr("time.time", lambda: old.stat().st_mtime + 30 * 86_400)
    running.sweep()
    assert left(folder) == [used.path]
    used.leave()
    assert not left(folder)
