"""A program does not notice that it is recorded, nor that its state is put back: it computes, prints and ends alike."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from perflint.verify.grade import Grade
from tests import forks
from tests.verify.courses import PROGRAMS, bench

SHAPES = sorted(path.stem for path in (PROGRAMS / "shapes").glob("*.py"))
_STEPS = 6  # of eight or more
_ALL = 1000


@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "compiled"])  # it takes seconds: once will do
def test_a_program_of_any_shape_prints_and_ends_as_it_does_by_itself(shape: str, tmp_path: Path) -> None:
    with forks.Popen([sys.executable, str(PROGRAMS / "shapes" / f"{shape}.py")], cwd=tmp_path, stdout=PIPE) as alone:
        printed = alone.communicate()[0].decode("utf-8", "replace")
    with bench(f"shapes/{shape}.py", tmp_path, steps=_ALL) as whole:
        for run in (whole.records.standard.run, whole.records.standard.again):
            assert run is not None
            assert (run.code, run.output) == (alone.returncode, printed), run.errors
        assert whole.records.own.grade is Grade.BITWISE


@pytest.mark.parametrize("shape", SHAPES)
def test_a_program_of_any_shape_computes_the_same_behind_a_restart(shape: str, tmp_path: Path) -> None:
    with bench(f"shapes/{shape}.py", tmp_path, steps=_STEPS) as part:
        assert part.records.own.grade is Grade.BITWISE, part.records.own.evidence
        assert part.records.standard.run.code is None
