"""Whatever goes wrong inside the shim, the program runs as the user wrote it, and is told so once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shim.runs import patched, project, python

_HERE = str(Path(__file__).parents[2])
_LIMITED = """\
import os, resource, sys

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.executable, [sys.executable, "-m", "perflint", "run", *sys.argv[2:]])
"""


_RUN = "import runpy, sys\nsys.argv[0] = 'perflint'\nrunpy.run_module('perflint', run_name='__main__')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose program prints that it ran."""
    (tmp_path / "main.py").write_text("import decoders\n\nprint('ran', type(decoders.__loader__).__name__)\n")
    return project(tmp_path, "decoders.py")


def warnings(run: subprocess.CompletedProcess[str]) -> int:
    return run.stderr.count("Warning: perflint")


@pytest.mark.parametrize("size", [0, 64])
def test_where_the_disk_is_full_the_program_runs(folder: Path, size: int) -> None:
    run = python(folder, "-c", _LIMITED, str(size), "main.py")
    assert (run.stdout, run.returncode) == ("ran SourceFileLoader\n", 0), run.stderr
    assert warnings(run) == 1
    assert not [file for file in folder.rglob("*") if re.search(r"\.\d+$", file.name)], "a file is half written"


def test_a_store_that_is_no_folder_is_done_without(folder: Path) -> None:
    (folder / ".perflint_cache").write_text("not a folder")
    run = patched(folder, "main.py")
    assert (run.stdout, run.returncode) == ("ran PatchedLoader\n", 0), run.stderr
    assert warnings(run) == 0


def test_entries_of_the_store_that_cannot_be_read_are_done_without(folder: Path) -> None:
    patched(folder, "main.py")
    for file in (folder / ".perflint_cache" / "run").iterdir():
        file.unlink()
        file.mkdir()
    run = patched(folder, "main.py")
    assert (run.stdout, run.returncode) == ("ran PatchedLoader\n", 0), run.stderr
    assert warnings(run) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_project_that_cannot_be_written_is_run_patched(folder: Path) -> None:
    folder.chmod(0o555)
    try:
        run = patched(folder, "main.py")
    finally:
        folder.chmod(0o755)
    assert (run.stdout, run.returncode) == ("ran PatchedLoader\n", 0), run.stderr
    assert warnings(run) == 0


def test_a_folder_for_temporary_files_that_is_not_there_costs_the_patches(folder: Path) -> None:
    code = f"import tempfile\ntempfile.tempdir = '/nowhere'\n{_RUN}"
    run = python(folder, "-c", code, "run", "main.py")
    assert (run.stdout, run.returncode) == ("ran SourceFileLoader\n", 0), run.stderr
    assert warnings(run) == 1


def test_a_fault_while_planning_is_one_warning(folder: Path) -> None:
    code = (
        "import perflint.shim.planning as planning\n"
        "def fail(*_): raise ZeroDivisionError\n"
        "planning.patch_files = fail\n"
        f"{_RUN}"
    )
    run = python(folder, "-c", code, "run", "main.py")
    assert (run.stdout, run.returncode) == ("ran SourceFileLoader\n", 0), run.stderr
    assert warnings(run) == 1
    assert "ZeroDivisionError" in run.stderr


def test_ctrl_c_while_planning_ends_the_command_and_leaves_nothing(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    code = (
        "import os, signal, perflint.shim.planning as planning\n"
        "planning.patch_files = lambda *_: os.kill(os.getpid(), signal.SIGINT) or __import__('time').sleep(60)\n"
        f"{_RUN}"
    )
    run = python(folder, "-c", code, "run", "main.py", TMPDIR=str(scratch))
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 130)
    assert not list(scratch.iterdir())
    assert not list((folder / ".perflint_cache" / "run").iterdir())


def test_warnings_that_are_errors_do_not_turn_a_fault_into_one(folder: Path) -> None:
    code = f"import tempfile\ntempfile.tempdir = '/nowhere'\n{_RUN}"
    run = python(folder, "-c", code, "run", "main.py", PYTHONWARNINGS="error::RuntimeWarning")
    assert (run.stdout, run.returncode) == ("ran SourceFileLoader\n", 0), run.stderr
    assert warnings(run) == 1


def test_a_rank_that_fails_ends_the_others_as_by_python(folder: Path) -> None:
    end = "import os, sys, time\nimport decoders\n\nif os.environ['RANK'] == '1':\n    sys.exit(3)\ntime.sleep(120)\n"
    (folder / "main.py").write_text(end)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python")
    run = python(folder, *launcher, sys.executable, "-m", "perflint", "run", "main.py", TMPDIR=str(folder))
    assert run.returncode != 0
    assert "exitcode  : 3" in run.stderr
    assert "Signal" not in run.stdout
