"""Programs that the verifier runs are held between steps, paused and ended, whatever they do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from multiprocessing.process import current_process
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from perflint.shim.session import RUN, SITE
from perflint.verify import processes
from perflint.verify.agent import steps
from perflint.verify.messages import OPTIMIZER, Kind, Program
from perflint.verify.processes import Guardian
from perflint.verify.running import NoProgress, Output, ProgramEnded, last_words
from perflint.verify.runs import Course
from tests.verify.courses import course, original

PATIENCE = 60.0


def test_a_program_goes_as_far_as_it_may_and_stands_still_while_it_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SITE, os.environ.get("PYTHONPATH", "")]))  # as in a run
    with course("train.py", "5") as races, races.running(original(tmp_path), OPTIMIZER) as running:
        assert not running.platforms  # nothing is known before the first step
        assert running.advance(2, PATIENCE).step == 2
        (platform,) = running.platforms
        running.pause()
        states = [process.status() for process in processes.processes(running.folder)]
        assert states == [psutil.STATUS_STOPPED]
        assert running.advance(4, PATIENCE).step == 4
        folder = running.folder
    assert not list(processes.processes(folder))
    assert (platform.rank, platform.ranks, platform.gpu) == (0, 1, None)
    assert platform.device.startswith("CPU, ")
    assert {"torch", "python"} <= set(platform.versions)


def test_children_in_groups_of_their_own_are_paused_and_ended_as_well(tmp_path: Path) -> None:
    run, child = str(tmp_path), "print(flush=True); import time; time.sleep(1000)"
    source = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    command, environment = [sys.executable, "-c", source], {**os.environ, RUN: run}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        groups = processes.pause(run, {parent.pid})
        family = list(processes.processes(run))
        assert [process.status() for process in family] == [psutil.STATUS_STOPPED] * 2
        assert groups == {process.pid for process in family}
        processes.resume(groups)
        assert psutil.STATUS_STOPPED not in [process.status() for process in family]
        processes.pause(run, groups)
        processes.kill(run)
    assert not list(processes.processes(run))


@pytest.mark.parametrize(("system", "size"), [("linux", 2048), ("darwin", 2)])
def test_memory_is_told_in_bytes_whatever_the_system_counts_in(
    system: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: SimpleNamespace(ru_maxrss=2))
    monkeypatch.setattr(steps, "resource", used)
    monkeypatch.setattr(steps, "sys", SimpleNamespace(platform=system))
    assert steps._host_bytes() == size


@pytest.mark.parametrize(("unit", "place"), [(OPTIMIZER, ", after step 3"), ("", "")])
def test_a_program_that_ends_says_how_and_where_if_steps_of_one_kind_count(
    unit: str, place: str, tmp_path: Path
) -> None:
    with course("fails.py") as races, races.running(original(tmp_path), unit) as running:
        with pytest.raises(ProgramEnded, match=rf": RuntimeError: out of data{place}$") as ended:
            running.advance(9, PATIENCE)
        assert ended.value.code == 1
        assert ended.value.errors.splitlines()[-1] == "RuntimeError: out of data"


@pytest.mark.parametrize(("kind", "name"), [(Kind.SCRIPT, "named.py"), (Kind.MODULE, "named"), (Kind.CALL, "named:x")])
def test_a_program_goes_by_its_own_name(tmp_path: Path, kind: Kind, name: str) -> None:
    parser = "parser = argparse.ArgumentParser(); parser.add_argument('--n', type=int); parser.parse_args()"
    (tmp_path / "named.py").write_text(f"import argparse, sys\nprint(sys.argv[1:])\n{parser}\n")
    with closing(Guardian()) as guardian:
        races = Course(Program(kind, name, ("--n", "x"), tmp_path), guardian)
        with races.running(original(tmp_path), OPTIMIZER) as running:
            assert running.finish(PATIENCE) == 2
            output, errors = (running.output.text, running.errors.text)
    assert output == "['--n', 'x']\n"
    assert re.match(r"(named\.py|python\S* -m named): error: ", errors.splitlines()[-1])


def test_lines_are_printed_whole_where_python_would_print_them_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    (tmp_path / "prints.py").write_text("import sys\nprint(sys.stdout.write_through, sys.stdout.line_buffering)\n")
    with closing(Guardian()) as guardian:
        races = Course(Program(Kind.SCRIPT, "prints.py", (), tmp_path), guardian)
        with races.running(original(tmp_path), OPTIMIZER) as running:
            assert running.finish(PATIENCE) == 0
            assert (running.output.text, running.errors.text) == ("False True\n", "")


def test_a_program_that_ends_while_it_is_paused_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with course("train.py", "5") as races, races.running(original(tmp_path), OPTIMIZER) as running:
        running.advance(1, PATIENCE)
        running.pause()
        monkeypatch.setattr(processes, "resume", lambda _: None)
        with pytest.raises(NoProgress):
            running.advance(2, 0.0)  # which it never hears of
        processes.kill(running.folder)
        with pytest.raises(ProgramEnded, match="was ended by SIGKILL"):
            running.advance(2, PATIENCE)


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    with course("hangs.py") as races, races.running(original(tmp_path), OPTIMIZER) as running:
        running.advance(1, PATIENCE)
        with pytest.raises(NoProgress, match="the original hangs after step 1: it came to no step for 1 s"):
            running.advance(2, 1.0)
        assert processes.memory(running.folder) > 2**29  # with the child's
        folder = running.folder
    assert not list(processes.processes(folder))


def test_of_what_a_failed_program_prints_the_exception_counts() -> None:
    told = "Traceback (most recent call last):\n  File\n[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n"
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n=======\n"
    assert last_words(told + launcher) == "torch.OutOfMemoryError: CUDA out of memory."
    assert last_words("usage: train.py\ntrain.py: no such data\n") == "train.py: no such data"
    assert last_words("") == ""


def test_a_program_that_asks_for_input_is_told_that_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text("input('Go on? ')")
    with closing(Guardian()) as guardian:
        races = Course(Program(Kind.SCRIPT, "asks.py", (), tmp_path), guardian)
        with races.running(original(tmp_path), OPTIMIZER) as running, pytest.raises(ProgramEnded) as ended:
            running.advance(1, PATIENCE)
    told = "EOFError: EOF when reading a line (verify runs programs without input)"
    assert str(ended.value) == f"the original ended with exit code 1: {told}"


def test_what_is_printed_is_kept_up_to_a_limit() -> None:
    output, source = Output(), "import sys; sys.stdout.write('a' * 3_000_000 + 'end')"
    subprocess.run([sys.executable, "-c", source], stdout=output.file, check=True)
    assert output.text.startswith("aaa") and output.text.endswith("aend")
    assert len(output.text) < 2_200_000 and " bytes ...\n" in output.text


def test_the_sockets_of_workers_lie_in_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_process(), "_config", {})
    steps.keep_sockets(tmp_path)
    assert get_temp_dir() == str(tmp_path)


def test_a_verifier_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    source = (
        "import sys; from pathlib import Path\n"
        "from tests.verify.courses import course, original\n"
        "with course('train.py', '1000') as c, c.running(original(Path(sys.argv[1])), 'optimizer steps') as r:\n"
        "    r.advance(1, 60.0); r.pause(); print(r.folder, flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", source, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as verifier:
        assert verifier.stdout is not None
        folder = verifier.stdout.readline().strip()
        left = list(processes.processes(folder))
        verifier.send_signal(signal.SIGKILL)
    assert left
    assert not psutil.wait_procs(left, timeout=PATIENCE)[1]
