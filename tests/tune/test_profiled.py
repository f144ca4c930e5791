"""Tuning profiles a few steps of a program that nobody has profiled, and leaves nothing of that behind."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perflint.profile.result import keep
from perflint.tune import fresh, profiled
from perflint.verify.messages import Kind, Program
from perflint.verify.processes import Guardian
from perflint.verify.protocol import Budget
from perflint.verify.runs import Course
from tests.fixture_cases import FIXTURES


def test_a_profile_is_taken_and_kept_and_what_the_program_wrote_is_put_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "writes.py"
    script.write_text((FIXTURES / "tune" / "writes.py").read_text())
    (tmp_path / "losses.txt").write_text("of another run\n")
    program = Program(Kind.SCRIPT, str(script), (), tmp_path)
    with closing(Guardian()) as guardian:
        profile = profiled(Course(program, guardian, budget=Budget(300.0)), tmp_path)
    assert profile is not None and sum(profile.shares.values()) == pytest.approx(1)
    assert fresh(tmp_path, str(program)) == profile
    for elsewhere in ({"device": "NVIDIA H100 80GB HBM3"}, {"versions": {**profile.versions, "torch": "1.0"}}):
        keep(tmp_path, replace(profile, **elsewhere))
        assert fresh(tmp_path, str(program)) is None
    assert (tmp_path / "losses.txt").read_text() == "of another run\n"
    assert capfd.readouterr().out == ""
