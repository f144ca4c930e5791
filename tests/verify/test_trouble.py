"""Whatever a program does, and whatever becomes of the verifier, there is a clear word on it, and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from perflint.verify import processes
from perflint.verify.examine import Examination
from perflint.verify.messages import BATCH, OPTIMIZER, Platform
from perflint.verify.protocol import Budget, Look, Passage, Protocol
from perflint.verify.race import race
from perflint.verify.running import NoProgress, ProgramEnded
from perflint.verify.statistics import ORIGINAL
from perflint.verify.variants import Shortcut
from perflint.verify.verdict import Grade
from tests.verify.courses import PROGRAMS, bench, course, original

PATIENCE = 120.0
ROOM = 50_000_000  # bytes that the verifier may grow by
ENDS = {
    "memory": "the original ended with exit code 1: RuntimeError: ",
    "SIGKILL": "the original was ended by SIGKILL, as where memory runs out",
    "SIGTERM": "the original was ended by SIGTERM",
    "SIGSEGV": "the original was ended by SIGSEGV",
}


@pytest.mark.parametrize("kind", ENDS)
def test_how_a_program_has_failed_is_said(tmp_path: Path, kind: str) -> None:
    with course("trouble.py", kind) as races, pytest.raises(ProgramEnded) as ended:
        races.look(original(tmp_path), 1.0)
    assert str(ended.value).startswith(ENDS[kind])


def test_a_program_that_leaves_with_a_code_of_its_own_has_not_failed(tmp_path: Path) -> None:
    with course("trouble.py", "quits") as races:
        look = races.look(original(tmp_path), 1.0)
    assert (look.is_whole, look.code, bool(look.passages)) == (True, 3, True)


@pytest.mark.parametrize("unit", ["", OPTIMIZER])
def test_a_program_that_leaves_with_a_code_of_its_own_is_timed(tmp_path: Path, unit: str) -> None:
    with course("shapes/exits.py") as races:
        leaves = Protocol(unit, 1, 1, 10 if unit else 1, 3, code=3)  # windows beyond its end
        assert race(races, [original(tmp_path)], leaves, lambda _: True).samples.windows
        with pytest.raises(ProgramEnded, match="the original ended with exit code 3"):
            race(races, [original(tmp_path)], replace(leaves, code=0), lambda _: True)


def test_a_patch_is_not_blamed_where_the_disk_is_full(tmp_path: Path) -> None:
    with bench("shapes/exits.py", tmp_path, steps=4) as exits, pytest.raises(OSError, match="No space left on device"):
        exits.likeness(
            "    if step == 7:", "    if step == 2: raise OSError(28, 'No space left on device')\n    if step == 7:"
        )


def test_a_program_without_a_step_is_not_checkable(tmp_path: Path) -> None:
    with course("trouble.py", "leaves") as races:
        look = races.look(original(tmp_path), 1.0)
    assert look.is_whole
    assert not look.passages
    with bench("trouble.py", tmp_path, "leaves", steps=1) as leaves:
        assert leaves.records.own.grade is Grade.UNKNOWN
        assert leaves.records.own.evidence[0].startswith("its first process comes to no step")


def test_a_program_that_prints_without_end_fills_neither_the_memory_nor_the_disk(tmp_path: Path) -> None:
    before = psutil.Process().memory_info().rss
    with course("trouble.py", "floods") as races, races.running(original(tmp_path), BATCH) as running:
        assert running.finish(PATIENCE) == 0
        output, errors = running.output.text, running.errors.text
        assert " bytes ..." in output and " bytes ..." in errors
        assert os.fstat(running.output.file.fileno()).st_blocks * 512 < 100 * 2**20
    assert len(output) + len(errors) < 2**23
    assert psutil.Process().memory_info().rss - before < ROOM


def test_children_that_know_nothing_of_the_verifier_are_ended_too(tmp_path: Path) -> None:
    with course("trouble.py", "hangs") as races, races.running(original(tmp_path), BATCH) as running:
        running.advance(2, PATIENCE)
        with pytest.raises(NoProgress, match="it came to no step for 1 s"):
            running.advance(9, 1.0)
        family = list(processes.processes(running.folder))
        assert any(not process.environ() for process in family)
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_a_verifier_that_dies_before_somebody_watches_over_it_has_made_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(processes, "_LONGEST", 1000)
    monkeypatch.setattr(subprocess, "Popen", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        processes.Guardian()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_verifier_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    home, pipe = tmp_path / "home", tmp_path / "pipe"
    temporary = Path(tempfile.mkdtemp())  # sockets need short paths
    home.mkdir()
    shutil.copy(PROGRAMS / "waits.py", home)
    (home / "perflint.toml").touch()  # a project of its own
    (home / "kept.txt").write_text("kept")
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "perflint", "verify", "--select", "repeat-not-broadcast", "waits.py", str(pipe)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, cwd=home, env=environment, stderr=subprocess.DEVNULL) as verifier:
        subprocess.run(["timeout", str(PATIENCE), "cat", str(pipe)], check=True)  # ends once the program is there
        family = psutil.Process(verifier.pid).children(recursive=True)
        assert len(family) > 1
        assert (home / "kept.txt").read_text() == "lost"
        verifier.send_signal(number)
    assert not psutil.wait_procs(family, timeout=PATIENCE)[1]
    assert (home / "kept.txt").read_text() == "kept"
    assert not (home / "new.txt").exists()
    assert not [path for path in temporary.iterdir() if path.name.startswith("perflint-")]
    shutil.rmtree(temporary)
    assert not [path for path in (home / ".perflint").glob("*") if path.name.startswith(("verdicts", "report"))]


def test_a_verdict_that_failed_says_on_which_device(tmp_path: Path) -> None:
    platform = Platform(0, 1, "NVIDIA H200", {"torch": "2.11.0"})
    course = Mock(program="train.py", budget=Budget(60.0))
    course.within.return_value = course.after.return_value = course
    course.look.return_value = Look(1.0, (Passage(BATCH, 0.1),) * 9, is_whole=False, platforms=(platform,))
    course.record.side_effect = NoProgress(ORIGINAL, "hangs")
    variants = Mock(fixes=(Mock(),), shortened=Shortcut(), paths=())
    verdict = Examination(course, variants, Budget(60.0), tmp_path, lambda _: None, Mock()).verdict()
    assert (verdict.failure, verdict.device) == ("the original hangs", "NVIDIA H200")
    assert verdict.environment["torch"] == "2.11.0"
