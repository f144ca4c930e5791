"""A notebook is run as the script that its Python makes, and told of by its cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.documents.lines import at_line
from perflint.engine import UserError
from perflint.profile.result import Code
from perflint.project.run import check_files
from perflint.project.settings import load
from perflint.shim.launch import left_out
from perflint.shim.planning import Project
from perflint.verify.messages import OPTIMIZER, Recording
from perflint.verify.variants import Variants
from tests.shim.runs import patched, project
from tests.verify.courses import course

NAME = "cells.ipynb"


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    (tmp_path / "perflint.toml").write_text('select = ["item-in-loop"]\n')
    return project(tmp_path, NAME) / NAME


def test_its_cells_run_in_order_with_their_fixes(notebook: Path) -> None:
    run = patched(notebook.parent, NAME)
    assert run.stdout.endswith("__main__\nFalse\nNone\n"), run.stderr
    assert run.stderr.splitlines() == [
        f"perflint: {NAME} runs without cell 1:1 `%matplotlib inline`; cell 1:2 `!pip install -q torch`",
        "perflint: 1 fix took effect",
        f"  {NAME}:cell 4:7 item-in-loop: add `total` up on the device and read it once, after the loop (12 times)",
    ]


def test_an_error_is_told_by_its_cell(notebook: Path) -> None:
    run = patched(notebook.parent, "-q", NAME, "no more")
    assert run.returncode == 1
    said = f"    raise ValueError(sys.argv[1])\nValueError: no more\nperflint: line 24 is {NAME}:cell 5:2\n"
    assert run.stderr.endswith(f"line 24, in <module>\n{said}")


def test_its_fixes_are_verified_like_those_of_a_script(notebook: Path, tmp_path: Path) -> None:
    folder = notebook.parent
    variants = Variants(Project(folder, folder, load(folder).settings))
    (fix,) = variants.fixes
    assert at_line(fix.path, fix.line, "here") == "here:cell 4:7"
    assert variants.fingerprint(fix)
    variant = variants.with_fixes("patched", [fix])
    with course(str(notebook), folder=folder) as races:
        (run,) = races.record([(variant, Recording(str(tmp_path / "run"), (1,), ()))], OPTIMIZER, 100, 60.0)
    assert variants.effect(fix, variant, run).times == 12


def test_a_finding_is_at_the_line_of_the_program_that_is_measured(notebook: Path) -> None:
    project_ = Project(notebook.parent, notebook.parent, load(notebook.parent).settings)
    (found,) = check_files(project_.discover(), project_.settings).diagnostics
    code = Code.of(notebook)
    assert "total" in code.names[found.start.program_line]
    assert found.start.program_line in code.region(found)


def test_what_is_left_out_of_a_notebook_is_said_if_there_is_something(tmp_path: Path) -> None:
    empty, foreign = tmp_path / "empty.ipynb", tmp_path / "r.ipynb"
    empty.write_text("")
    foreign.write_text('{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}')
    assert left_out(str(empty)) == ""
    with pytest.raises(UserError, match="its kernel runs R, not Python"):
        left_out(str(foreign))
