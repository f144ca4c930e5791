"""Processes that a patched program starts run the same program as it, and say for themselves what took effect."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.shim.runs import PROGRAMS, patched, project, python

FLAGS = [(), ("-u", "-O", *(["-P"] if sys.version_info >= (3, 11) else []))]

CHILD = """

def child():
    print(tuple(Decoder()(torch.ones(2, 3, 4)).shape), end=" ", flush=True)


if __name__ == "__main__":
    import multiprocessing

    process = multiprocessing.get_context("{method}").Process(target=child)
    process.start()
    process.join()
    print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_runs_the_patched_program(tmp_path: Path, method: str) -> None:
    run = patched(project(tmp_path, "workers.py", "decoders.py"), "workers.py", method)
    assert run.stdout == "PatchedLoader True 0\n", run.stderr
    assert "perflint: 1 fix took effect in 2 processes\n" in run.stderr
    assert re.search(r"\(2 times: 1 in main, 1 in \d+\)", run.stderr)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_workers_of_a_loader_run_the_patched_program(tmp_path: Path, method: str) -> None:
    run = patched(project(tmp_path, "loader_workers.py", "decoders.py"), "loader_workers.py", method)
    assert run.stdout == "True PatchedLoader True\n" * 2, run.stderr
    assert re.search(r"\(3 times: 1 in main, 2 in \d+\)", run.stderr)


def test_children_that_run_nothing_patched_note_nothing(tmp_path: Path) -> None:
    project(tmp_path, "decoders.py")
    forks = "import glob, os, sys\nimport decoders\n\nfor _ in range(9):\n    os.fork() or os._exit(0)\n    os.wait()\n"
    (tmp_path / "forks.py").write_text(f"{forks}print(len(glob.glob(os.environ['PERFLINT_RUN'] + '/*.fixes')))\n")
    assert patched(tmp_path, "forks.py").stdout == "1\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_runs_the_patched_script(tmp_path: Path, method: str) -> None:
    project(tmp_path)
    decoder = (PROGRAMS / "decoders.py").read_text().partition('"""\n')[2]
    (tmp_path / "script.py").write_text(f"{decoder}{CHILD.format(method=method)}")
    alone, run = python(tmp_path, "script.py"), patched(tmp_path, "script.py")
    assert run.stdout == alone.stdout == "(2, 3, 4) 0\n", run.stderr
    assert re.search(r"script.py:\d+ decode-loop: compute all steps at once \(1 time: 1 in \d+\)", run.stderr)


def test_a_script_that_is_started_is_patched_too(tmp_path: Path) -> None:
    project(tmp_path, "starts.py", "crashes.py")
    alone, run = python(tmp_path, "crashes.py"), patched(tmp_path, "starts.py", "crashes.py")
    error, summary = run.stderr.split("perflint: ")
    assert (run.stdout, error, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)
    assert re.search(r"crashes.py:16 decode-loop: compute all steps at once \(1 time: 1 in \d+\)", summary)


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_a_script_that_is_started_sees_itself_as_python_would_show_it(tmp_path: Path, flags: tuple[str, ...]) -> None:
    project(tmp_path, "starts.py")
    decoder = (PROGRAMS / "decoders.py").read_text().partition('"""\n')[2]
    (tmp_path / "both.py").write_text(
        (PROGRAMS / "identity.py").read_text() + decoder + "\nDecoder()(torch.ones(2, 3, 4))\n"
    )
    command = ("starts.py", *flags, "both.py", "--epochs", "3")
    kept = {"PYTHONDONTWRITEBYTECODE": ""}  # there is none of torch for -O, which takes seconds to compile
    alone, run = python(tmp_path, *command, **kept), patched(tmp_path, *command, **kept)
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode)
    assert "perflint: 1 fix took effect" in run.stderr


def test_a_child_is_patched_though_the_cache_is_gone(tmp_path: Path) -> None:
    project(tmp_path, "workers.py", "decoders.py")
    script = tmp_path / "workers.py"
    clean = "__import__('shutil').rmtree('.perflint_cache')\n    context = multiprocessing"
    script.write_text(script.read_text().replace("context = multiprocessing", clean))
    run = patched(tmp_path, "workers.py", "spawn")
    assert run.stdout == "PatchedLoader True 0\n", run.stderr
    assert "Warning" not in run.stderr


def test_what_is_left_running_behind_the_end_of_a_run_goes_on_without_it(tmp_path: Path) -> None:
    project(tmp_path, "decoders.py")
    (tmp_path / "late.py").write_text(
        "import os, pathlib, subprocess, sys, time\n"
        "while pathlib.Path(os.environ['PERFLINT_RUN']).exists():\n    time.sleep(0.02)\n"
        "code = 'import decoders; print(type(decoders.__loader__).__name__)'\n"
        "done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "pathlib.Path('new.txt').write_text(done.stdout + done.stderr)\n"
        "pathlib.Path('new.txt').rename('said.txt')\n"
    )
    start = "import subprocess, sys\n\nsubprocess.Popen([sys.executable, 'late.py'], stderr=subprocess.DEVNULL)\n"
    (tmp_path / "main.py").write_text(start)
    patched(tmp_path, "main.py")
    said = tmp_path / "said.txt"
    end = time.monotonic() + 60
    while not said.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert said.read_text() == "SourceFileLoader\n"


def test_the_switch_leaves_a_child_alone(tmp_path: Path) -> None:
    project(tmp_path, "starts.py", "crashes.py")
    switch = "import os\n\nos.environ['PERFLINT_DISABLE'] = '1'\n"
    (tmp_path / "main.py").write_text(switch + (PROGRAMS / "starts.py").read_text())
    run = patched(tmp_path, "main.py", "crashes.py")
    assert "perflint: 0 fixes took effect\n" in run.stderr


def test_a_module_that_is_imported_from_the_place_of_its_file_is_patched(tmp_path: Path) -> None:
    run = patched(project(tmp_path, "locates.py", "decoders.py"), "locates.py")
    assert run.stdout == "PatchedLoader (2, 3, 4)\n", run.stderr
    assert "decoders.py:16 decode-loop: compute all steps at once (1 time)" in run.stderr
