"""What a verification has found worth it is applied and shown, for as long as the code is as it was verified."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from perflint.cli.commands import cli
from perflint.engine.results import Diagnostic, RunResult
from perflint.project.files import discover
from perflint.project.patch import ANY, patch_files
from perflint.project.run import check_files
from perflint.project.settings import Settings
from perflint.project.stored import FOLDER, VERDICTS
from perflint.verify import verdicts
from perflint.verify.verdicts import Won
from tests.verify.verdicts import fix, verdict

PROGRAM = """\
import torch


def add(context: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    context = torch.zeros(3, 1, 5)
    return context.repeat(1, 7, 1) + x
"""

TRAINING = """\
import torch

model = torch.nn.Linear(3, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def settings(folder: Path) -> Settings:
    return Settings(root=folder, cache=False, jobs=1, select=("repeat-not-broadcast",))


def checked(folder: Path) -> RunResult:
    return check_files(discover([folder], settings(folder)), settings(folder))


def finding(folder: Path) -> Diagnostic:
    (diagnostic,) = (each for file in checked(folder).files for each in file.diagnostics)
    return diagnostic


def verified(folder: Path, *, speedup: float = 2.0, kept: bool = True, into: Path | None = None, **changes: Any) -> Won:
    """What is known after a verification of the program in `folder`."""
    found = finding(folder)
    place: dict[str, Any] = {
        "rule": found.rule,
        "path": found.path,
        "line": found.start.line,
        "fingerprint": found.fingerprint,
    }
    made = verdict(speedup, (fix(**{"title": found.fixes[0].title, **place, **changes}),))
    (measured,) = made.fixes
    file = (into or folder) / VERDICTS
    verdicts.add(file, replace(made, fixes=(replace(measured, kept=kept),)))
    return Won.read(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program in it."""
    (tmp_path / "module.py").write_text(PROGRAM, encoding="utf-8")
    return tmp_path


def changed(folder: Path, won: Won | None) -> bool:
    found = discover([folder], settings(folder))
    return any(patch.changed for patch in patch_files(found, settings(folder), wanted=won.places if won else None))


def test_what_has_won_is_applied_whatever_its_safety(folder: Path) -> None:
    assert changed(folder, verified(folder))


@pytest.mark.parametrize("seen", [{"kept": False}, {"speedup": 1.0}])
def test_nothing_else_is_applied(folder: Path, seen: dict[str, float]) -> None:
    assert not changed(folder, verified(folder, **seen))  # type: ignore[arg-type]
    assert not changed(folder, Won(()))


def test_code_that_has_moved_is_known_again_and_code_that_was_changed_is_not(folder: Path) -> None:
    won = verified(folder)
    (folder / "module.py").write_text(f"import math\n{PROGRAM}", encoding="utf-8")
    assert changed(folder, won)
    (folder / "module.py").write_text(PROGRAM.replace("repeat(1, 7, 1)", "repeat(1, 8, 1)"), encoding="utf-8")
    assert not changed(folder, won)


def test_it_is_known_in_a_copy_of_the_project_too(folder: Path, tmp_path: Path) -> None:
    (folder / FOLDER).mkdir()
    verified(folder, into=folder / FOLDER)
    copy = shutil.copytree(folder, tmp_path / "somewhere" / "else")
    assert list(Won.read(copy / FOLDER / VERDICTS).places(checked(copy)).values()) != [frozenset()]


def test_findings_show_what_their_fixes_have_gained(folder: Path) -> None:
    (file,) = verified(folder).with_gains(checked(folder)).files
    (shown,) = (each.measured for each in file.diagnostics)
    assert re.fullmatch(r"(1\.9\d|2\.0\d)x \(1\.9\d to 2\.0\d\) as fast on NVIDIA H200, 2026-11-21", shown)


def test_findings_whose_fixes_were_dropped_show_nothing(folder: Path) -> None:
    (file,) = verified(folder, kept=False).with_gains(checked(folder)).files
    assert not any(each.measured for each in file.diagnostics)


def test_what_a_fix_gains_with_others_is_shown_as_theirs(folder: Path) -> None:
    (file,) = verified(folder, is_joint=True).with_gains(checked(folder)).files
    assert all("as fast with other fixes on NVIDIA H200" in each.measured for each in file.diagnostics)


def test_what_won_as_the_program_ran_is_applied_by_whatever_its_finding_offers(folder: Path) -> None:
    won = verified(folder, title="as it is made", at_run_time=True)
    (places,) = won.places(checked(folder)).values()
    assert places == {(finding(folder).rule, finding(folder).start.line, ANY)}
    (places,) = verified(folder, title="another").places(checked(folder)).values()
    assert (finding(folder).rule, finding(folder).start.line, "another") in places


def test_advice_that_won_is_written_though_nobody_selects_it_and_settings_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "perflint.toml").touch()
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    chosen = replace(settings(tmp_path), select=("optimizer-not-fused",))
    (file,) = check_files(discover([tmp_path], chosen), chosen).files
    (found,) = file.diagnostics
    won = fix(
        rule=found.rule, path=str(program), line=4, title=found.fixes[0].title, fingerprint=found.fingerprint, kept=True
    )
    setting = replace(won, name="compile", rule="compile", path=str(tmp_path), line=0, at_run_time=True)
    verdicts.add(tmp_path / FOLDER / VERDICTS, replace(verdict(2.0, (won,)), fixes=(won, setting)))
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(cli, ["fix", "--apply", "--verified", "--no-cache"])
    assert program.read_text() == TRAINING.replace("lr=0.1)", "lr=0.1, fused=True)"), told.output
    assert "kept, but in no file: compile; `perflint run --tuned` makes them" in " ".join(told.output.split())
