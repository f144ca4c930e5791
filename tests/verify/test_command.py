"""The command `verify` runs a program and its patch, and says what came of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from perflint.cli import options
from perflint.cli.commands import FAILED, cli
from perflint.cli.programs import tune
from perflint.project.stored import VERDICTS
from perflint.verify import verdicts
from perflint.verify.agent.timeline import HOST, LOADER
from perflint.verify.messages import CALLS
from perflint.verify.statistics import AGAIN, ORIGINAL, PATCHED
from perflint.verify.verdict import Grade
from tests.shim.runs import python
from tests.verify.courses import PROGRAMS, verify

WORKLOADS = PROGRAMS.parent / "workloads"
QUICK = ("--budget", "5m", "--rounds", "3", "--pairs", "3", "--window", "2", "--horizon", "6")


def copied(program: Path, folder: Path) -> str:
    shutil.copy(program, folder)
    (folder / "perflint.toml").touch()  # a project of its own
    return program.name


def test_a_lifted_loop_is_verified_from_first_look_to_report(tmp_path: Path) -> None:
    name = copied(WORKLOADS / "seq2seq.py", tmp_path)
    result = verify(tmp_path, *QUICK, "--select", "decode-loop", name, "--steps", "60")
    assert result.returncode in (0, 1), result.stderr  # how fast it is here is not asked
    assert "gives the same results but for rounding" in " ".join(result.stdout.split())
    (verdict,) = verdicts.read(tmp_path / ".perflint" / VERDICTS)
    assert verdict.own.grade is Grade.BITWISE
    assert [fix.rule for fix in verdict.fixes] == ["decode-loop"]
    assert verdict.fixes[0].activations > 0
    assert any("-        for t in range(tokens.size(1)):" in hunk.text for hunk in verdict.hunks)
    assert {window.variant for window in verdict.samples.windows} == {ORIGINAL, AGAIN, PATCHED}
    for side in (verdict.before, verdict.after):
        assert side.timeline is not None and side.timeline.lanes == (HOST, LOADER)
        assert side.timeline.share(HOST) + side.timeline.share(LOADER) == pytest.approx(1)
    assert "<html" in (tmp_path / ".perflint" / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / ".perflint" / ".gitignore").read_text() == "*\n"


def test_where_there_is_no_fix_nothing_is_run(tmp_path: Path) -> None:
    name = copied(PROGRAMS / "train.py", tmp_path)
    result = verify(tmp_path, *QUICK, "--select", "decode-loop", name, "not a number")
    assert result.returncode == 1
    assert "Nothing to fix" in result.stdout


def test_verdicts_that_can_not_be_read_go_aside_and_that_is_said_before(tmp_path: Path) -> None:
    name = copied(PROGRAMS / "train.py", tmp_path)
    (tmp_path / ".perflint").mkdir()
    file = tmp_path / ".perflint" / VERDICTS
    file.write_text("{")
    result = verify(tmp_path, *QUICK, "--select", "decode-loop", name)
    assert (result.returncode, len(verdicts.read(file))) == (1, 1)
    assert result.stderr.splitlines()[0].endswith(f"{file} can't be read: it will be verdicts.old")
    assert file.with_suffix(".old").read_text() == "{"


@pytest.mark.parametrize(("wrong", "said"), [(".perflint", "Not a directory"), (".perflint/report.html/x", "a folder")])
def test_where_the_verdict_can_not_be_kept_nothing_is_run(tmp_path: Path, wrong: str, said: str) -> None:
    name = copied(PROGRAMS / "train.py", tmp_path)
    (tmp_path / wrong).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / wrong).touch()
    result = verify(tmp_path, *QUICK, name)
    (line,) = result.stderr.splitlines()
    assert (result.returncode, result.stdout) == (2, "")
    assert "the verdict can't be kept there" in line and line.endswith(said)


def test_where_there_is_no_room_for_temporary_files_that_is_said(tmp_path: Path) -> None:
    name = copied(PROGRAMS / "train.py", tmp_path)
    limits = "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))"
    starts = f"import resource, runpy; {limits}; runpy.run_module('perflint', run_name='__main__')"
    result = python(tmp_path, "-c", starts, "verify", "-q", name)
    (line,) = result.stderr.splitlines()
    assert (result.returncode, result.stdout) == (2, "")
    assert line.endswith(": File too large"), line


def test_a_program_that_fails_gets_no_verdict(tmp_path: Path) -> None:
    name = copied(WORKLOADS / "greedy.py", tmp_path)
    result = verify(tmp_path, *QUICK, "--select", "decode-loop", name, "--checkpoint", "missing.pt")
    assert result.returncode == 2
    assert "No verdict: the original ended with exit code 1: FileNotFoundError" in " ".join(result.stdout.split())


def test_where_a_program_fails_options_behind_it_are_named() -> None:
    with click.Context(tune):
        assert options.misplaced(("train.py", "--epochs", "3")) == ""
        told = options.misplaced(("train.py", "--epochs", "3", "--budget=60s", "--allow", "precision"))
    assert told.startswith("--budget=60s --allow stood behind train.py, and so went to it: ")


def test_a_module_is_verified_by_its_name(tmp_path: Path) -> None:
    name = copied(PROGRAMS / "repeats.py", tmp_path)
    result = verify(tmp_path, *QUICK, "--select", "repeat-not-broadcast", "--fail-under", "1000", "-m", "repeats")
    assert result.returncode == 1, result.stderr
    (verdict,) = verdicts.read(tmp_path / ".perflint" / VERDICTS)
    assert (verdict.unit, verdict.likeness.grade) == (CALLS, Grade.BITWISE), (name, verdict)


def ticking(folder: Path, function: str) -> subprocess.CompletedProcess[str]:
    """A program is verified by a clock of its own: on it, a copy takes two thirds of a step."""
    copied(PROGRAMS / "repeats.py", folder)
    copied(PROGRAMS / "ticks.py", folder)
    within = ("--budget", "30s", "--warm-up", "6")  # a twentieth goes into looking further, and into each variant
    return verify(folder, *QUICK, *within, "--select", "repeat-not-broadcast", "--call", f"ticks:{function}")


def test_what_is_faster_is_proved_and_applied(tmp_path: Path) -> None:
    result = ticking(tmp_path, "added")
    assert result.returncode == 0, result.stdout
    said = " ".join(result.stdout.split())
    assert "Faster: the patched program gives bitwise the same results over the first " in said
    assert " steps and is 3.00x" in said
    command = [sys.executable, "-m", "perflint"]
    shown = subprocess.run([*command, "check", "repeats.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "measured: 3.00x (3.00 to 3.00) as fast on CPU" in shown.stdout
    subprocess.run([*command, "fix", "--apply", "--verified"], cwd=tmp_path, capture_output=True, check=True)
    assert "context.expand(-1, 32, -1) + x" in (tmp_path / "repeats.py").read_text(encoding="utf-8")
    assert "scale.repeat(1, 32, 1)" in (tmp_path / "ticks.py").read_text(encoding="utf-8")  # its fix never ran


def test_a_patch_that_fails_behind_what_was_compared_is_rejected(tmp_path: Path) -> None:
    result = ticking(tmp_path, "failing")
    assert result.returncode == 1, result.stdout
    said = " ".join(result.stdout.split())
    assert "Rejected: the patch changes the results: " in said
    assert "ended with exit code 1: RuntimeError: no more views" in said


def test_without_the_packages_that_it_needs_it_names_them(tmp_path: Path) -> None:
    name = copied(PROGRAMS / "train.py", tmp_path)
    hide = "import sys; sys.modules['psutil'] = None; sys.argv[1:] = ['verify', 'train.py']"
    source = f"{hide}; from perflint.__main__ import main; main()"
    result = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, name) == (2, "train.py")
    assert result.stderr == "perflint: verify needs psutil: pip install '.[gpu]' " + (
        "into the environment of your program, in a clone of perflint\n"
    )


def test_on_windows_it_says_that_it_does_not_run_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "sys", SimpleNamespace(platform="win32"))
    result = CliRunner().invoke(cli, ["verify", str(PROGRAMS / "train.py")])
    assert result.exit_code == FAILED
    assert result.stderr.startswith("perflint: verify doesn't run on Windows")
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("missing.py",), "perflint: missing.py: there is no such file to run"),
        (("empty",), "perflint: empty: there is no __main__.py to run in it"),
        (("broken.py",), "perflint: broken.py:2: is not valid Python: '(' was never closed"),
        (("strange.py",), "perflint: strange.py:1: unknown encoding: of-nobody"),
        (("broken.ipynb",), "perflint: broken.ipynb:1: is not valid JSON: Expecting value"),
        (("-m", "missing.train"), "perflint: No module named missing.train"),
        (("--budget", "soon", "train.py"), "'soon' is no time: write 90s, 5m or 1h"),
        (("--budget", "0m", "train.py"), "there is nothing to be measured in no time"),
        (("--fail-under", "0", "train.py"), "0.0 is not in the range x>0"),
        (("--call", "module"), "perflint: module: name a function as PACKAGE.MODULE:FUNCTION"),
    ],
)
def test_a_users_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    (tmp_path / "broken.py").write_text("a = 1\nx = (\n")
    (tmp_path / "strange.py").write_text("# coding: of-nobody\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.ipynb").write_text("[")
    result = verify(tmp_path, *arguments)
    assert result.returncode == 2
    assert line in result.stderr
