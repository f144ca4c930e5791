"""What a program writes below its folders, and whatever it starts, ends up beside them where the system allows it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perflint.verify.agent import cover
from perflint.verify.agent.cover import changes, outermost, remove
from perflint.verify.messages import OPTIMIZER, Recording
from tests.verify.courses import course, original

PROBE = [sys.executable, "-m", cover.__name__]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder for programs, where covers can be had."""
    folder = tmp_path / "work"
    (folder / "folder").mkdir(parents=True)
    for name in ("old.txt", "kept.txt"):
        (folder / name).write_text(name)
    (folder / "folder" / "inner.txt").write_text("inner.txt")
    if subprocess.run([*PROBE, str(tmp_path / "probe"), str(folder)], check=False).returncode:
        pytest.skip("this system has no covers for us")
    return folder


def test_of_what_a_shell_writes_nothing_is_left_and_all_is_known(work: Path, tmp_path: Path) -> None:
    before = {each: each.read_text() for each in work.glob("*.txt")}
    with course("shells.py", folder=work) as races:
        races = replace(races, covers=True)
        job = original(tmp_path / "store"), Recording(str(tmp_path / "recording"), (), ())
        (run,) = races.record([job], OPTIMIZER, 9, 60.0)
        assert run.code == 0, run.errors
        assert run.output == "['folder', 'kept.txt', 'losses.txt', 'new.txt'] 6\n"
        found = {str(Path(path).relative_to(work)): file and file.read_text() for path, file in run.files.items()}
    assert found.pop("losses.txt")
    moved = {"folder": None, "renamed/inner.txt": "inner.txt"}
    assert found == {"old.txt": None, "new.txt": "kept.txt", **moved}
    assert (work / "folder" / "inner.txt").exists()
    assert {each: each.read_text() for each in work.glob("*.txt")} == before


def test_a_folder_within_another_is_covered_with_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert outermost((str(tmp_path / "a" / "b"), str(tmp_path / "a"))) == (str(tmp_path / "a"),)
    assert changes(tmp_path, (str(tmp_path / "a"),)) is None


def test_where_a_cover_would_lie_below_itself_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no place for a cover"):
        cover.cover(tmp_path / "into", (str(tmp_path),))


def test_what_a_cover_leaves_is_removed_though_nobody_may_read_it(tmp_path: Path) -> None:
    left = tmp_path / "run" / "cover" / "0" / "work" / "work"
    left.mkdir(parents=True)
    left.chmod(0)
    remove(tmp_path / "run")
    assert not (tmp_path / "run").exists()
