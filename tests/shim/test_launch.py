"""A program that is run by perflint sees, prints and ends as it would by Python."""

from __future__ import annotations

import os
import shutil
import sys
import zipapp
from pathlib import Path

import pytest

from perflint.engine import UserError
from perflint.shim.plan import find_program
from tests.shim.runs import patched, project, python

ENDS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters())


def train(loader):
    total = 0.0
    for batch in loader:
        loss = model(batch.to(device)).sum()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def batches():
    yield torch.ones(2, 4)
    raise ValueError("no more")


train(batches())
"""


def test_a_script_sees_itself_as_python_would_show_it(tmp_path: Path) -> None:
    project(tmp_path, "identity.py")
    alone, run = (
        python(tmp_path, "identity.py", "--epochs", "3"),
        patched(tmp_path, "-q", "identity.py", "--epochs", "3"),
    )
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)


def test_a_script_in_another_folder_imports_from_its_own(tmp_path: Path) -> None:
    project(tmp_path, "identity.py")
    (tmp_path / "elsewhere").mkdir()
    command = ("../identity.py", "-m", "--help")
    alone, run = python(tmp_path / "elsewhere", *command), patched(tmp_path / "elsewhere", "-q", *command)
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)


def test_a_module_is_run_as_by_python_dash_m(tmp_path: Path) -> None:
    project(tmp_path, "identity.py")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (tmp_path / "identity.py").rename(package / "__main__.py")
    alone, run = python(tmp_path, "-m", "package", "-x"), patched(tmp_path, "-q", "-m", "package", "-x")
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)


@pytest.mark.parametrize("name", ["package", "package/", "package.zip"])
def test_a_folder_or_an_archive_is_run_by_what_is_its_main(tmp_path: Path, name: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    project(tmp_path, "identity.py").joinpath("identity.py").rename(package / "__main__.py")
    zipapp.create_archive(package)
    shutil.move(tmp_path / "package.pyz", tmp_path / "package.zip")
    alone, run = python(tmp_path, name, "-x"), patched(tmp_path, "-q", name, "-x")
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)


def test_the_main_of_a_folder_is_patched(tmp_path: Path) -> None:
    project(tmp_path, "crashes.py")
    (tmp_path / "crashes.py").rename(tmp_path / "__main__.py")
    assert "__main__.py:16 decode-loop: compute all steps at once (1 time)" in patched(tmp_path, ".").stderr


@pytest.mark.parametrize("how", ["code", "text", "nothing", "interrupt", "signal", "hook", "pipe", "end"])
def test_a_program_ends_as_by_python(tmp_path: Path, how: str) -> None:
    project(tmp_path, "exits.py")
    alone, run = python(tmp_path, "exits.py", how), patched(tmp_path, "-q", "exits.py", how, TMPDIR=str(tmp_path))
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)


@pytest.mark.parametrize("how", ["as by default", "with a hook"])
def test_an_error_looks_as_by_python_to_whoever_looks_at_it(tmp_path: Path, how: str) -> None:
    project(tmp_path, "fails.py")
    alone, run = python(tmp_path, "fails.py", how), patched(tmp_path, "-q", "fails.py", how)
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)


def test_a_hook_that_fails_is_called_once(tmp_path: Path) -> None:
    project(tmp_path, "fails.py")
    alone, run = python(tmp_path, "fails.py", "raises"), patched(tmp_path, "-q", "fails.py", "raises")
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode)
    assert run.stderr.count("RuntimeError: in the hook") == 1


def test_a_module_that_its_package_has_imported_is_warned_of_as_by_python(tmp_path: Path) -> None:
    package = project(tmp_path) / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import package.module\n")
    (package / "module.py").write_text("print(__name__)\n")
    alone, run = python(tmp_path, "-m", "package.module"), patched(tmp_path, "-q", "-m", "package.module")
    assert "RuntimeWarning" in alone.stderr
    assert (run.stdout, run.stderr, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)


def test_a_traceback_out_of_patched_code_shows_the_lines_of_the_user_s_file(tmp_path: Path) -> None:
    project(tmp_path, "crashes.py")
    alone, run = python(tmp_path, "crashes.py"), patched(tmp_path, "crashes.py")
    error, summary = run.stderr.split("perflint: ")
    assert (run.stdout, error, run.returncode) == (alone.stdout, alone.stderr, alone.returncode)
    assert "crashes.py:16 decode-loop" in summary


def test_a_traceback_out_of_the_head_of_a_patched_loop_is_the_user_s(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "ends.py").write_text(ENDS)
    alone, run = python(tmp_path, "ends.py"), patched(tmp_path, "ends.py")
    error, summary = run.stderr.split("perflint: ")
    assert error == alone.stderr
    assert "ends.py:17 item-in-loop" in summary


@pytest.mark.parametrize(
    "arguments", [("missing.py",), ("missing",), ("-m", "missing"), ("-m", "json.missing"), ("-m", "sys")]
)
def test_what_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "missing").mkdir()
    run = patched(project(tmp_path, "identity.py"), *arguments)
    assert run.returncode == 2
    assert arguments[-1].rpartition(".")[2] in run.stderr
    assert "Traceback" not in run.stderr


def test_what_may_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_program(str(tmp_path))
    asked: list[int] = []

    def refuse(path: str, mode: int) -> bool:
        asked.append(mode)
        return False

    monkeypatch.setattr(os, "access", refuse)
    for path in (tmp_path, Path(__file__)):
        with pytest.raises(UserError, match="Permission denied"):
            find_program(str(path))
    assert asked == [os.R_OK | os.X_OK, os.R_OK]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["closed", "closed/main.py"])
def test_a_program_in_a_closed_folder_is_no_fault_of_ours(tmp_path: Path, name: str) -> None:
    folder = project(tmp_path, "identity.py") / "closed"
    folder.mkdir(0o000)
    run = patched(tmp_path, name)
    folder.chmod(0o755)
    assert (run.returncode, run.stderr) == (2, f"perflint: {name}: Permission denied\n")


@pytest.mark.parametrize("asked", ["script", "module"])
def test_a_program_starts_in_a_working_folder_that_is_gone(tmp_path: Path, asked: str) -> None:
    project(tmp_path)
    script = tmp_path / "main.py"
    script.write_text("print('ok')\n")
    words = [str(script)] if asked == "script" else ["-m", "this"]
    command = [sys.executable, "-m", "perflint", "run", *words]
    leave = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); "
    run = python(tmp_path, "-c", f"{leave}os.execv({sys.executable!r}, {command!r})")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(("ok", "The Zen of Python"))
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("flags", [[], ["--no-cache"]])
def test_a_program_and_the_command_line_import_each_their_own_module_of_a_name(
    tmp_path: Path, flags: list[str]
) -> None:
    project(tmp_path)
    (tmp_path / "click.py").write_text("X = 1\n")
    (tmp_path / "json.py").write_text("X = 1\n")
    (tmp_path / "main.py").write_text("import click\n\nprint(click.X)\n")
    for script in ("main.py", str(tmp_path / "main.py")):
        run = patched(tmp_path if script == "main.py" else tmp_path.parent, *flags, script)
        assert (run.stdout, run.returncode) == ("1\n", 0), run.stderr


def test_what_a_program_imports_from_elsewhere_stays_as_it_is(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "click").mkdir()  # without modules: python takes the library's
    (tmp_path / "main.py").write_text("import sys\nimport click\n\nprint(click.echo.__module__, sys.path[0])\n")
    alone, run = python(tmp_path, "main.py"), patched(tmp_path, "--no-cache", "main.py")
    assert (run.stdout, run.returncode) == (alone.stdout, 0), run.stderr
